"""Whether the machine was quiet: CPU use and load beside every bench, so that a noisy one shows itself."""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Any, Self

import numpy as np

from dlcp.agents.machine_monitor import MachineMonitor, cores
from dlcp.substrates.emulate.capabilities import machine_facts

BUSY_BEFORE_LIMIT = 0.2
"""Share of all cores busy before the bench began: above it, others' work is in the figures."""
_LOOK_S = 0.5
_COPIED_BYTES = 64_000_000
"""Twice as many as a server's last-level cache is likely to hold."""
_COPIES = 4


class Watch:
    """Looks at the machine before and during a bench."""

    def __init__(self) -> None:
        self._monitor = MachineMonitor()

    def __enter__(self) -> Self:
        self._load_before = os.getloadavg()[0]
        self._monitor.__enter__()
        begun_s = time.monotonic()
        time.sleep(_LOOK_S)
        self._busy_before = self._monitor.cpu_busy(begun_s, time.monotonic())
        self._begun_s = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended_s = time.monotonic()
        self._monitor.__exit__()

    def found(self) -> dict[str, Any]:
        """Busy shares, load averages, drops for want of CPU; `quiet`: nobody else used the machine at the start."""
        found = machine_facts() | {
            "cores": cores(),
            "load_before": round(self._load_before, 2),
            "load_after": round(os.getloadavg()[0], 2),
            "cpu_busy_before": round(self._busy_before, 3),
            "cpu_busy": round(self._monitor.cpu_busy(self._begun_s, self._ended_s), 3),
            "softnet_dropped": self._monitor.softnet_dropped(),
            "seconds": round(self._ended_s - self._begun_s, 2),
            "quiet": self._busy_before <= BUSY_BEFORE_LIMIT,
        }
        return found | {"words": _words(found)}


def copy_s(size_bytes: int) -> float:
    """What one memory copy of so many bytes takes here, from memory to memory: the best of a few, by CPU time."""
    source = np.ones(_COPIED_BYTES, np.uint8)
    target = np.empty_like(source)
    taken = []
    for _ in range(_COPIES):
        begun_s = time.thread_time()
        np.copyto(target, source)
        taken.append(time.thread_time() - begun_s)
    return min(taken) * size_bytes / _COPIED_BYTES


def _words(found: dict[str, Any]) -> str:
    """One line for a person."""
    text = (
        f"{found['cores']} cores, {found['cpu_busy']:.0%} busy during the bench, {found['cpu_busy_before']:.0%} before "
        f"it; load average {found['load_before']} before, {found['load_after']} after; "
        f"{found['softnet_dropped']} packets dropped for want of CPU"
    )
    return text if found["quiet"] else f"{text}. NOISY: others' work is in these figures; repeat on a quiet machine"
