"""How busy a machine is: sampled during its work, the same in an emulation and on a host of a lab."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlcp.agents.background_thread import Beside

SAMPLE_INTERVAL_S = 0.25
_IDLE, _IOWAIT, _STOLEN = 4, 5, 8
"""Columns of the line `cpu` of /proc/stat."""
WHOLE = "machine"
"""Name of the machine that emulates all hosts in the table `hosts`."""


class MachineMonitor(Beside):
    """Samples CPU use and softnet drops of the whole machine while its block lasts; rows as in the table `hosts`.

    name: what the machine is called there.
    """

    def __init__(self, name: str = WHOLE) -> None:
        super().__init__("machine-monitor")
        self._name = name
        self.rows: list[dict[str, Any]] = []
        self.begun_s = time.monotonic()
        self._stolen_before_s = _cpu_columns_s(_STOLEN)

    def cpu_busy(self, start_s: float, end_s: float) -> float:
        """See `mean_busy`."""
        return mean_busy(self.rows, self.begun_s, start_s, end_s)

    def stolen(self) -> float:
        """Share of all cores' time since the start that the hypervisor gave to other machines."""
        return (_cpu_columns_s(_STOLEN) - self._stolen_before_s) / (
            (time.monotonic() - self.begun_s) * (os.cpu_count() or 1)
        )

    def softnet_dropped(self) -> int:
        """Packets dropped by softnet since the start."""
        return sum(row["softnet_dropped"] for row in self.rows)

    def _work(self) -> None:
        before_s, before_drops, due = cpu_busy_s(), _softnet_drops(), time.monotonic()
        looked_s = due
        while not self._over.is_set():
            due += SAMPLE_INTERVAL_S
            self._over.wait(max(0.0, due - time.monotonic()))
            busy_s, drops, now = cpu_busy_s(), _softnet_drops(), time.monotonic()
            available_s = (now - looked_s) * (os.cpu_count() or 1)
            self.rows.append(
                {
                    "host": self._name,
                    "time_s": now,
                    "cpu_busy": min(1.0, max(0.0, (busy_s - before_s) / available_s)) if available_s else 0.0,
                    "softnet_dropped": drops - before_drops,
                    "rx_overflow": 0,
                    "sched_late_s": max(0.0, now - due),
                }
            )
            before_s, before_drops, looked_s = busy_s, drops, now


def mean_busy(rows: Sequence[Mapping[str, Any]], begun_s: float, start_s: float, end_s: float) -> float:
    """Mean busy share of all cores between two instants, of samples that began at begun_s; 0 when none fell in."""
    busy = covered = 0.0
    for before, row in itertools.pairwise([{"time_s": begun_s}, *rows]):
        overlap_s = min(end_s, row["time_s"]) - max(start_s, before["time_s"])
        if overlap_s > 0:
            busy, covered = busy + overlap_s * row["cpu_busy"], covered + overlap_s
    return busy / covered if covered else 0.0


def cpu_busy_s() -> float:
    """Seconds that all cores were busy since boot, from any start: time that passed, less what they idled.

    Not the sum of the busy columns, which a kernel may sample at its clock's ticks: a timer's work that ends before the
    next tick would not be seen. What is idle is measured.
    """
    return time.monotonic() * (os.cpu_count() or 1) - _cpu_columns_s(_IDLE, _IOWAIT, _STOLEN)


def _cpu_columns_s(*columns: int) -> float:
    """Sum of columns of the line `cpu` of /proc/stat (proc(5)): seconds of all cores since boot."""
    fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    return sum(int(fields[column]) for column in columns) / os.sysconf("SC_CLK_TCK")


def _softnet_drops(file: Path = Path("/proc/net/softnet_stat")) -> int:
    """Packets that all cores' input queues dropped since boot: second column, hex."""
    return sum(int(line.split()[1], 16) for line in file.read_text(encoding="ascii").splitlines())


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))
