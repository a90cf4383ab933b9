"""Patterns and their workers read the time from the clock that their rank is given."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from loopback import TCP, ring

import dlcp
from dlcp.transport.aggregation.ring import RingAllReduce
from dlcp.transport.contract.endpoint import TransportError
from dlcp.transport.contract.mailbox import Mailbox
from dlcp.transport.contract.waiting import Patience

ROOT = Path(dlcp.__file__).parent
FILES = [*sorted((ROOT / "patterns").glob("*.py")), *sorted((ROOT / "transport" / "aggregation").rglob("*.py"))]


class Steps:
    """A clock that shows one second more each time that it is read."""

    def __init__(self) -> None:
        self.read = 1000.0

    def now_s(self) -> float:
        self.read += 1
        return self.read

    def thread_s(self) -> float:
        return self.now_s()


def imports_of_time(source: str) -> list[str]:
    """Return the imports, anywhere in a file, of a module that tells the time."""
    modules = {"time", "datetime"}
    imports = []
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        imports += [name for name in names if name.split(".")[0] in modules]
    return imports


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_no_file_of_a_pattern_or_worker_imports_the_time(file: Path) -> None:
    assert imports_of_time(file.read_text(encoding="utf-8")) == []


def test_the_search_sees_imports_of_the_time() -> None:
    source = "def f():\n    import time as t\n    from time import monotonic\n    from datetime import datetime"
    assert imports_of_time(source) == ["time", "time", "datetime"]
    assert len(FILES) > 10


def test_an_all_reduce_begins_at_the_instant_of_its_clock() -> None:
    with ring(TCP, 1) as (endpoint,):
        reducer = RingAllReduce(Mailbox(endpoint, clock=Steps()), 0, 1)
        reducer.declare(0, 8)
        reducer.start(0, 0, np.zeros(8, np.float32))
        (done,) = reducer.wait(1)
    assert (done.start_s, done.end_s) == (1001.0, 1001.0)


def test_patience_is_over_by_its_clock() -> None:
    """Something new comes each time, and no time of this host passes: only the clock ends the wait."""
    waits: list[float] = []

    def progress(timeout_s: float) -> bool:
        waits.append(timeout_s)
        return True

    patience = Patience(60.0, give_up_at_s=1003.0, clock=Steps())
    with pytest.raises(TransportError, match="out of time; waiting for a push"):
        patience.wait_until(lambda: False, progress, lambda: ["a push"])
    assert waits == [2.0, 1.0, 0.0]
