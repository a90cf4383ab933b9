"""Runs what is missing of a plan. A failed run becomes a result; the others go on."""

from __future__ import annotations

import shutil
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from dlcp.errors import ExitCode, MachineCannot, Problem, Problems
from dlcp.model.base import OnProgress
from dlcp.model.result import RunResult
from dlcp.model.run import Run
from dlcp.runner.planning.check import tune_command
from dlcp.runner.planning.plan import Cell, Plan
from dlcp.runner.planning.search_answers import Wanted
from dlcp.runner.running.store import Store, wrong_tables
from dlcp.schemes import scheme_class
from dlcp.substrates import provenance
from dlcp.substrates.base import ManyAtOnce, Substrate
from dlcp.substrates.registry import open_substrate

MORE_CHANCES = 2
"""How often a run that its monitors suspect is made again, after all others. The monitors decide, not the outcome: a
busy machine spoils fast and slow runs alike. Every result tells which attempt it is."""


class Listener(Protocol):
    """Who is told while runs are made, by several threads where several are made at a time."""

    def again(self, count: int) -> None:
        """So many runs are suspect and will be made again."""

    def begins(self, number: int, total: int, run: Run) -> OnProgress:
        """Run `number` of `total` (from 1) begins; the returned function is told its progress."""

    def ends(self, number: int, total: int, run: Run, result: RunResult, took_s: float) -> None:
        """It is over, well or not."""


@dataclass(frozen=True)
class Execution:
    """statuses: of all runs of the plan, made now or before. made, kept: how many of them which."""

    statuses: dict[str, int]
    made: int
    kept: int

    @property
    def trusted(self) -> bool:
        """Whether there is a run to compare: finished, and not suspected by its own monitors."""
        return bool(self.statuses.get("ok"))

    @property
    def exit_code(self) -> ExitCode:
        """RUN_FAILED with any failed run, SUSPECT with any suspect one."""
        if self.statuses.get("failed"):
            return ExitCode.RUN_FAILED
        return ExitCode.SUSPECT if self.statuses.get("suspect") else ExitCode.FINE


def missing(plan: Plan, results: dict[str, RunResult], *, retry_suspect: bool = False) -> list[Cell]:
    """The cells that have no result that counts: none at all, a failed one or (if asked) a suspect one."""
    again = {"failed", "suspect"} if retry_suspect else {"failed"}
    return [cell for cell in plan.cells if cell.run.id not in results or results[cell.run.id].status in again]


def execute(
    plan: Plan,
    results: Path,
    listener: Listener,
    *,
    retry_suspect: bool = False,
    substrate: AbstractContextManager[Substrate] | None = None,
) -> Execution:
    """Make the missing runs of a plan, in its order, under results/<experiment>/.

    substrate: where; if it is not given, the plan's, of its file alone.
    Problem when another process makes runs there; MachineCannot when this machine cannot run the plan at all.
    A KeyboardInterrupt leaves all finished runs and nothing else.
    """
    require_tuned(plan)
    store = Store(results, plan.ready.experiment.name)
    with store.locked():
        had, _ = store.load()
        todo = missing(plan, had, retry_suspect=retry_suspect)
        made: dict[str, RunResult] = {}
        if todo:
            with substrate or open_substrate(plan.substrate) as opened:
                for attempt in range(1, MORE_CHANCES + 2):
                    if attempt > 1 and todo:
                        listener.again(len(todo))
                    _make_all(plan, todo, attempt, made, store, opened, listener)
                    todo = [cell for cell in todo if made[cell.run.id].status == "suspect"]
    final = had | made
    statuses = Counter(str(final[cell.run.id].status) for cell in plan.cells)
    return Execution(dict(statuses), len(made), len(plan.cells) - len(made))


def require_tuned(plan: Plan) -> None:
    """Raise Problems with every search of `untuned`."""
    if lacking := untuned(plan):
        command = tune_command(plan.ready.path)
        raise Problems([Problem(f"{one.choice.label}, job {one.job}", why, command) for one, why in lacking])


def untuned(plan: Plan) -> list[tuple[Wanted, str]]:
    """Every search that the plan's runs need the outcome of and the record does not have, and why it has not."""
    needed = {(cell.run.scheme.label, cell.run.job_name) for cell in plan.cells}
    needed |= {(one.scheme.label, one.job_name) for cell in plan.cells for one in cell.run.tenants}
    return [(one, why) for one, why in plan.ready.untuned if (one.choice.label, one.job) in needed]


def _make_all(
    plan: Plan,
    todo: list[Cell],
    attempt: int,
    made: dict[str, RunResult],
    store: Store,
    substrate: Substrate,
    listener: Listener,
) -> None:
    """Make the runs in order, each a result in `made`, by id; several at a time where none disturbs another."""

    def make(number: int, cell: Cell) -> None:
        begun_s = time.monotonic()
        on_progress = listener.begins(number, len(todo), cell.run)
        result = made[cell.run.id] = _make(plan, cell, attempt, store, substrate, on_progress)
        listener.ends(number, len(todo), cell.run, result, time.monotonic() - begun_s)

    if not isinstance(substrate, ManyAtOnce):
        for number, cell in enumerate(todo, 1):
            make(number, cell)
        return
    with ThreadPoolExecutor(substrate.at_once) as threads:
        waiting = [threads.submit(make, number, cell) for number, cell in enumerate(todo, 1)]
        try:
            for one in as_completed(waiting):
                one.result()
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            substrate.stop()
            raise


def _make(
    plan: Plan, cell: Cell, attempt: int, store: Store, substrate: Substrate, on_progress: OnProgress
) -> RunResult:
    """One run, from an empty folder to a stored result."""
    directory = store.begin(cell.run.id)
    try:
        result = outcome(cell, directory, substrate, on_progress)
        _complete(plan, cell, attempt, result)
        wrong = wrong_tables(directory, result)
        if wrong:
            result.status, result.reason = "failed", f"the run left wrong tables: {'; '.join(wrong.values())}"
            for name in wrong_tables(directory, result):
                (directory / f"{name}.parquet").rename(directory / f"{name}.parquet.wrong")
        store.finish(result)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return result


def outcome(cell: Cell, directory: Path, substrate: Substrate, on_progress: OnProgress) -> RunResult:
    """The result of one run, of which `directory` gets the tables; one that failed in any way is a result, too, but for
    MachineCannot and Problems, which no other run would escape."""
    try:
        return substrate.run(cell.run, directory, on_progress)
    except (MachineCannot, Problems):  # Problems: of a lab that is not what the run needs
        raise
    except Problem as problem:
        return _failed(cell, str(problem))
    except Exception as error:
        (directory / "traceback.txt").write_text(traceback.format_exc(), encoding="utf-8")
        return _failed(cell, f"{type(error).__name__}: {error} (see traceback.txt beside this result)")


def _failed(cell: Cell, reason: str) -> RunResult:
    run = cell.run
    return RunResult(
        run_id=run.id,
        experiment=run.experiment.name,
        scheme=run.scheme.scheme,
        is_dlcp=scheme_class(run.scheme.scheme).is_dlcp,
        label=run.scheme.label,
        job=run.job_name,
        repeat=run.repeat,
        seed=run.seed,
        substrate=run.substrate,
        status="failed",
        reason=reason,
        knobs=cell.definition["knobs"],
        provenance=provenance.collect(run.seed),
    )


def _complete(plan: Plan, cell: Cell, attempt: int, result: RunResult) -> None:
    """Add what only the plan knows: what the run's id is the hash of, and of what it is a part."""
    experiment = plan.ready.experiment
    planned: dict[str, Any] = {
        "repeats": experiment.repeats,
        "jobs": list(experiment.jobs),
        "labels": [choice.label for choice in experiment.schemes],
        "unsupported": [asdict(one) for one in plan.unsupported],
    }
    search = plan.ready.searches.get((cell.run.scheme.label, cell.run.job_name))
    result.tuning = {} if search is None else search.model_dump(mode="json")
    result.run = result.run | {"definition": cell.definition, "planned": planned, "attempt": attempt}
    result.expect = [line.model_dump(mode="json") for line in experiment.expect]
