"""`kill -9` at any instant: a run is stored whole or not at all, and the next run removes what was left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WRITER = Path(__file__).with_name("writer.py")
FIRST, SECOND = "aaaaaaaaaaa1", "aaaaaaaaaaa2"


@pytest.fixture(scope="module")
def deaths(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What was left by a writer killed at its 1st, 2nd, 3rd … touch of the file system, until one came through."""
    root = tmp_path_factory.mktemp("deaths")
    done = subprocess.run(
        [sys.executable, str(WRITER), str(root), "1", "1"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_instant_was_tried(deaths: list[dict[str, Any]]) -> None:
    assert [one["event"] for one in deaths] == list(range(1, len(deaths) + 1))
    assert all(os.WTERMSIG(one["status"]) == signal.SIGKILL for one in deaths[:-1])
    assert deaths[-1]["status"] == 0
    assert len(deaths) > 30


def test_a_finished_run_is_whole(deaths: list[dict[str, Any]]) -> None:
    """Reading each in full is done by the writer, which fails when one is not; here: only known states occur."""
    for one in deaths:
        assert one["killed"]["finished"].get(FIRST, "ok") == "ok"
        assert one["killed"]["finished"].get(SECOND, "failed") in ("ok", "failed")
    assert deaths[-1]["killed"] == {"finished": {FIRST: "ok", SECOND: "ok"}, "unfinished": []}


def test_runs_that_were_finished_stay(deaths: list[dict[str, Any]]) -> None:
    since_first = [FIRST in one["killed"]["finished"] for one in deaths]
    assert since_first == sorted(since_first)
    assert not since_first[0]


def test_something_was_left_and_the_next_owner_removes_it(deaths: list[dict[str, Any]]) -> None:
    assert sum(bool(one["killed"]["unfinished"]) for one in deaths) > 20
    for one in deaths:
        assert one["next"] == {"finished": one["killed"]["finished"], "unfinished": []}


def test_an_owner_that_is_killed_gives_the_lock_back(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from dlcp.runner.running.store import Store\n"
        "with Store(Path(sys.argv[1]), 'e').locked():\n"
        "    Store(Path(sys.argv[1]), 'e').begin('aaaaaaaaaaa1'); print('locked', flush=True); time.sleep(60)"
    )
    from dlcp.errors import Problem
    from dlcp.runner.running.store import Store

    store = Store(tmp_path, "e")
    owner = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "locked\n"
        assert store.in_use()
        with pytest.raises(Problem, match="another dlcp"), store.locked():
            pass
        assert len(store.unfinished()) == 1
    finally:
        owner.kill()
        owner.wait()
        if owner.stdout is not None:
            owner.stdout.close()
    assert not store.in_use()
    with store.locked():
        assert store.unfinished() == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "not readable as JSON"),
        ('{"format_version": 1', "not readable as JSON"),
        ("[" * 100_000, "nested deeper than 64 levels: line 1 column 65"),
        ("[]", "names no format_version"),
        ('{"format_version": true}', "names no format_version"),
        ('{"format_version": 99}', "written in format 99"),
        ('{"format_version": 1}', "run_id"),
    ],
)
def test_only_a_valid_result_counts(tmp_path: Path, content: str, why: str) -> None:
    from dlcp.runner.running.store import Store

    path = tmp_path / "e" / FIRST
    path.mkdir(parents=True)
    (path / "result.json").write_text(content)
    results, invalid = Store(tmp_path, "e").load()
    assert results == {}
    assert [one.path for one in invalid] == [path]
    assert why in invalid[0].why
