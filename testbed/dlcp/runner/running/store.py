"""Result directories: results/<experiment>/<run-id>/, whole or not there at all.

A run is written to <run-id>.tmp/. When it is over, result.json is written last, everything is synced to disk and the
folder gets its name by a rename. So a kill at any instant leaves at most a .tmp folder, which the next run removes.
The experiment's folder itself is locked (flock) while runs are made in it; the kernel drops the lock of a dead owner.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dlcp.errors import Problem
from dlcp.files.atomic_file import remove_entry, sync
from dlcp.model.loading.stored_result import damaged_tables, read_result, record_tables
from dlcp.model.result import RESULT_FILE, TABLE_SINCE, TABLES, RunResult
from dlcp.model.tables import check_table, table_path

UNFINISHED = ".tmp"
_RUN = re.compile(r"[0-9a-f]{12}")
_UNFINISHED_RUN = re.compile(rf"{_RUN.pattern}(\.replaced)?\.tmp")
REPORT_FILES = ("report.html", "report-*.csv", "report-*.parquet")
"""Files that `dlcp report` writes into the folder of the runs."""
FINISHED_STATUSES = ("ok", "suspect")
"""Statuses of runs that carry measurements; all their tables must be there."""
TRAINING_TABLE = "training"
"""The one table that only real training jobs have."""


@dataclass(frozen=True)
class Invalid:
    """A folder that is not a result, and why."""

    path: Path
    why: str


class Store:
    """The result directories of one experiment."""

    def __init__(self, results: Path, experiment: str) -> None:
        self.folder = results / experiment

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Own the folder: make it, lock it, remove what killed runs left. Problem when another process owns it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if not _try_lock(descriptor):
                raise Problem(str(self.folder), "another dlcp is making runs here", "wait for it, or use --results")
            for stale in self.unfinished():
                remove_entry(stale)
            yield
        finally:
            os.close(descriptor)

    def in_use(self) -> bool:
        """True if a live process owns the folder."""
        if not self.folder.is_dir():
            return False
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return not _try_lock(descriptor)
        finally:
            os.close(descriptor)

    def unfinished(self) -> list[Path]:
        """Folders of runs that are being made, or were when their owner was killed; and links or files in their
        place."""
        return sorted(path for path in self.folder.glob(f"*{UNFINISHED}") if _UNFINISHED_RUN.fullmatch(path.name))

    def finished(self) -> list[Path]:
        """Folders of runs that have their final name, valid or not."""
        return sorted(path for path in self.folder.glob("*") if path.is_dir() and _RUN.fullmatch(path.name))

    def reports(self) -> list[Path]:
        """Files of `dlcp report`."""
        return sorted(path for pattern in REPORT_FILES for path in self.folder.glob(pattern))

    def load(self) -> tuple[dict[str, RunResult], list[Invalid]]:
        """All valid results by run id, and the folders that hold none."""
        results: dict[str, RunResult] = {}
        invalid: list[Invalid] = []
        for path in self.finished():
            try:
                results[path.name] = load_result(path)
            except Problem as problem:
                invalid.append(Invalid(path, problem.what))
        return results, invalid

    def begin(self, run_id: str) -> Path:
        """An empty folder to write a run's tables to."""
        path = self.folder / (run_id + UNFINISHED)
        path.mkdir()
        return path

    def finish(self, result: RunResult) -> Path:
        """Make the folder that `begin` gave a result: check and record its tables, write result.json, sync, rename.

        A result of the same id that is there already (a failed try) is replaced. Problem when a table is wrong;
        the folder then stays unfinished.
        """
        unfinished = self.folder / (result.run_id + UNFINISHED)
        wrong = wrong_tables(unfinished, result)
        if wrong:
            raise Problem(str(unfinished), f"the run left wrong tables: {'; '.join(wrong.values())}")
        result.tables = record_tables(unfinished)
        (unfinished / RESULT_FILE).write_text(result.model_dump_json(indent=2) + "\n", encoding="utf-8")
        for path in (*unfinished.rglob("*"), unfinished):
            sync(path)
        final = self.folder / result.run_id
        if os.path.lexists(final):
            replaced = self.folder / f"{result.run_id}.replaced{UNFINISHED}"
            final.rename(replaced)
            unfinished.rename(final)
            remove_entry(replaced)
        else:
            unfinished.rename(final)
        sync(self.folder)
        return final


def load_result(path: Path) -> RunResult:
    """Return the result in a run's folder. Problem when there is none, it is not valid or of a newer format, or a table
    is not as the run left it."""
    result = read_result(path)
    if result.run_id != path.name:
        raise Problem(str(path / RESULT_FILE), f"is the result of run {result.run_id}, in the folder of another")
    problems = [f"{name}.parquet is missing" for name in _due(result) if not table_path(path, name).exists()]
    if damaged := [*problems, *damaged_tables(path, result).values()]:
        raise Problem(str(path), "; ".join(dict.fromkeys(damaged)))
    return result


def wrong_tables(path: Path, result: RunResult) -> dict[str, str]:
    """Return each table of a run that is to be stored and what is wrong with it: missing, unreadable, wrong columns or
    types."""
    due = _due(result)
    names = [name for name in TABLES if name in due or table_path(path, name).exists()]
    return {name: problem for name in names if (problem := check_table(path, name))}


def _due(result: RunResult) -> set[str]:
    """The tables that a run must have. A failed run may lack any, and an older one those that came later."""
    if result.status not in FINISHED_STATUSES:
        return set()
    return {name for name in TABLES if name != TRAINING_TABLE and TABLE_SINCE.get(name, 1) <= result.format_version}


def stores(results: Path) -> list[Store]:
    """The experiments of a results folder: its subfolders that hold at least one run, finished or not."""
    names = sorted(path.name for path in results.iterdir() if path.is_dir()) if results.is_dir() else []
    all_stores = [Store(results, name) for name in names]
    return [store for store in all_stores if store.finished() or store.unfinished()]


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
