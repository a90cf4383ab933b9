"""Time that threads waited for a core: what a busy machine adds to a run and a network does not.

The kernel counts it for every thread (/proc/PID/task/TID/schedstat, CONFIG_SCHED_INFO): nanoseconds on a core,
nanoseconds runnable without one, and how often it got one. Each wait is counted to its end, so that waits in a busy
window of 10 ms weigh as much as they last, however quiet the rest of the run is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

_TASKS = Path("/proc/self/task")
_ENGINE = "dlcp-engine"
"""The name that native/engine/engine.c gives its thread."""
_SOFTIRQ = "ksoftirqd/"
_NS = 1e-9


@dataclass(frozen=True)
class CoreWaits:
    """Seconds on a core, seconds of waiting for one, and how often a core was given; sums over threads."""

    run_s: float = 0.0
    wait_s: float = 0.0
    turns: int = 0

    def __add__(self, other: CoreWaits) -> CoreWaits:
        return CoreWaits(self.run_s + other.run_s, self.wait_s + other.wait_s, self.turns + other.turns)

    def __sub__(self, other: CoreWaits) -> CoreWaits:
        return CoreWaits(self.run_s - other.run_s, self.wait_s - other.wait_s, self.turns - other.turns)


class WaitMeter:
    """Waits of this process's threads, from its making on."""

    def __init__(self) -> None:
        self._before = _threads()

    def read(self) -> dict[str, dict[str, float]] | None:
        """Return `engine` and `rest` → CoreWaits as data; None where the kernel does not count.

        `engine`: DLCP's engine threads, which have a real-time priority; `rest`: all others. A thread that has ended
        is missing: an agent's own live as long as it does.
        """
        now = _threads()
        if not waits_are_counted():
            return None
        grown = {tid: (name, waits - self._before.get(tid, ("", CoreWaits()))[1]) for tid, (name, waits) in now.items()}
        engine = _sum(waits for name, waits in grown.values() if name == _ENGINE)
        others = _sum(waits for name, waits in grown.values() if name != _ENGINE)
        return {"engine": asdict(engine), "rest": asdict(others)}


class SoftirqMeter:
    """Waits of the kernel's own packet threads (ksoftirqd), which forward what interrupts have put off.

    Its files are opened where those threads are seen, outside of a run's process namespace, and read inside it.
    """

    def __init__(self, files: Iterable[int]) -> None:
        self._files = tuple(files)
        self._before = self._now()

    def wait_s(self) -> float | None:
        """Return how long they have waited for their cores since the making, in the mean over cores; None where there
        was nothing to open."""
        return (self._now() - self._before).wait_s / len(self._files) if self._files else None

    def _now(self) -> CoreWaits:
        return _sum(_parsed(os.pread(file, 100, 0).decode("ascii")) for file in self._files)


def waits_are_counted() -> bool:
    """Return true if this kernel counts waits for a core: one that does has had this thread on a core for some time."""
    return any(waits.run_s > 0 for _, waits in _threads().values())


def open_softirq_files() -> list[int]:
    """Open the counters of every ksoftirqd; an empty list where they are not seen (in a container) or not counted.

    The caller closes them.
    """
    files = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile, or there is no such file
            if (process / "comm").read_text(encoding="utf-8").startswith(_SOFTIRQ):
                files.append(os.open(process / "schedstat", os.O_RDONLY | os.O_CLOEXEC))
    return files


def _threads() -> Mapping[int, tuple[str, CoreWaits]]:
    """Thread → its name and its waits since it began."""
    threads = {}
    for task in _TASKS.iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended, or the kernel has no such file
            waits = _parsed((task / "schedstat").read_text(encoding="ascii"))
            threads[int(task.name)] = ((task / "comm").read_text(encoding="utf-8").strip(), waits)
    return threads


def _parsed(line: str) -> CoreWaits:
    run_ns, wait_ns, turns = map(int, line.split())
    return CoreWaits(run_ns * _NS, wait_ns * _NS, turns)


def _sum(waits: Iterable[CoreWaits]) -> CoreWaits:
    return sum(waits, start=CoreWaits())
