"""The `dlcp` command: parse, call, print. Whatever is slow to import is imported by the command that needs it."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, CycloptsError, Parameter

from dlcp import __version__
from dlcp.cli.bench import Json, bench
from dlcp.cli.hosts import hosts
from dlcp.cli.lab import lab
from dlcp.cli.paper import paper
from dlcp.cli.switch import LabFile, switch
from dlcp.cli.tune import searched, tune
from dlcp.cli.verify import verify
from dlcp.errors import ExitCode, MachineCannot, Problem, Problems, encode_problem, needs_extra

if TYPE_CHECKING:
    from dlcp.model.experiment import Expectation
    from dlcp.runner.lab.lab_runs import LabChoice
    from dlcp.runner.machine.calibration import Costs

RESULTS = Path("results")
_FILE_TROUBLE = {
    errno.EACCES: "you may not touch it: work as its owner, or name another folder (--results, --out)",
    errno.EPERM: "you may not touch it: work as its owner, or name another folder (--results, --out)",
    errno.EROFS: "name a folder that can be written to (--results, --out)",
    errno.ENOSPC: "free some space (dlcp clean lists what can go), then repeat: finished runs are kept",
    errno.EDQUOT: "free some space (dlcp clean lists what can go), then repeat: finished runs are kept",
    errno.ENOTDIR: "a file is in the way: name another folder (--results, --out)",
    errno.EEXIST: "a file is in the way: name another folder (--results, --out)",
}
"""Errors of a file system that a person can fix, and how. Any other OSError is a fault of this program."""

app = App(
    name="dlcp",
    help="DLCP, a loss-tolerant transport for distributed DNN training, and the testbed that compares it with others.",
    version=__version__,
    help_epilogue=(
        "EXPERIMENT is a file, or the name of one in testbed/experiments, such as quickstart. "
        "Exit codes: 0 fine, 1 a run failed, 2 the file or the arguments are wrong, 3 this machine cannot, "
        "4 finished but suspect or an expectation does not hold, 130 interrupted (safe to repeat)."
    ),
)

Results = Annotated[Path, Parameter(name="--results", help="Folder that results are in.")]
On = Annotated[
    str | None,
    Parameter(
        name="--on",
        help="Substrate to run on: emulate, lab, or inprocess (without a network). Default: the one that all "
        "schemes of the file need, else emulate.",
    ),
]
Deploy = Annotated[
    bool,
    Parameter(
        name="--deploy",
        negative="",
        help="On a lab: bring each scheme's QoS intent onto the switches and its settings onto the hosts, as runs need "
        "them. Without it a lab that is not as a run needs it is refused.",
    ),
]
Degrade = Annotated[
    bool,
    Parameter(
        name="--degrade",
        negative="",
        help="On a lab: where a switch lacks something, do what its system declares instead; every result says so.",
    ),
]
ScaleDown = Annotated[
    bool,
    Parameter(
        name="--scale-down",
        negative="",
        help="Where this machine cannot carry the load: everything slower (time_dilation), which changes no packet; "
        "where that takes too long, slower links and a larger byte_scale, too.",
    ),
]


@app.command
def doctor(
    *,
    results: Results = RESULTS,
    calibrate: Annotated[
        bool, Parameter(negative="", help="Measure first what a packet costs on this machine, and keep it.")
    ] = False,
    even_if_busy: Annotated[
        bool, Parameter(negative="", help="Keep it even if others' work has spoiled it, marked so.")
    ] = False,
    json: Json = False,
) -> int:
    """Say what this machine can do, and the one command that fixes each gap."""
    from dlcp.cli.show import common
    from dlcp.runner.machine.doctor import examine, gaps

    if even_if_busy and not calibrate:
        raise Problem("--even-if-busy", "is of what --calibrate measures", "dlcp doctor --calibrate --even-if-busy")
    if calibrate:
        code = _calibrate(even_if_busy=even_if_busy, json=json)
        if code or json:
            return code
    groups = examine(results)
    if json:
        common.print_json([vars(group) | {"checks": [vars(check) for check in group.checks]} for group in groups])
    else:
        common.print_doctor(groups)
    return ExitCode.MACHINE_CANNOT if gaps(groups) else ExitCode.FINE


@app.command
def show(
    kind: Literal["schemes", "workloads", "switches", "topologies"] | None = None,
    name: str | None = None,
    *,
    json: Json = False,
) -> int:
    """List schemes, workloads, switches or topologies, or show the details of one.

    Parameters
    ----------
    kind
        What to list; all four, if not given.
    name
        Show the details of this one.
    """
    from dlcp.cli.show import common
    from dlcp.runner.catalogue import KINDS, details, overview, summary, switch_matrix, switch_sources

    if kind is None:
        if json:
            common.print_json({kind_name: overview(kind_name) for kind_name in KINDS})
        else:
            for number, kind_name in enumerate(KINDS):
                common.print_rows(summary(kind_name), title=("\n" if number else "") + kind_name)
    elif name is None:
        if json:
            common.print_json(overview(kind))
        else:
            common.print_rows(summary(kind))
        if kind == "switches" and not json:
            title = "\nWhat they have (yes?: with a doubt; instead: with leave, something else that is declared)"
            common.print_rows(switch_matrix(), title=title)
            title = "\nWhat this rests on (reasons, doubts and ways out, feature by feature: dlcp show switches NAME)"
            common.print_rows(switch_sources(), title=title)
    else:
        (common.print_json if json else common.print_details)(details(kind, name))
    return ExitCode.FINE


@app.command
def check(experiment: str, *, json: Json = False) -> int:
    """Name every problem of an experiment file at once, by file:line:col. Touches nothing."""
    from dlcp.cli.show import common
    from dlcp.model.loading.experiment_files import find_experiment
    from dlcp.runner.planning import check as checking

    problem_lists = checking.check(find_experiment(experiment))
    if json:
        lists = {"problems": problem_lists.problems, "warnings": problem_lists.warnings}
        words = {key: [encode_problem(problem, exit_code=False) for problem in value] for key, value in lists.items()}
        common.print_json(words)
    else:
        common.print_problems(problem_lists.warnings, warning=True)
        common.print_problems(problem_lists.problems)
        count = len(problem_lists.problems)
        common.console().print(f"{problem_lists.path}: " + (f"{count} problem{'s' * (count > 1)}" if count else "fine"))
    return ExitCode.BAD_INPUT if problem_lists.problems else ExitCode.FINE


@app.command
def plan(
    experiment: str,
    *,
    on: On = None,
    lab: LabFile = None,
    deploy: Deploy = False,
    degrade: Degrade = False,
    results: Results = RESULTS,
    scale_down: ScaleDown = False,
    json: Json = False,
) -> int:
    """Show the runs of an experiment, the time they take, and what the fabric stands for. Starts nothing."""
    from dlcp.cli.show import common
    from dlcp.model.loading.experiment_files import find_experiment
    from dlcp.runner.planning.check import ready
    from dlcp.runner.planning.plan import usual_substrate
    from dlcp.runner.preview.outline import outline

    experiment_ready = ready(find_experiment(experiment))
    on = on or usual_substrate(experiment_ready)
    choice = _lab(on, lab, deploy=deploy, degrade=degrade)
    preview = outline(experiment_ready, on, results, scale_down=scale_down, lab=choice)
    if json:
        common.print_json(preview.data())
    else:
        common.print_problems(preview.plan.ready.warnings, warning=True)
        common.print_plan(preview)
    return ExitCode.FINE


@app.command
def run(
    experiment: str,
    *,
    on: On = None,
    lab: LabFile = None,
    deploy: Deploy = False,
    degrade: Degrade = False,
    results: Results = RESULTS,
    retry_suspect: Annotated[bool, Parameter(negative="", help="Make suspect runs again, as failed ones are.")] = False,
    scale_down: ScaleDown = False,
) -> int:
    """Run what is missing of an experiment, then show the comparison. Again = resume.

    Where its schemes `search` knobs and the record lacks the outcome, the search is made first, as by `dlcp tune` (not
    in a lab).
    """
    from functools import partial

    from dlcp.cli.show import common
    from dlcp.cli.show.progress import progress_on
    from dlcp.model.loading.experiment_files import find_experiment
    from dlcp.runner.doubts import doubts
    from dlcp.runner.planning.check import ready
    from dlcp.runner.planning.plan import usual_substrate
    from dlcp.runner.preview.outline import outline
    from dlcp.runner.preview.preflight import preflight
    from dlcp.runner.running.execute import execute, untuned
    from dlcp.substrates.registry import traits_of

    experiment_ready = ready(find_experiment(experiment))
    usual = usual_substrate(experiment_ready)
    on = on or usual
    choice = _lab(on, lab, deploy=deploy, degrade=degrade)
    planned = partial(
        outline,
        substrate=on,
        results=results,
        retry_suspect=retry_suspect,
        scale_down=scale_down,
        lab=choice,
        measured=_calibrate_to_fit() if traits_of(on).emulates and experiment_ready.experiment.scaling.fit else None,
    )
    preview = planned(experiment_ready)
    if on == usual and untuned(preview.plan):
        preview = planned(searched(experiment_ready))
    preflight(preview, results)
    common.print_problems(preview.plan.ready.warnings, warning=True)
    common.print_summary(preview)
    substrate = None
    if choice is not None and preview.todo:
        from dlcp.runner.lab.lab_runs import opened_lab

        substrate = opened_lab(choice, experiment_ready.path, preview.todo)
    with progress_on(common.console()) as listener:
        execution = execute(preview.plan, results, listener, retry_suspect=retry_suspect, substrate=substrate)
    compared: int = ExitCode.FINE
    if execution.trusted:
        compared = _report(
            preview.plan.folder(results), None, only=preview.plan.run_ids, expect=preview.plan.ready.experiment.expect
        )
    else:
        common.print_execution(execution)
    code = execution.exit_code or compared
    if code == ExitCode.SUSPECT:
        common.print_doubts(doubts(preview, results, experiment))
    return code


@app.command
def status(results: Path = RESULTS, *, json: Json = False) -> int:
    """Show what is done: per job and scheme, how many repeats are finished, suspect, failed or missing.

    Parameters
    ----------
    results
        Folder of all results, or of one experiment's.
    """
    from dlcp.cli.show import common
    from dlcp.runner.running.status import status as find_status

    states = find_status(results)
    if json:
        common.print_json(common.status_data(states))
    else:
        common.print_status(states)
    return ExitCode.FINE


@app.command
def report(results: Path = RESULTS, *, out: Path | None = None, against: Path | None = None, json: Json = False) -> int:
    """Compare the schemes: terminal tables, report.html, CSV and Parquet files in the folder of the results.

    Parameters
    ----------
    results
        Folder of an experiment's results (or of all, when there is one experiment).
    out
        Folder that the files go to, if not the folder of the results.
    against
        Other results (of an earlier commit, of other knobs): what changed, and what else was not the same.
    """
    return _report(results, out, against=against, json=json)


@app.command
def masks(results: Path, *, name: str) -> int:
    """Make a file of masks from the packets that a run lost, for scheme masked to replay.

    Parameters
    ----------
    results
        Folder of a finished run whose job has record_holes: true, or of an experiment with one such run.
    name
        Of the file, in testbed/experiments/masks.
    """
    from dlcp.cli.show import common
    from dlcp.model.units import show_fraction
    from dlcp.runner.running.record_masks import record_masks

    path, record = record_masks(results, name)
    amount = f"{record.iterations} iterations of {record.workers} workers"
    summary = f"{amount}, {show_fraction(record.loss)} of the packets lost"
    common.console().print(f"{path}: {summary} ({record.source['status']})", soft_wrap=True, markup=False)
    return ExitCode.FINE


@app.command
def shell(
    experiment: str,
    *,
    command: Annotated[str | None, Parameter(name=["--command", "-c"])] = None,
    scheme: str | None = None,
) -> int:
    """Bring the emulated fabric of an experiment up and give Mininet's own prompt.

    Parameters
    ----------
    command
        Run this one command instead, such as "h1 ping -c 3 h2"; its exit code is returned.
    scheme
        Label of the scheme whose switch and host settings are used; default: the experiment's first.
    """
    from dlcp.model.loading.experiment_files import find_experiment
    from dlcp.runner.planning.check import ready
    from dlcp.runner.shells import open_shell

    return open_shell(ready(find_experiment(experiment)), scheme, command)


@app.command
def clean(
    folder: Path = RESULTS,
    *,
    results: Annotated[bool, Parameter(negative="", help="Finished runs and reports too.")] = False,
    yes: Annotated[bool, Parameter(negative="", help="Remove what is listed.")] = False,
) -> int:
    """List what killed runs left behind; with --yes, remove it. Only what this tool owns.

    Parameters
    ----------
    folder
        Folder that results are in.
    """
    from dlcp.cli.show import common
    from dlcp.runner.running.clean import find, remove

    cleaning = (remove if yes else find)(folder, with_results=results)
    common.print_cleaning(cleaning, removed=yes)
    return ExitCode.FINE


app.command(tune)
app.command(bench)
app.command(verify)
app.command(switch)
app.command(hosts)
app.command(lab)
app.command(paper)


def main() -> None:
    """Entry point: runs the command in sys.argv and exits with its code."""
    sys.exit(_dispatch(sys.argv[1:]))


def _dispatch(arguments: list[str]) -> int:
    """Parse and call; problems are printed, and become the exit code (dlcp.errors.ExitCode)."""
    try:
        command, bound, _ = app.parse_args(arguments, print_error=True, exit_on_error=False)
    except CycloptsError:
        return ExitCode.BAD_INPUT
    try:
        code = _call(command, bound.args, bound.kwargs)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FINE
    return code


def _call(command: Callable[..., int | None], args: tuple[object, ...], options: dict[str, object]) -> int:
    try:
        return int(command(*args, **options) or ExitCode.FINE)
    except (Problem, Problems) as error:
        return _explain(error.problems if isinstance(error, Problems) else [error])
    except OSError as error:
        if error.errno not in _FILE_TROUBLE:
            raise
        message = (error.strerror or "cannot be written").lower()
        return _explain([MachineCannot(str(error.filename or "writing"), message, _FILE_TROUBLE[error.errno])])
    except KeyboardInterrupt:
        print("interrupted: finished runs are kept; the same command goes on from there", file=sys.stderr)
        return ExitCode.INTERRUPTED


def _explain(problems: list[Problem]) -> int:
    """Print problems; returns the exit code that they make."""
    from dlcp.cli.show import common

    common.print_problems(problems)
    return max(problem.exit_code for problem in problems)


def _lab(on: str, lab: Path | None, *, deploy: bool, degrade: bool) -> LabChoice | None:
    """The lab that a command means, when it means one. Problem when words are given that only a lab knows."""
    from dlcp.substrates.registry import traits_of

    if not traits_of(on).needs_lab:
        for word, given in (("--lab", lab), ("--deploy", deploy), ("--degrade", degrade)):
            if given:
                raise Problem(word, f"is of a lab, and this is --on {on}", "--on lab")
        return None
    with needs_extra("lab", "--on lab"):
        from dlcp.runner.lab.find_lab import find_lab
        from dlcp.runner.lab.lab_runs import LabChoice
    return LabChoice(find_lab(lab), deploy=deploy, degrade=degrade)


def _calibrate_to_fit() -> Costs | None:
    """Measure what a packet costs here where that is not known yet, for an experiment that fits itself to the machine,
    and keep it. None where what is stored counts, or where nothing can be measured: the defaults count then.

    A measurement that others' work has spoiled is kept as well, marked so: the next run must choose the same dilation.
    Problems with all that this machine lacks.
    """
    from dlcp.cli.show import common
    from dlcp.cli.show.progress import measuring_on
    from dlcp.runner.machine import calibration
    from dlcp.runner.preview.preflight import preflight_emulation

    stored = calibration.load()
    if stored.calibration is not None:
        return None
    preflight_emulation()
    out = common.console()
    out.print(f"{stored.why}: measuring what a packet costs here, once, in about 20 s", soft_wrap=True, markup=False)
    try:
        with measuring_on(common.console(error=True)) as on_progress:
            measured = calibration.measure(on_progress)
    except MachineCannot as problem:
        common.print_problems([problem], warning=True)
        return None
    try:
        out.print(f"kept in {calibration.store(measured)}", soft_wrap=True, markup=False)
    except OSError as error:
        why = f"cannot be kept in {calibration.path()} ({error.strerror}), so another run may choose another dilation"
        hint = "name a folder that can be written to: DLCP_STATE=FOLDER"
        common.print_problems([Problem("calibration", why, hint)], warning=True)
    return calibration.costs_of(measured)


def _calibrate(*, even_if_busy: bool, json: bool) -> int:
    """Measure, show, keep. SUSPECT when it was spoiled and so not kept."""
    from dlcp.cli.show import common
    from dlcp.cli.show.progress import measuring_on
    from dlcp.runner.machine import calibration

    with measuring_on(common.console(error=True)) as on_progress:
        measured = calibration.measure(on_progress)
    kept = calibration.store(measured) if even_if_busy or not measured.spoiled else None
    if json:
        common.print_json({"calibration": measured.model_dump(), "spoiled": measured.spoiled, "file": kept})
    else:
        common.print_calibration(measured, kept)
    return ExitCode.FINE if kept else ExitCode.SUSPECT


def _report(
    results: Path,
    out: Path | None,
    *,
    against: Path | None = None,
    only: frozenset[str] | None = None,
    expect: tuple[Expectation, ...] | None = None,
    json: bool = False,
) -> int:
    from dlcp.cli.show import common

    with needs_extra("report", "dlcp report"):
        from dlcp.report import report as make_report
    summary = make_report(results, out, None if json else common.console(), only=only, expect=expect, against=against)
    if json:
        common.print_json(vars(summary) | {"outcomes": [vars(outcome) for outcome in summary.outcomes]})
    return summary.exit_code


if __name__ == "__main__":
    main()
