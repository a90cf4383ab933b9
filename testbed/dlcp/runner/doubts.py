"""The last words when runs are over and not all can be believed: what happened, what stands, what to do."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from dlcp.model.loading.check_experiment import MIN_REPEATS
from dlcp.model.result import RunResult
from dlcp.runner.planning.estimate import estimate
from dlcp.runner.preview.outline import Outline
from dlcp.runner.running.execute import MORE_CHANCES, missing
from dlcp.runner.running.store import Store
from dlcp.substrates.registry import traits_of


def doubts(outline: Outline, results: Path, experiment: str) -> list[str]:
    """The lines, for a plan whose runs are made. experiment: as the person named it."""
    plan = outline.plan
    had, _ = Store(results, plan.ready.experiment.name).load()
    stored = {run_id: result for run_id, result in had.items() if run_id in plan.run_ids}
    suspect = [result for result in stored.values() if result.status == "suspect"]
    if not suspect:
        return [
            "All runs are believed, but not all that the experiment expects of them holds: see ✗ above. That is a "
            "result, about the schemes or of luck in a close case; nothing failed to run (exit code 4)."
        ]
    repeated = missing(plan, had, retry_suspect=True)
    minutes = max(1, round(estimate(plan, repeated, had).seconds / 60))
    command = ["dlcp", "run", experiment, "--retry-suspect"]
    if results != Path("results"):
        command += ["--results", str(results)]
    words = (
        f"`{shlex.join(command)}`" if traits_of(plan.substrate).emulates else "the same command with --retry-suspect"
    )
    return [
        f"{len(suspect)} of {len(stored)} runs cannot be believed (exit code 4): the machine was too busy while they "
        f"ran, which looks like a slow network. Each was made up to {MORE_CHANCES + 1} times.",
        *_not_believed(suspect),
        f"The other {len(stored) - len(suspect)} runs stand, and all figures above are of them alone. "
        f"{_standing(stored)}",
        f"What to do: when nothing else runs on this machine, {words} makes those {len(repeated)} again, in about "
        f"{minutes} min. If they stay suspect, the load is too much for it: `dlcp doctor --calibrate` measures what it "
        "carries.",
    ]


def _not_believed(suspect: Iterable[RunResult]) -> list[str]:
    """A line for each job and scheme: its repeats, and what their monitors said."""
    cells: dict[tuple[str, str], list[RunResult]] = {}
    for result in sorted(suspect, key=lambda one: one.repeat):
        cells.setdefault((result.job, result.label), []).append(result)
    lines = []
    for (job, label), runs in cells.items():
        repeats = ", ".join(str(run.repeat + 1) for run in runs)
        reasons = dict.fromkeys(
            f"{name} up to {max(values):.3g} where {bound:.3g} is the bound"
            for name, (bound, values) in _out_of_bounds(runs).items()
        )
        lines.append(f"  not believed: {job} over {label}, repeat {repeats}: {'; '.join(reasons) or runs[0].reason}")
    return lines


def _out_of_bounds(runs: Iterable[RunResult]) -> dict[str, tuple[float, list[float]]]:
    """Monitor → its bound, and the values that left it."""
    left: dict[str, tuple[float, list[float]]] = {}
    for run in runs:
        for name, monitor in run.fidelity.items():
            if not monitor["ok"]:
                left.setdefault(name, (monitor["bound"], []))[1].append(monitor["value"])
    return left


def _standing(mine: dict[str, RunResult]) -> str:
    """Name the jobs and schemes that have enough believed runs to be compared."""
    believed = Counter((result.job, result.label) for result in mine.values() if result.status == "ok")
    cells = dict.fromkeys((result.job, result.label) for result in mine.values())
    short = [
        f"{job} over {label} ({believed[job, label]})" for job, label in cells if believed[job, label] < MIN_REPEATS
    ]
    if not short:
        return "Every scheme has enough of them for its intervals."
    return f"Too few for an interval, which takes {MIN_REPEATS}: {', '.join(short)}."
