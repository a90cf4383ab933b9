"""`dlcp switch`: parse, call, print. As in main.py, the command that needs a slow import is where it stands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from dlcp.cli.bench import Json, require_picture
from dlcp.errors import ExitCode, Problem

if TYPE_CHECKING:
    from dlcp.cli.show.deployment import DeployScreen
    from dlcp.model.lab.inventory import Lab
    from dlcp.runner.lab.deploy import Outcome

switch = App(
    name="switch",
    help="Switches, and what they are to do.",
    help_epilogue="Exit codes of verify: 0 as intended, 4 something deviates or could not be concluded.",
)


LabFile = Annotated[
    Path | None,
    Parameter(name="--lab", help="The lab's inventory; default: that of DLCP_LAB, else lab.yaml in this folder."),
]
Degrade = Annotated[bool, Parameter(negative="")]


@switch.command
def verify(
    experiment: str,
    *,
    on: Annotated[str, Parameter(name="--on", help="Where: emulate, or lab.")] = "emulate",
    lab: LabFile = None,
    scheme: str | None = None,
    degrade: Degrade = False,
    every_port: Annotated[bool, Parameter(negative="")] = False,
    plot: Path | None = None,
    json: Json = False,
) -> int:
    """Send probes through an experiment's fabric and compare what its switches do with what they should do.

    Codepoints, order of service, drop and mark curves, limits, selective drop, load balancing, rates, paths. On a lab
    the intent must have been deployed; its hosts probe, and switches that count exactly are asked.

    Parameters
    ----------
    experiment
        A file or a name, as for dlcp run; on a lab also a QoS intent, such as dlcp-wred.
    scheme
        Label of the scheme whose QoS intent is verified; default: those of all schemes, each once (on a lab, the one
        that it holds).
    degrade
        On a lab: the intent was deployed with leave to do something else where a switch lacks something.
    every_port
        Look at curves and limits of every port that leads to a host, not of one at each switch.
    plot
        Draw the curves with their bands into this file (.png, .svg or .pdf).
    """
    from dlcp.cli.show import common
    from dlcp.cli.show import switch as show_switch
    from dlcp.cli.show.progress import measuring_on
    from dlcp.model.loading.experiment_files import find_experiment
    from dlcp.runner.planning.check import ready
    from dlcp.runner.verify import verify_switches
    from dlcp.substrates.registry import traits_of

    require_picture(plot)
    place = traits_of(on)
    if not (place.emulates or place.needs_lab):
        raise Problem("--on", f"{on} has no switches to probe", "--on emulate, or --on lab")
    with measuring_on(common.console(error=True)) as on_progress:
        if place.needs_lab:
            from dlcp.runner.verify_lab import verify_named

            name, verified = verify_named(
                experiment, lab, scheme, degrade=degrade, every_port=every_port, on_progress=on_progress
            )
        else:
            checked = ready(find_experiment(experiment))
            name = checked.experiment.name
            verified = verify_switches(checked, scheme, every_port=every_port, on_progress=on_progress)
    if json:
        common.print_json({"experiment": name, "verified": [intent_result.data() for intent_result in verified]})
    else:
        show_switch.print_verified(verified)
    if plot is not None:
        from dlcp.report.plots.aqm_curves import draw_curves

        draw_curves(name, [intent_result.data() for intent_result in verified], plot)
    return max((intent_result.exit_code for intent_result in verified), default=int(ExitCode.FINE))


@switch.command
def render(
    intent: str,
    *,
    os: str | None = None,
    device: Path | None = None,
    degrade: Annotated[bool, Parameter(negative="")] = False,
    rollback: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
) -> int:
    """Print the configuration of a lab switch that does a QoS intent; on standard error, what differs from the intent.

    Touches no switch. A switch that cannot do all of it is refused, with the reason, its source and the way out.

    Parameters
    ----------
    intent
        A file, or the name of one in testbed/intents, such as dlcp-wred.
    os
        Switch system, a folder of switch_configs, such as eos; its example device is taken when none is given.
    device
        File that describes the switch, in the form of switch_configs/<os>/example.yaml.
    degrade
        Where the switch lacks something, do what its system declares instead, and say so.
    rollback
        Print the way back instead: what takes the configuration off again.
    """
    from dlcp.cli.show import common
    from dlcp.cli.show import switch as show_switch
    from dlcp.runner.switch_commands import render_intent

    rendered = render_intent(intent, os, device, degrade=degrade)
    if json:
        common.print_json(rendered.data())
    else:
        show_switch.print_rendered(rendered, rollback=rollback)
    return ExitCode.FINE


Yes = Annotated[bool, Parameter(name="--yes", negative="")]


@switch.command
def diff(intent: str, *, lab: LabFile = None, degrade: Degrade = False, json: Json = False) -> int:
    """Show what deploying a QoS intent would change on each switch of a lab. Changes nothing.

    Parameters
    ----------
    intent
        A file, or the name of one in testbed/intents, such as dlcp-wred.
    degrade
        Where a switch lacks something, do what its system declares instead, and say so.
    """
    return _deploy(intent, lab, yes=False, degrade=degrade, within=None, json=json)


@switch.command
def apply(
    intent: str,
    *,
    lab: LabFile = None,
    yes: Yes = False,
    degrade: Degrade = False,
    within: str | None = None,
    json: Json = False,
) -> int:
    """Deploy a QoS intent onto every switch of a lab, or onto none: what fails anywhere is turned back everywhere.

    Parameters
    ----------
    intent
        A file, or the name of one in testbed/intents, such as dlcp-wred.
    yes
        Go on after the differences are shown; without it nothing is changed.
    degrade
        Where a switch lacks something, do what its system declares instead, and say so.
    within
        How long switches wait for the end before they turn back by themselves, such as "2 min"; default 5 min.
    """
    return _deploy(intent, lab, yes=yes, degrade=degrade, within=within, json=json)


@switch.command
def rollback(
    *,
    lab: LabFile = None,
    deployment: str = "",
    original: Annotated[bool, Parameter(negative="")] = False,
    yes: Yes = False,
    json: Json = False,
) -> int:
    """Take a deployment back: every switch of a lab as it was before it.

    Parameters
    ----------
    deployment
        Which, by the name of its folder in deployments/; default: the last that was confirmed.
    original
        All the way instead: as it was before anything of ours.
    yes
        Do it; without it, only what the switches hold is read.
    """
    from dlcp.cli.show import common
    from dlcp.cli.show import deployment as show_deployment
    from dlcp.runner.lab import deploy as deploying
    from dlcp.runner.lab.find_lab import find_lab

    lab_found = find_lab(lab)
    listener = None if json else show_deployment.DeployScreen(common.console())
    outcome = deploying.rollback(lab_found, yes=yes, of=deployment, original=original, listener=listener)
    return _ended(lab_found, outcome, listener)


@switch.command
def inventory(topology: str, *, facts: Path | None = None, json: Json = False) -> int:
    """Print the inventory of a lab that is built as a topology is; on standard error, what a person must fill in.

    Parameters
    ----------
    topology
        Name of one in testbed/topologies, or an experiment, by name or file, whose topology is meant.
    facts
        What is known of the lab: an inventory in whole or in part, such as the one that this command wrote before.
    """
    from dlcp.cli.show import common
    from dlcp.model.lab.inventory_scaffold import gaps, inventory_text
    from dlcp.runner.switch_commands import make_inventory

    made = make_inventory(topology, facts)
    left = [(".".join(map(str, loc)), gap) for loc, gap in gaps(made)]
    if json:
        common.print_json({"inventory": made, "fill_in": [{"at": loc, "what": gap} for loc, gap in left]})
        return ExitCode.FINE
    print(inventory_text(made), end="")
    if left:
        out = common.console(error=True)
        out.print(f"{len(left)} to fill in before dlcp takes it: search for FILL IN, or give --facts", soft_wrap=True)
    return ExitCode.FINE


def _deploy(intent: str, lab: Path | None, *, yes: bool, degrade: bool, within: str | None, json: bool) -> int:
    from dlcp.cli.show import common
    from dlcp.cli.show import deployment as show_deployment
    from dlcp.model.units import QuantityError, parse_duration_s
    from dlcp.runner.lab import deploy as deploying
    from dlcp.runner.lab.find_lab import find_lab
    from dlcp.switches.vendor.files import find_intent, load_intent

    lab_found = find_lab(lab)
    wanted = load_intent(find_intent(intent))
    if degrade:
        wanted = wanted.model_copy(update={"on_unsupported": "degrade"})
    listener = None if json else show_deployment.DeployScreen(common.console())
    try:
        within_s = None if within is None else parse_duration_s(within)
    except QuantityError as error:
        raise Problem("--within", error.what, error.hint) from None
    outcome = deploying.deploy(lab_found, wanted, yes=yes, confirm_within_s=within_s, listener=listener)
    return _ended(lab_found, outcome, listener)


def _ended(lab: Lab, outcome: Outcome, listener: DeployScreen | None) -> int:
    from dlcp.cli.show import common
    from dlcp.cli.show import deployment as show_deployment

    if listener is None:
        common.print_json(outcome.data())
    else:
        listener.over()
        show_deployment.print_outcome(common.console(), lab, outcome)
    return outcome.exit_code
