"""State of experiments: per scheme and job, how many of the repeats are finished, failed or suspect."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlcp.errors import Problem
from dlcp.model.result import RunResult, no_results
from dlcp.model.scaling import JobRegimes
from dlcp.runner.running.store import Invalid, Store, stores


@dataclass
class Row:
    """One job under one scheme. repeats: how many are planned. reasons: status and reason of each that is not ok."""

    job: str
    label: str
    repeats: int
    counts: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """Repeats without any result."""
        return max(0, self.repeats - sum(self.counts.values()))


@dataclass(frozen=True)
class ExperimentStatus:
    """older: results of an earlier version of the experiment, or whose scale or buffers differ from
    those of their job's newest result. unfinished: .tmp folders. running: one is being made."""

    experiment: str
    folder: Path
    rows: tuple[Row, ...]
    older: int
    invalid: tuple[Invalid, ...]
    unfinished: int
    running: bool


def status(results: Path) -> list[ExperimentStatus]:
    """State of every experiment under results/, or of one results/<experiment>. Problem when there is none."""
    if not results.is_dir():
        raise no_results(results)
    all_stores = stores(results)
    if not all_stores and (store := Store(results.parent, results.name)) and (store.finished() or store.unfinished()):
        all_stores = [store]
    if not all_stores:
        raise Problem(str(results), "no run here", "make one with: dlcp run EXPERIMENT")
    return [_experiment(store) for store in all_stores]


def _experiment(store: Store) -> ExperimentStatus:
    results, invalid = store.load()
    newest_first = sorted(results.values(), key=lambda result: _made_at(store, result), reverse=True)
    current: dict[tuple[str, str, int], RunResult] = {}
    regimes = JobRegimes()
    for result in newest_first:
        if regimes.add(result.job, result.regime):
            continue
        current.setdefault((result.job, result.label, result.repeat), result)
    planned: dict[str, Any] = newest_first[0].run.get("planned", {}) if newest_first else {}
    rows = {
        (job, label): Row(job, label, planned.get("repeats", 0))
        for job in planned.get("jobs", ())
        for label in planned.get("labels", ())
    }
    for (job, label, repeat), result in sorted(current.items()):
        row = rows.setdefault((job, label), Row(job, label, 0))
        row.counts[result.status] = row.counts.get(result.status, 0) + 1
        if result.reason:
            row.reasons.append(f"repeat {repeat + 1} {result.status}: {result.reason}")
    older = len(results) - len(current)
    shown = tuple(rows.values())
    return ExperimentStatus(
        store.folder.name, store.folder, shown, older, tuple(invalid), len(store.unfinished()), store.in_use()
    )


def _made_at(store: Store, result: RunResult) -> tuple[str, int]:
    return result.made_at(store.folder / result.run_id)
