"""Probes over agents: the prober that dlcp.verification asks for, wherever the agents are.

Instants of hosts with clocks of their own become the caller's; how well these clocks are known bounds what a delay can
say of a queue, and a shot tells it.
"""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, Self

import numpy as np

from dlcp.agents.control.handles import AgentHandle, gather, request_all
from dlcp.agents.machine_monitor import SAMPLE_INTERVAL_S, MachineMonitor
from dlcp.agents.process.probes import ARRIVAL
from dlcp.model.units import show_duration
from dlcp.substrates import fidelity
from dlcp.verification.prober import Arrivals, Counters, Reading, Send, Shot

PROBE_PORT = 5800
OPEN_TIMEOUT_S = 10.0
AHEAD_S = 0.01
"""A plan reaches all agents so long before its first train."""
SPARE_S = 30.0


CLOCK_EXCHANGES = 12
"""Of each shot: the bound is taken from the quickest."""


class Busyness(Protocol):
    """Watches the machines that hosts are on, while its block lasts; see MachineMonitor."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: Any) -> None: ...

    def cpu_busy(self, start_s: float, end_s: float) -> float: ...

    def softnet_dropped(self) -> int: ...


class AgentProber:
    """Probes by agents' commands. Agents are opened here; whoever started them ends them.

    counters: None when the switches have none, for the reason no_counters. watch: makes a monitor of the machine that
    the hosts share, or of their machines, for as long as a shot lasts. clock_error_s: how far clocks may be off before
    what hangs on time cannot be concluded.
    """

    def __init__(
        self,
        agents: Mapping[str, AgentHandle],
        addresses: Mapping[str, str],
        counters: Counters | None,
        no_counters: str = "",
        watch: Callable[[], Busyness] = MachineMonitor,
        clock_error_s: float = math.inf,
    ) -> None:
        self.counters = counters
        self.no_counters = no_counters
        self._agents = dict(agents)
        self._addresses = dict(addresses)
        self._watch = watch
        self._clock_error_s = clock_error_s
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
        senders = {send.train: host for host, found in trains.items() for send in found}
        used = {host: self._agents[host] for host in {*trains, *sinks}}
        for agent in used.values():
            agent.clock.read_afresh(CLOCK_EXCHANGES)
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
        arrivals = {host: self._arrivals(host, found["arrivals"], senders) for host, found in collected.items()}
        values = {
            "cpu_busy": monitor.cpu_busy(start_s, end_s + SAMPLE_INTERVAL_S),
            "softnet_dropped": monitor.softnet_dropped(),
            "rx_overflow": sum(found["rx_overflow"] for found in collected.values()),
            "sched_late_s": max(found["sched_late_s"] for found in sent.values()),
        }
        judged = fidelity.judge(values)
        lost = fidelity.reasons({name: judged[name] for name in ("softnet_dropped", "rx_overflow")})
        starved = "; ".join(filter(None, (fidelity.reasons(judged), self._doubt(used))))
        return Shot(arrivals, starved, lost), readings

    def _send(self, host: str, sends: list[Send], start_s: float) -> int:
        trains: list[dict[str, Any]] = [
            {
                "at_s": send.at_s,
                "to": self._addresses[send.to],
                "train": send.train,
                "pattern": send.pattern,
                "repeat": send.repeat,
                "rate_bps": send.rate_bps,
                "catch_up": send.catch_up,
                "flows": send.flows,
                "burst": send.burst,
            }
            for send in sorted(sends, key=lambda send: send.at_s)
        ]
        agent = self._agents[host]
        return agent.send({"command": "send_probes", "trains": trains, "at": agent.clock.there(start_s)})

    def _arrivals(self, sink: str, packed: str, senders: Mapping[int, str]) -> Arrivals:
        """What a host took down, with both ends' instants as the caller's clock shows them."""
        arrivals = np.frombuffer(base64.b64decode(packed), ARRIVAL).copy()
        arrivals["arrived_ns"] = self._here_ns(sink, arrivals["arrived_ns"])
        for sender in set(senders.values()):
            mine = np.isin(arrivals["train"], [train for train, host in senders.items() if host == sender])
            arrivals["sent_ns"][mine] = self._here_ns(sender, arrivals["sent_ns"][mine])
        return arrivals

    def _here_ns(self, host: str, there_ns: Arrivals) -> Arrivals:
        clock = self._agents[host].clock
        if not clock.readings:
            return there_ns
        return np.round(clock.real_here(there_ns / 1e9) * 1e9).astype("<u8")

    def _doubt(self, agents: Mapping[str, AgentHandle]) -> str:
        """Why delays between these hosts say too little; empty when their clocks are known well enough."""
        error_s = sum(sorted(agent.clock.error_s for agent in agents.values())[-2:])
        if error_s <= self._clock_error_s:
            return ""
        return (
            f"hosts' clocks are known to {show_duration(error_s)} only, {show_duration(self._clock_error_s)} is needed"
        )
