"""`dlcp switch`: parse, call, print. As in cli.py, the command that needs a slow import is where it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from dlcp.cli_bench import Json, require_picture
from dlcp.errors import ExitCode

switch = App(
    name="switch",
    help="Switches, and what they are to do.",
    help_epilogue="Exit codes of verify: 0 as intended, 4 something deviates or could not be concluded.",
)


@switch.command
def verify(
    experiment: str,
    *,
    scheme: str | None = None,
    every_port: Annotated[bool, Parameter(negative="")] = False,
    plot: Path | None = None,
    json: Json = False,
) -> int:
    """Send probes through an experiment's fabric and compare what its switches do with what they should do.

    Codepoints, order of service, drop and mark curves, limits, selective drop, load balancing, rates, paths.

    Parameters
    ----------
    scheme
        Label of the scheme whose QoS intent is verified; default: those of all schemes, each once.
    every_port
        Look at curves and limits of every port that leads to a host, not of one at each switch.
    plot
        Draw the curves with their bands into this file (.png, .svg or .pdf).
    """
    from dlcp import screen, screen_switch
    from dlcp.model.load import find_experiment
    from dlcp.progress import measuring_on
    from dlcp.runner.check import ready
    from dlcp.runner.verify import verify_switches

    checked = ready(find_experiment(experiment))
    require_picture(plot)
    with measuring_on(screen.console(error=True)) as on_step:
        found = verify_switches(checked, scheme, every_port=every_port, on_step=on_step)
    if json:
        screen.print_json({"experiment": checked.experiment.name, "verified": [one.data() for one in found]})
    else:
        screen_switch.print_verified(found)
    if plot is not None:
        from dlcp.report.curves import draw_curves

        draw_curves(checked.experiment.name, [one.data() for one in found], plot)
    return max((one.exit_code for one in found), default=int(ExitCode.FINE))


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
    from dlcp import screen, screen_switch
    from dlcp.runner.render import render_intent

    found = render_intent(intent, os, device, degrade=degrade)
    if json:
        screen.print_json(found.data())
    else:
        screen_switch.print_rendered(found, rollback=rollback)
    return ExitCode.FINE
