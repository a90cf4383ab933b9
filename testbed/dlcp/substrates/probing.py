"""Probes over agents: the prober that dlcp.verification asks for, wherever the agents are."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from dlcp.agents.handles import AgentHandle, gather, request_all
from dlcp.agents.machine import SAMPLE_INTERVAL_S, MachineMonitor
from dlcp.agents.probes import ARRIVAL
from dlcp.substrates import fidelity
from dlcp.verification.prober import Arrivals, Counters, Reading, Send, Shot

PROBE_PORT = 5800
OPEN_TIMEOUT_S = 10.0
AHEAD_S = 0.01
"""A plan reaches all agents so long before its first train."""
SPARE_S = 30.0


class AgentProber:
    """Probes by agents' commands. Agents are opened here; whoever started them ends them.

    counters: None when the switches have none, for the reason no_counters. watch: makes a monitor of the machine that
    the hosts share, for as long as a shot lasts.
    """

    def __init__(
        self,
        agents: Mapping[str, AgentHandle],
        addresses: Mapping[str, str],
        counters: Counters | None,
        no_counters: str = "",
        watch: Callable[[], MachineMonitor] = MachineMonitor,
    ) -> None:
        self.counters = counters
        self.no_counters = no_counters
        self._agents = dict(agents)
        self._addresses = dict(addresses)
        self._watch = watch
        commands = {
            host: {"command": "open_probes", "address": self._addresses[host], "port": PROBE_PORT} for host in agents
        }
        request_all(self._agents, commands, OPEN_TIMEOUT_S)

    def shoot(self, sends: Iterable[Send], after_s: float) -> Shot:
        """See Prober."""
        return self.shoot_and_read(sends, after_s, (), ())[0]

    def shoot_and_read(
        self, sends: Iterable[Send], after_s: float, ports: Iterable[tuple[str, str]], at_s: Iterable[float]
    ) -> tuple[Shot, list[Reading]]:
        """See Prober."""
        ports, readings = list(ports), []
        trains: dict[str, list[Send]] = {}
        for send in sends:
            trains.setdefault(send.host, []).append(send)
        sinks = {send.to for found in trains.values() for send in found}
        with self._watch() as monitor:
            start_s = time.monotonic() + AHEAD_S
            last_s = max(send.at_s for found in trains.values() for send in found)
            waiting = {host: (self._agents[host], self._send(host, found, start_s)) for host, found in trains.items()}
            for instant_s in at_s:
                time.sleep(max(0.0, start_s + instant_s - time.monotonic()))
                assert self.counters is not None
                readings.append(self.counters.read(ports))
            sent = gather(waiting, last_s + SPARE_S)
            time.sleep(after_s)
            end_s = time.monotonic()
        collected = request_all(self._agents, {sink: {"command": "collect_probes"} for sink in sinks}, SPARE_S)
        arrivals = {host: _arrivals(found["arrivals"]) for host, found in collected.items()}
        values = {
            "cpu_busy": monitor.cpu_busy(start_s, end_s + SAMPLE_INTERVAL_S),
            "softnet_dropped": monitor.softnet_dropped(),
            "rx_overflow": sum(found["rx_overflow"] for found in collected.values()),
            "sched_late_s": max(found["sched_late_s"] for found in sent.values()),
        }
        judged = fidelity.judge(values)
        lost = fidelity.reasons({name: judged[name] for name in ("softnet_dropped", "rx_overflow")})
        return Shot(arrivals, fidelity.reasons(judged), lost), readings

    def _send(self, host: str, sends: list[Send], start_s: float) -> int:
        trains: list[dict[str, Any]] = [
            {
                "at_s": send.at_s, "to": self._addresses[send.to], "train": send.train, "pattern": send.pattern,
                "repeat": send.repeat, "rate_bps": send.rate_bps, "catch_up": send.catch_up, "flows": send.flows,
                "burst": send.burst,
            }
            for send in sorted(sends, key=lambda send: send.at_s)
        ]  # fmt: skip
        return self._agents[host].send({"command": "send_probes", "trains": trains, "at": start_s})


def _arrivals(packed: str) -> Arrivals:
    return np.frombuffer(base64.b64decode(packed), ARRIVAL)
