"""One at a time may change a fabric or measure on it: a file that names the living process which has it.

A process that dies gives the fabric back by dying: nothing needs to be cleaned up. What a process starts may use what
it has: a run deploys, and the deployment finds the run's lock and goes on.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from dlcp.errors import MachineCannot
from dlcp.files.json_text import parse_json
from dlcp.isolation.process_tree import BORN, ancestors, stat_of

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Holder:
    """Who has a fabric. born: clock ticks since boot when the process began: its number may be used again."""

    pid: int
    born: int
    boot: str
    machine: str
    who: str
    what: str
    since: str


def take(path: Path, what: str, *, pid: int | None = None) -> None:
    """Have the fabric for a process (this one by default) until it releases it or ends.

    what: for whoever is refused: "deploying dlcp-wred". Raises MachineCannot when another living process has it, or a
    process of another machine, of which nobody here can say whether it lives.
    """
    pid = pid or os.getpid()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        holder = _read(path)
        if holder is not None and holder.pid != pid:
            if _is_of_another_machine(holder):
                hint = f"if it is over: rm {path}"
                raise MachineCannot(str(path), f"{_told(holder)} on {holder.machine} has the fabric", hint)
            if _lives(holder):
                if holder.pid in ancestors(pid):
                    return
                hint = "wait until it is over; a process that has ended holds nothing"
                raise MachineCannot(str(path), f"{_told(holder)} has the fabric", hint)
        file.truncate(0)
        file.write(json.dumps(asdict(_holder(pid, what))) + "\n")


def release(path: Path, *, pid: int | None = None) -> None:
    """Give the fabric back, if it is this process's."""
    holder = _read(path)
    if holder is not None and holder.pid == (pid or os.getpid()):
        path.write_text("", encoding="utf-8")


@contextmanager
def held(path: Path, what: str) -> Iterator[None]:
    """Have the fabric for a block; a block within another of this process gives nothing back. Raises as take does."""
    holder = _read(path)
    if holder is not None and holder == replace(_holder(os.getpid(), holder.what), since=holder.since):
        yield
        return
    take(path, what)
    try:
        yield
    finally:
        release(path)


def _holder(pid: int, what: str) -> Holder:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Holder(pid, _born(pid) or 0, _boot(), platform.node(), getpass.getuser(), what, now)


def _read(path: Path) -> Holder | None:
    try:
        said = parse_json(path.read_text(encoding="utf-8"))
        return Holder(**said)
    except (OSError, ValueError, TypeError):
        return None


def _told(holder: Holder) -> str:
    return f"{holder.what} (process {holder.pid} of {holder.who}, since {holder.since})"


def _is_of_another_machine(holder: Holder) -> bool:
    """Another boot of this machine is this machine: its processes are all over."""
    return holder.machine != platform.node()


def _lives(holder: Holder) -> bool:
    return holder.boot == _boot() and _born(holder.pid) == holder.born


def _boot() -> str:
    return _BOOT_ID.read_text(encoding="ascii").strip()


def _born(pid: int) -> int | None:
    stat = stat_of(pid)
    return int(stat[BORN]) if stat and stat[0] not in "ZX" else None
