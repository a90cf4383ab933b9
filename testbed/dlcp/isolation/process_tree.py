"""Which process has started which, by /proc."""

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
    found = {}
    for path in Path("/proc").iterdir():
        with suppress(ValueError):  # its name is no number
            pid = int(path.name)
            if (stat := stat_of(pid)) is not None:
                found[pid] = int(stat[PARENT])
    return found


def ancestors(pid: int) -> set[int]:
    """Its parent, that one's parent, and so on."""
    found: set[int] = set()
    while (stat := stat_of(pid)) is not None and (pid := int(stat[PARENT])) > 0:
        found.add(pid)
    return found


def descendants(pid: int) -> set[int]:
    """Its children, theirs, and so on."""
    of, found, last = parents(), set[int](), {pid}
    while last:
        last = {one for one, parent in of.items() if parent in last}
        found |= last
    return found
