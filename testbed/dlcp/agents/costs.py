"""Costs of a job at a host: measured by its agent, put together for the result."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlcp.agents.core_waits import WaitMeter
from dlcp.agents.machine_monitor import cores, cpu_busy_s
from dlcp.model.result import Costs, HostCosts, MachineCosts

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Hosts that tell the same one are the same machine."""


class CostMeter:
    """CPU seconds of this process, all threads, and of the machine that it is on, from its making on."""

    def __init__(self) -> None:
        self._before = _cpu_s()
        self._machine_before_s = cpu_busy_s()
        self._waits = WaitMeter()

    def read(self) -> dict[str, Any]:
        """cpu_user_s, cpu_system_s; machine_cpu_s (busy seconds of all its cores), cores, boot: which machine it is;
        waits: see WaitMeter."""
        user_s, system_s = (now - before for now, before in zip(_cpu_s(), self._before, strict=True))
        return {
            "cpu_user_s": user_s,
            "cpu_system_s": system_s,
            "machine_cpu_s": cpu_busy_s() - self._machine_before_s,
            "cores": cores(),
            "boot": _BOOT_ID.read_text(encoding="ascii").strip(),
            "waits": self._waits.read(),
        }


def costs_of(statistics: Mapping[str, Mapping[str, Any]]) -> Costs:
    """Costs of a job, from its agents' counters (Agent.collect) by host. A machine's costs are what its longest-lived
    agent saw.
    """
    hosts = {
        host: HostCosts(
            cpu_user_s=counters["costs"]["cpu_user_s"],
            cpu_system_s=counters["costs"]["cpu_system_s"],
            **counters["transport"]["wire"],
        )
        for host, counters in sorted(statistics.items())
    }
    by_machine: dict[str, list[str]] = {}
    for host, counters in sorted(statistics.items()):
        by_machine.setdefault(counters["costs"]["boot"], []).append(host)
    machines = [
        MachineCosts(
            hosts=names,
            cores=statistics[names[0]]["costs"]["cores"],
            cpu_s=max(statistics[name]["costs"]["machine_cpu_s"] for name in names),
        )
        for names in by_machine.values()
    ]
    return Costs(hosts=hosts, machines=machines)


def _cpu_s() -> tuple[float, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime, used.ru_stime
