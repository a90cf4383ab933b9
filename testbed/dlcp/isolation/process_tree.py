"""Parents, ancestors and descendants of processes, read from /proc."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

PARENT, BORN = 1, 19
"""Fields of `stat_of`: the parent's number, and clock ticks since boot when the process began."""


def stat_of(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third on (proc(5)); the name before may hold blanks. None = it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def parents() -> dict[int, int]:
    """Every process → its parent."""
    parent_of = {}
    for path in Path("/proc").iterdir():
        with suppress(ValueError):  # its name is no number
            pid = int(path.name)
            if (stat := stat_of(pid)) is not None:
                parent_of[pid] = int(stat[PARENT])
    return parent_of


def ancestors(pid: int) -> set[int]:
    """Its parent, that one's parent, and so on."""
    pids: set[int] = set()
    while (stat := stat_of(pid)) is not None and (pid := int(stat[PARENT])) > 0:
        pids.add(pid)
    return pids


def descendants(pid: int) -> set[int]:
    """Its children, theirs, and so on."""
    of, pids, last = parents(), set[int](), {pid}
    while last:
        last = {pid for pid, parent in of.items() if parent in last}
        pids |= last
    return pids
