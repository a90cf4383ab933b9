"""Tests wait with a limit: a loop that sleeps stands in helpers/waits.py, or it paces what it sends."""

from __future__ import annotations

import ast
from itertools import count
from pathlib import Path

import pytest
from waits import in_time, settled, wait_until

TESTS = Path(__file__).parents[1]
PACED = {
    "helpers/traffic.py": "sends at a rate",
    "kernel/emulate/test_background_kinds.py": "looks whether counters stand still, with a limit",
    "kernel/emulate/test_footprint.py": "sends until it is killed",
    "kernel/emulate/test_theory_wred.py": "looks each millisecond",
    "kernel/engine/test_engine.py": "asks for 0.2 s",
    "kernel/transport/test_tcp_endpoint.py": "connects as soon as there is a listener, with a limit",
    "kernel/transport/test_tcp_scheduling.py": "connects as soon as there is a listener, with a limit",
}
"""File → why its loop sleeps."""


def sleeping_loops(source: str) -> list[int]:
    """Return the lines in `while` loops that call a function `sleep`."""
    loops = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.While)]
    calls = [node for loop in loops for node in ast.walk(loop) if isinstance(node, ast.Call)]
    return [call.lineno for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "sleep"]


def test_loops_that_sleep_are_those_that_are_known() -> None:
    files = {file.relative_to(TESTS).as_posix(): file for file in TESTS.rglob("*.py")}
    found = {name for name, file in files.items() if sleeping_loops(file.read_text(encoding="utf-8"))}
    assert found - {"helpers/waits.py"} == set(PACED), "wait with helpers/waits.py"


def test_the_search_sees_a_loop_that_sleeps() -> None:
    assert sleeping_loops("import time\nwhile not there():\n    time.sleep(1)\ntime.sleep(2)\n") == [3]


def test_in_time__returns_the_last_answer() -> None:
    numbers = count()
    assert in_time(lambda: next(numbers) > 3) is True
    assert next(numbers) == 5
    assert in_time(list, within_s=0.02) == []


def test_wait_until__says_what_was_waited_for() -> None:
    assert wait_until(lambda: "answer", "an answer") == "answer"
    with pytest.raises(AssertionError, match=r"not within 0\.02 s: a miracle"):
        wait_until(lambda: 0, "a miracle", within_s=0.02)


def test_settled__waits_until_the_answer_stays() -> None:
    numbers = iter([3, 2, 1, *[0] * 1000])
    assert settled(lambda: next(numbers), for_s=0.03) == 0
    with pytest.raises(AssertionError, match=r"not the same for 1 s within 0\.05 s"):
        settled(count().__next__, for_s=1, within_s=0.05)
