"""Stores runs, and dies by SIGKILL at the N-th thing that it does to the file system. For test_store.py.

Usage: writer.py RESULTS FIRST STEP. Forks one child after the other, which dies at event FIRST, FIRST + STEP, … until
one reaches its end; prints, for each, the event and what it left: one JSON object a line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from dlcp.model.result import TABLES, RunResult
from dlcp.model.tables import check_table, write_rows
from dlcp.runner.running.store import Store, load_result

EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir", "shutil.rmtree"}
RUNS = ("aaaaaaaaaaa1", "aaaaaaaaaaa2")
FAILED_BEFORE = RUNS[1]


def result(run_id: str, status: Any) -> RunResult:
    return RunResult(
        run_id=run_id,
        experiment="e",
        scheme="tcp",
        is_dlcp=False,
        label="TCP",
        job="j",
        repeat=0,
        seed=1,
        substrate="emulate",
        status=status,
    )


def store_run(store: Store, run_id: str, status: Any) -> None:
    directory = store.begin(run_id)
    for table in TABLES:
        write_rows(directory, table, [])
    store.finish(result(run_id, status))


def store_all(results: Path) -> None:
    """Two runs; the second replaces an earlier failure."""
    store = Store(results, "e")
    with store.locked():
        for run_id in RUNS:
            store_run(store, run_id, "ok")


def die_at(event: int, results: Path) -> None:
    """From here on, count what touches the results, and die at the given event."""
    seen = 0

    def watch(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if name in EVENTS and arguments and str(arguments[0]).startswith(str(results)):
            seen += 1
            if seen == event:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def left(results: Path) -> dict[str, Any]:
    """Folders by kind; a finished one is read in full, which raises when it is not whole."""
    folder = results / "e"
    names = sorted(path.name for path in folder.iterdir())
    finished = {}
    for name in names:
        if not name.endswith(".tmp"):
            found = load_result(folder / name)
            finished[name] = found.status
            if found.status == "ok":
                assert [check_table(folder / name, table) for table in TABLES] == [""] * len(TABLES), name
    return {"finished": finished, "unfinished": [name for name in names if name.endswith(".tmp")]}


def main(root: Path, first: int, step: int) -> None:
    event = first
    while True:
        results = root / f"event{event}"
        store = Store(results, "e")
        with store.locked():
            store_run(store, FAILED_BEFORE, "failed")
        child = os.fork()
        if child == 0:
            die_at(event, results)
            store_all(results)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        after_kill = left(results)
        with store.locked():
            after_lock = left(results)
        print(json.dumps({"event": event, "status": status, "killed": after_kill, "next": after_lock}), flush=True)
        if not os.WIFSIGNALED(status):
            return
        event += step


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
