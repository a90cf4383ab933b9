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
from dlcp.errors import ExitCode, MachineCannot, Problem, Problems
from dlcp.paths import install_command

if TYPE_CHECKING:
    from dlcp.model.experiment import Expectation

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
"""What a person can mend in a file system, and how. Any other OSError is a fault of this program."""

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

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON for a program instead of text.")]
Results = Annotated[Path, Parameter(name="--results", help="Folder that results are in.")]
Repeats = Annotated[int, Parameter(name="--repeats", help="Runs of each variant, in turn; a figure to quote has 5.")]
Namespaces = Annotated[
    bool,
    Parameter(name="--namespaces", negative="", help="In network namespaces made for it, offloads off (needs root)."),
]
On = Annotated[str, Parameter(name="--on", help="Substrate to run on: emulate.")]


@app.command
def doctor(*, results: Results = RESULTS, json: Json = False) -> int:
    """Say what this machine can do, and the one command that mends each gap."""
    from dlcp import screen
    from dlcp.runner.doctor import examine, gaps

    groups = examine(results)
    if json:
        screen.print_json([vars(group) | {"checks": [vars(check) for check in group.checks]} for group in groups])
    else:
        screen.print_doctor(groups)
    return ExitCode.MACHINE_CANNOT if gaps(groups) else ExitCode.FINE


@app.command
def show(
    kind: Literal["schemes", "workloads", "switches", "topologies"] | None = None,
    name: str | None = None,
    *,
    json: Json = False,
) -> int:
    """List schemes, workloads, switches or topologies, or tell all about one.

    Parameters
    ----------
    kind
        What to list; all four, if not given.
    name
        One of them, to see all of it.
    """
    from dlcp import screen
    from dlcp.runner.show import KINDS, details, overview

    if kind is None:
        every = {one: overview(one) for one in KINDS}
        if json:
            screen.print_json(every)
        else:
            for number, (one, rows) in enumerate(every.items()):
                screen.print_rows(rows, title=("\n" if number else "") + one)
    elif name is None:
        found = overview(kind)
        (screen.print_json if json else screen.print_rows)(found)
    else:
        (screen.print_json if json else screen.print_details)(details(kind, name))
    return ExitCode.FINE


@app.command
def check(experiment: str, *, json: Json = False) -> int:
    """Name every problem of an experiment file at once, by file:line:col. Touches nothing."""
    from dlcp import screen
    from dlcp.model.load import find_experiment
    from dlcp.runner import check as checking

    found = checking.check(find_experiment(experiment))
    if json:
        lists = {"problems": found.problems, "warnings": found.warnings}
        screen.print_json({key: [screen.problem_data(one) for one in value] for key, value in lists.items()})
    else:
        screen.print_problems(found.warnings, warning=True)
        screen.print_problems(found.problems)
        count = len(found.problems)
        screen.console().print(f"{found.path}: " + (f"{count} problem{'s' * (count > 1)}" if count else "fine"))
    return ExitCode.BAD_INPUT if found.problems else ExitCode.FINE


@app.command
def plan(experiment: str, *, on: On = "emulate", results: Results = RESULTS, json: Json = False) -> int:
    """Show the runs of an experiment, the time they take, and what the fabric stands for. Starts nothing."""
    from dlcp import screen
    from dlcp.model.load import find_experiment
    from dlcp.runner.check import ready
    from dlcp.runner.outline import outline

    found = outline(ready(find_experiment(experiment)), on, results)
    if json:
        screen.print_json(found.data())
    else:
        screen.print_problems(found.plan.ready.warnings, warning=True)
        screen.print_plan(found)
    return ExitCode.FINE


@app.command
def run(
    experiment: str,
    *,
    on: On = "emulate",
    results: Results = RESULTS,
    retry_suspect: Annotated[bool, Parameter(negative="", help="Make suspect runs again, as failed ones are.")] = False,
) -> int:
    """Run what is missing of an experiment, then show the comparison. Again = resume."""
    from dlcp import screen
    from dlcp.model.load import find_experiment
    from dlcp.progress import progress_on
    from dlcp.runner.check import ready
    from dlcp.runner.execute import execute
    from dlcp.runner.outline import outline
    from dlcp.runner.preflight import preflight

    found = outline(ready(find_experiment(experiment)), on, results, retry_suspect=retry_suspect)
    preflight(found, results)
    screen.print_problems(found.plan.ready.warnings, warning=True)
    screen.print_summary(found)
    with progress_on(screen.console()) as listener:
        execution = execute(found.plan, results, listener, retry_suspect=retry_suspect)
    if not execution.trusted:
        screen.print_execution(execution)
        return execution.exit_code
    compared = _report(
        found.plan.folder(results), None, only=found.plan.run_ids, expect=found.plan.ready.experiment.expect
    )
    return execution.exit_code or compared


@app.command
def status(results: Path = RESULTS, *, json: Json = False) -> int:
    """Show what is done: per job and scheme, how many repeats are finished, suspect, failed or missing.

    Parameters
    ----------
    results
        Folder of all results, or of one experiment's.
    """
    from dlcp import screen
    from dlcp.runner.status import status as find_status

    found = find_status(results)
    if json:
        screen.print_json(screen.status_data(found))
    else:
        screen.print_status(found)
    return ExitCode.FINE


@app.command
def report(results: Path = RESULTS, *, out: Path | None = None, json: Json = False) -> int:
    """Compare the schemes: terminal tables, report.html and CSV files beside the results.

    Parameters
    ----------
    results
        Folder of an experiment's results (or of all, when there is one experiment).
    out
        Folder that the files go to, if not beside the results.
    """
    return _report(results, out, json=json)


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
    from dlcp.model.load import find_experiment
    from dlcp.runner.check import ready
    from dlcp.runner.shell import open_shell

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
    from dlcp import screen
    from dlcp.runner.clean import find, remove

    found = (remove if yes else find)(folder, with_results=results)
    screen.print_cleaning(found, removed=yes)
    return ExitCode.FINE


bench = App(
    name="bench",
    help="Measure what this machine reaches: goodput, completion times, CPU, as ratios of one interleaved run.",
    help_epilogue="Figures are the best and the median of the repeats. A line on the machine says who else was busy.",
)
app.command(bench)


@bench.command
def transport(
    *,
    listen: str | None = None,
    connect: str | None = None,
    key_file: Path | None = None,
    once: Annotated[bool, Parameter(negative="")] = False,
    namespaces: Namespaces = False,
    size: Annotated[list[str] | None, Parameter(negative="")] = None,
    count: int = 200,
    in_flight: int = 2,
    rate: str = "40 Gbit/s",
    loss: str = "0 %",
    loss_back: str = "0 %",
    bound: str = "0 %",
    energy_bound: str = "100 %",
    dtype: Literal["float32", "float16", "bfloat16"] = "float32",
    stop: Literal["lazy", "eager"] = "lazy",
    congestion_control: str = "timely",
    selective_drop: Literal["off", "wred", "ect"] = "off",
    queue: int = 3,
    senders: int = 1,
    buffer: str | None = None,
    segmentation: bool = True,
    against: Literal["none", "python", "reliable"] = "none",
    repeats: Repeats = 5,
    json: Json = False,
) -> int:
    """Like iperf3 for DLCP: goodput, completion times, CPU a packet, losses, between two ends.

    The ends are on loopback, or with --namespaces on a veth pair that every packet crosses alone, or on two hosts:
    one with --listen (it receives), the other with --connect and the key that the listener shows.

    * CPU a packet, and against pure Python: `dlcp bench transport --namespaces --size 28.8MB --count 10
      --against python`
    * a bound against bound 0 under loss: `dlcp bench transport --namespaces --rate 1Gbit/s --loss 1% --bound 10%
      --stop eager --size 72kB --in-flight 1 --count 1000 --against reliable`
    * an incast of 32: `dlcp bench transport --namespaces --rate 1Gbit/s --senders 32 --count 10`

    Parameters
    ----------
    listen
        ADDRESS[:PORT] of this host to receive at.
    connect
        ADDRESS:PORT of a listener; its key in DLCP_BENCH_KEY or --key-file.
    key_file
        File that holds the key, instead of DLCP_BENCH_KEY.
    once
        With --listen: end after one bench.
    size
        Tensor size, such as "1 MB"; several are sent in turn.
    count
        Messages that each sender sends in a repeat; p99 needs 1000.
    in_flight
        Messages that each sender has under way at once.
    rate
        What each sender paces itself to; of the shared port, where there is one.
    loss
        Share of the packets dropped at random on the way to the receiver (--namespaces).
    loss_back
        The same on the way back: acknowledgements and control.
    bound
        Share of a message's bytes that need not arrive.
    energy_bound
        Share of its energy (the sum of all squares) that need not arrive; both bounds must hold.
    dtype
        Of the tensors.
    stop
        lazy: a message ends after the sender's first pass; eager: as soon as its bound is met.
    congestion_control
        Name of the algorithm.
    selective_drop
        How droppable packets are tagged.
    queue
        Switch queue of the tensors, 0 to 6.
    senders
        N: so many senders share a port to one receiver (--namespaces).
    buffer
        Buffer of the shared port, such as "40 kB"; one bandwidth-delay product, measured, if not given with --senders.
    segmentation
        Hand the kernel bursts (UDP_SEGMENT).
    against
        What runs in turn with it: the same packets moved by pure Python, or the same messages with bound 0.
    """
    from dlcp.bench.options import TransportOptions, quantity
    from dlcp.model import units

    if listen is not None and connect is not None:
        raise Problem("--listen, --connect", "a host is one end", "give --listen on one host, --connect on the other")
    if listen is not None:
        from dlcp.bench.hosts import listen as serve

        return serve(listen, key_file, _say, once=once)
    options = TransportOptions(
        sizes_bytes=tuple(quantity("--size", units.parse_size_bytes, text) for text in size or ["1 MB"]),
        count=count,
        in_flight=in_flight,
        rate_bps=quantity("--rate", units.parse_rate_bps, rate),
        loss=quantity("--loss", units.parse_fraction, loss),
        loss_back=quantity("--loss-back", units.parse_fraction, loss_back),
        bound=quantity("--bound", units.parse_fraction, bound),
        energy_bound=quantity("--energy-bound", units.parse_fraction, energy_bound),
        dtype=dtype,
        stop=stop,
        congestion_control=congestion_control,
        selective_drop=selective_drop,
        queue=queue,
        senders=senders,
        buffer_bytes=quantity("--buffer", units.parse_size_bytes, buffer) if buffer is not None else 0,
        shaped=buffer is not None,
        segmentation=segmentation,
        repeats=repeats,
        against=against,
        namespaces=namespaces,
    )
    if connect is not None:
        from dlcp.bench.hosts import connect as run_against

        found = run_against(connect, key_file, options, _say)
    else:
        from dlcp.bench.transport import bench as run_here

        found = run_here(options, _say)
    return _show_bench(found, json=json)


@bench.command
def allreduce(
    *,
    ranks: int = 4,
    size: str = "25 MiB",
    count: int = 10,
    namespaces: Namespaces = False,
    loss: str = "0 %",
    bound: str = "0 %",
    rate: str = "40 Gbit/s",
    congestion_control: str = "timely",
    repeats: Repeats = 5,
    json: Json = False,
) -> int:
    """All-reduce of float32 over DLCP and over gloo, in turn in the same processes: wall time, CPU, tail.

    * on loopback: `dlcp bench allreduce`
    * around a bridge, every packet alone: `dlcp bench allreduce --namespaces`
    * with a lossy link: `dlcp bench allreduce --namespaces --loss 0.1% --bound 1% --count 100 --repeats 10`

    Parameters
    ----------
    ranks
        Processes, each one rank.
    size
        Data of each rank.
    count
        All-reduces in a repeat; p99 is of all repeats together and needs 1000.
    loss
        Share of the packets that rank 0's link drops at random, in each direction (--namespaces).
    bound
        Share of the bytes that a whole all-reduce may lose.
    rate
        What each rank paces itself to over DLCP.
    congestion_control
        DLCP's algorithm.
    """
    from dlcp.bench.allreduce import AllReduceOptions
    from dlcp.bench.allreduce import bench as run_here
    from dlcp.bench.options import quantity
    from dlcp.model import units

    options = AllReduceOptions(
        ranks=ranks,
        size_bytes=quantity("--size", units.parse_size_bytes, size),
        count=count,
        repeats=repeats,
        loss=quantity("--loss", units.parse_fraction, loss),
        bound=quantity("--bound", units.parse_fraction, bound),
        rate_bps=quantity("--rate", units.parse_rate_bps, rate),
        congestion_control=congestion_control,
        namespaces=namespaces,
    )
    return _show_bench(run_here(options, _say), json=json)


@bench.command
def tagging(
    *,
    size: str = "100 MB",
    metric: Literal["mean", "l2", "max"] = "mean",
    rounds: int = 5,
    repeats: Repeats = 5,
    json: Json = False,
) -> int:
    """Measure, classify and sort the packets of float32 gradients: the C core, numpy and torch in turn.

    Their floor is one read pass over the same bytes; a memcpy stands beside it. One thread each.

    Parameters
    ----------
    size
        Of the gradients, one tensor.
    metric
        What makes a packet small or large: mean |g|, L2 norm, or largest |g|.
    rounds
        Timed in each repeat; the quickest counts.
    """
    from dlcp.bench.options import quantity
    from dlcp.bench.tagging import TaggingOptions
    from dlcp.bench.tagging import bench as run_here
    from dlcp.model import units

    size_bytes = quantity("--size", units.parse_size_bytes, size)
    return _show_bench(run_here(TaggingOptions(size_bytes, metric, rounds, repeats), _say), json=json)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _show_bench(found: dict[str, object], *, json: bool) -> int:
    from dlcp import screen

    (screen.print_json if json else screen.print_bench)(found)
    return ExitCode.FINE


def main() -> None:
    """Entry point: runs the command in sys.argv and exits with its code."""
    sys.exit(_dispatch(sys.argv[1:]))


def _dispatch(arguments: list[str]) -> int:
    """Parse and call; problems are printed, and become the exit code that DESIGN names."""
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
        what = (error.strerror or "cannot be written").lower()
        return _explain([MachineCannot(str(error.filename or "writing"), what, _FILE_TROUBLE[error.errno])])
    except KeyboardInterrupt:
        print("interrupted: finished runs are kept; the same command goes on from there", file=sys.stderr)
        return ExitCode.INTERRUPTED


def _explain(problems: list[Problem]) -> int:
    """Print problems; returns the exit code that they make."""
    from dlcp import screen

    screen.print_problems(problems)
    return max(problem.exit_code for problem in problems)


def _report(
    results: Path,
    out: Path | None,
    *,
    only: frozenset[str] | None = None,
    expect: tuple[Expectation, ...] | None = None,
    json: bool = False,
) -> int:
    from dlcp import screen

    try:
        from dlcp.report import report as make_report
    except ModuleNotFoundError as error:
        raise MachineCannot("dlcp report", f"needs {error.name}", install_command("report")) from error
    summary = make_report(results, out, None if json else screen.console(), only=only, expect=expect)
    if json:
        screen.print_json(vars(summary) | {"outcomes": [vars(outcome) for outcome in summary.outcomes]})
    return summary.exit_code


if __name__ == "__main__":
    main()
