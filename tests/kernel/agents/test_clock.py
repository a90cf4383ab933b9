"""Real-time priority, as it is given and as it is refused."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dlcp.agents.precise_waits import put_ahead
from dlcp.errors import MachineCannot


def refused(*_: object) -> None:
    raise PermissionError(1, "Operation not permitted")


def test_a_refusal_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_setscheduler", refused)
    with pytest.raises(MachineCannot, match="real-time priority: the kernel refuses it") as raised:
        put_ahead(0)
    assert "--privileged" in raised.value.hint


@pytest.mark.skipif(os.geteuid() != 0, reason="real-time priority is root's; run as root")
def test_a_thread_goes_ahead_alone() -> None:
    found: list[int] = []

    def work() -> None:
        put_ahead(0)
        found.append(os.sched_getscheduler(0))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [os.SCHED_RR | os.SCHED_RESET_ON_FORK]
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_turns_are_short_in_threads_too() -> None:
    """The kernel tells the slice, ns, of every thread."""
    told = Path("/proc/self/sched")
    if tuple(map(int, platform.release().split(".")[:2])) < (6, 12) or not told.exists():
        pytest.skip("slices of a process's own came with Linux 6.12; run there, with CONFIG_SCHED_DEBUG")
    script = (
        "import threading, pathlib; from dlcp.agents.precise_waits import take_short_turns; take_short_turns();"
        "show = lambda: print(pathlib.Path('/proc/thread-self/sched').read_text());"
        "thread = threading.Thread(target=show); thread.start(); thread.join(); show()"
    )
    output = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert re.findall(r"se\.slice\s*:\s*(\d+)", output) == ["500000"] * 2
