"""End Ansible whole when a person interrupts: its workers live in sessions of their own, and would go on."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from dlcp.isolation.process_tree import descendants, parents

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible(playbook: Path) -> Iterator[Callable[[], bool]]:
    """For the time of the block SIGINT and SIGTERM do not end this process but the playbook that it runs.

    Gives a function that ansible-runner is to ask: whether it was interrupted; the first time, Ansible is ended. Only
    the main thread hears signals: in another one the answer is always no.
    """
    asked = threading.Event()

    def hear(number: int, frame: FrameType | None) -> None:
        asked.set()

    def interrupted() -> bool:
        if asked.is_set():
            _end(playbook)
        return asked.is_set()

    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = {number: signal.signal(number, hear) for number in _SIGNALS}
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(playbook: Path) -> None:
    """Kill this process's own ansible-playbook with all that it has started; stopped, it starts no more."""
    for pid in [pid for pid, parent in parents().items() if parent == os.getpid() and _runs(pid, playbook)]:
        _send(pid, signal.SIGSTOP)
        for child in descendants(pid):
            _send(child, signal.SIGKILL)
        _send(pid, signal.SIGKILL)


def _runs(pid: int, playbook: Path) -> bool:
    try:
        return str(playbook).encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
