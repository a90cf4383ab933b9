"""Whether a run can be believed: what is watched, within which bounds, and what to say when one is left.

A value out of bounds makes a run `suspect`; it never stops it.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SAMPLE_INTERVAL_S = 0.25


@dataclass(frozen=True)
class Bound:
    """A monitor's limit: the value must be at most (or, with `at_least`, at least) this."""

    limit: float
    unit: str
    meaning: str
    at_least: bool = False

    def holds(self, value: float) -> bool:
        """True when the value is within the bound."""
        return value >= self.limit if self.at_least else value <= self.limit


BOUNDS: dict[str, Bound] = {
    # Above about 80 % busy, CPU time starts to decide what the network should (facts: transport §5).
    "cpu_busy": Bound(0.85, "share", "mean share of all cores that was busy while the job ran"),
    "softnet_dropped": Bound(0, "packets", "packets that the kernel dropped for want of CPU"),
    "rx_overflow": Bound(0, "packets", "packets that a full socket buffer dropped"),
    # A wake-up later than a few frame times (121 µs at 100 Mbit/s) shows as queueing that the fabric did not cause.
    "sched_late_s": Bound(0.005, "s", "99th percentile of how late agents woke"),
    # What retransmission timers and round trips are measured in here; a timeline is written in tens of milliseconds.
    "fault_late_s": Bound(0.005, "s", "how late the latest fault or mending took effect"),
    "link_utilisation": Bound(1.01, "share", "busiest switch port's bytes against its shaper's rate"),
    "unaccounted_packets": Bound(0, "packets", "packets in minus packets out minus drops, over all ports"),
    "background_offered": Bound(
        0.98, "share", "background bytes handed to the network (of TCP: of flows begun) against due", at_least=True
    ),
    "background_late": Bound(0.05, "share", "background flows that began more than 5 ms late, or not at all"),
}


def judge(values: dict[str, float]) -> dict[str, dict[str, Any]]:
    """Monitor → {value, bound, unit, ok, meaning}, for result.json. KeyError for an unknown monitor."""
    judged = {}
    for name, value in values.items():
        bound = BOUNDS[name]
        judged[name] = {
            "value": value,
            "bound": bound.limit,
            "unit": bound.unit,
            "ok": bound.holds(value),
            "meaning": bound.meaning,
        }
    return judged


def reasons(judged: dict[str, dict[str, Any]]) -> str:
    """One sentence for all monitors out of bounds; empty when there is none."""
    return "; ".join(
        f"{name} = {found['value']:.4g} {found['unit']} (bound {found['bound']:.4g}: {found['meaning']})"
        for name, found in judged.items()
        if not found["ok"]
    )


class MachineMonitor:
    """Samples CPU use and softnet drops of the whole machine in a thread; rows as in the table `hosts`."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True, name="machine-monitor")

    def __enter__(self) -> MachineMonitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def cpu_busy(self, start_s: float, end_s: float) -> float:
        """Mean busy share of all cores between two CLOCK_MONOTONIC instants; 0 when no sample fell in."""
        inside = [row["cpu_busy"] for row in self.rows if start_s <= row["time_s"] <= end_s]
        return sum(inside) / len(inside) if inside else 0.0

    def softnet_dropped(self) -> int:
        """Packets dropped by softnet since the start."""
        return sum(row["softnet_dropped"] for row in self.rows)

    def _sample(self) -> None:
        before_cpu, before_drops, due = _cpu_ticks(), _softnet_drops(), time.monotonic()
        while not self._stop.is_set():
            due += SAMPLE_INTERVAL_S
            self._stop.wait(max(0.0, due - time.monotonic()))
            cpu, drops, now = _cpu_ticks(), _softnet_drops(), time.monotonic()
            total = cpu[1] - before_cpu[1]
            self.rows.append({
                "host": "machine",
                "time_s": now,
                "cpu_busy": (cpu[0] - before_cpu[0]) / total if total else 0.0,
                "softnet_dropped": drops - before_drops,
                "rx_overflow": 0,
                "sched_late_s": max(0.0, now - due),
            })  # fmt: skip
            before_cpu, before_drops = cpu, drops


def _cpu_ticks() -> tuple[int, int]:
    """(busy, all) clock ticks of all cores since boot: idle, I/O wait and stolen time are not busy."""
    fields = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4] - fields[7], sum(fields)


def cpu_busy_s() -> float:
    """Seconds that all cores were busy since boot, from any start: time that passed, less what they idled.

    Not the sum of the busy columns, which a kernel may sample at its clock's ticks: a timer's work that ends before the
    next tick would not be seen. What is idle is measured.
    """
    fields = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    away_s = (fields[3] + fields[4] + fields[7]) / os.sysconf("SC_CLK_TCK")
    return time.monotonic() * (os.cpu_count() or 1) - away_s


def _softnet_drops() -> int:
    """Packets that all cores' input queues dropped since boot (/proc/net/softnet_stat, second column, hex)."""
    return sum(int(line.split()[1], 16) for line in Path("/proc/net/softnet_stat").read_text().splitlines())


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))
