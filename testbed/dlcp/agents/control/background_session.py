"""The background from the caller's side: prepare, start with the job, stop, and tell what became of every flow."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dlcp.agents.control.handles import AgentHandle, read_clocks, request_all
from dlcp.agents.records import Columns
from dlcp.model.frames import TCP_PAYLOAD_BYTES
from dlcp.model.workload import Constant
from dlcp.traffic.native import Array
from dlcp.traffic.plan import TrafficSpec, plan_traffic

PREPARE_TIMEOUT_S = 30.0
DRAIN_S = 0.1
"""From the last background packet sent until sinks stop counting, in lab time: a full path's queues drain in less."""
_SENT = (
    "due_bytes",
    "offered_bytes",
    "sent_bytes",
    "refused_bytes",
    "due_flows",
    "started_flows",
    "late_flows",
    "failed_flows",
    "datagrams",
)


@dataclass(frozen=True)
class BackgroundResult:
    """totals: see BackgroundSession.stop. flows: columns of the table `flows`."""

    totals: dict[str, float]
    flows: Columns


class BackgroundSession:
    """An experiment's background traffic on agents of their own: prepare(), start(), stop().

    agents: by host, at least one for every source and sink; not those of the job. tos: the IPv4 TOS byte of each
    entry's queue, in the order of entries. cookie: 32 bits that only this run knows. directory: where agents leave
    their records. Methods raise AgentError naming the host.
    """

    def __init__(
        self,
        agents: dict[str, AgentHandle],
        spec: TrafficSpec,
        addresses: dict[str, str],
        *,
        tos: list[int],
        cookie: int,
        directory: Path,
    ) -> None:
        hosts = dict.fromkeys(host for entry in spec.entries for host in (*entry.sources, *entry.sinks))
        self._agents = {host: agents[host] for host in hosts}
        self._spec = spec
        self._common = {
            "command": "background",
            "spec": spec.model_dump(mode="json"),
            "addresses": {host: addresses[host] for host in hosts},
            "tos": tos,
            "cookie": cookie,
        }
        self._directory = directory
        self._origin_s = 0.0

    def prepare(self) -> None:
        """Let every host make its part of the plan, and open its sink."""
        commands = {host: {**self._common, "host": host} for host in self._agents}
        request_all(self._agents, commands, PREPARE_TIMEOUT_S)
        read_clocks(self._agents)

    def start(self, at_s: float) -> None:
        """Begin at an instant (CLOCK_MONOTONIC); the plan's times count from it."""
        self._origin_s = at_s
        commands = {
            host: {"command": "start_background", "at": agent.clock.there(at_s)} for host, agent in self._agents.items()
        }
        request_all(self._agents, commands, PREPARE_TIMEOUT_S)

    def stop(self) -> BackgroundResult:
        """End, first all sources, then the sinks.

        Totals, sums over all hosts: due_bytes (by the plan, until the end), offered_bytes (of these handed to the
        network: datagrams sent, and all bytes of TCP flows that were started, for the network then sets their pace),
        sent_bytes, refused_bytes (the kernel had no room), due_, started_, late_, failed_flows, datagrams,
        received_bytes, received_packets (datagrams), connections, strangers, rx_overflow (packets). sched_late_s: 99th
        percentile of how late sends were, of the worst host. source_cpu_s, sink_cpu_s: of their threads;
        cpu_us_per_packet, cpu_us_per_flow: both together.
        """
        sent = self._all({"command": "stop_sending"})
        time.sleep(DRAIN_S * self._spec.time_dilation)
        paths = {host: self._directory / f"{host}-background.npz" for host in self._agents}
        commands = {
            host: {"command": "stop_counting", "path": self._agents[host].place(path)} for host, path in paths.items()
        }
        counted = request_all(self._agents, commands, PREPARE_TIMEOUT_S)
        read_clocks(self._agents)
        stopped_s = {host: self._agents[host].clock.here(one["stopped_ns"] / 1e9) for host, one in sent.items() if one}
        for host, path in paths.items():
            self._agents[host].fetch(path)
        flows = self._flows(paths, stopped_s)
        for path in paths.values():
            path.unlink()
        return BackgroundResult(_totals(list(sent.values()), list(counted.values())), flows)

    def _all(self, command: dict[str, Any]) -> dict[str, dict[str, Any]]:
        return request_all(self._agents, dict.fromkeys(self._agents, command), PREPARE_TIMEOUT_S)

    def _flows(self, paths: dict[str, Path], stopped_s: dict[str, float]) -> Columns:
        """The plan's flows that were due when their source stopped, with what sources and sinks say of them."""
        plan = plan_traffic(self._spec)
        flows, hosts = plan.flows, np.array(plan.hosts)
        order = np.lexsort((flows["number"], flows["sink"]))
        first = np.searchsorted(flows["sink"][order], np.arange(len(hosts)))
        left, arrived = (np.zeros(len(flows), np.int64) for _ in range(2))
        start_s, end_s = (np.full(len(flows), np.nan) for _ in range(2))
        for host, path in paths.items():
            me = plan.hosts.index(host)
            with np.load(path) as found:
                coming = order[first[me] : first[me] + len(found["arrivals"])]
                arrived[coming] = found["arrivals"]["bytes"]
                end_s[coming] = self._instants_s(host, found["arrivals"]["last_ns"])
                rows = order[first[found["sent_sink"]] + found["sent_number"]]
                start_s[rows] = self._instants_s(host, found["sent"]["started_ns"])
                left[rows] = found["sent"]["sent_bytes"]
        streams = np.array([isinstance(entry, Constant) for entry in self._spec.entries])[flows["entry"]]
        size = np.where(streams, left, flows["bytes"])
        planned_s = self._origin_s + flows["start_s"]
        ends_s = np.array([stopped_s.get(host, -np.inf) for host in plan.hosts])[flows["source"]]
        due = ((planned_s <= ends_s) | ~np.isnan(start_s)) & (size > 0)
        kinds = np.array([entry.kind for entry in self._spec.entries])
        whole = due & (arrived >= size)
        columns: dict[str, Array] = {
            "entry": flows["entry"],
            "kind": kinds[flows["entry"]],
            "src": hosts[flows["source"]],
            "dst": hosts[flows["sink"]],
            "bytes": size,
            "planned_s": planned_s,
            "start_s": start_s,
            "end_s": np.where(whole, end_s, np.nan),
            "delivered_bytes": arrived,
        }
        return {name: column[due].tolist() for name, column in columns.items()}

    def _instants_s(self, host: str, told_ns: Array) -> Array:
        """What a host's clock showed as the caller's instants; NaN for 0, which is never."""
        instants: Array = np.where(told_ns > 0, self._agents[host].clock.here(told_ns / 1e9), np.nan)
        return instants


def _totals(sent: list[dict[str, Any]], counted: list[dict[str, Any]]) -> dict[str, float]:
    def total(found: list[dict[str, Any]], name: str) -> float:
        return float(sum(one.get(name, 0) for one in found))

    totals = {name: total(sent, name) for name in _SENT}
    totals |= {
        "received_bytes": total(counted, "bytes"),
        "received_packets": total(counted, "packets"),
        "connections": total(counted, "connections"),
        "strangers": total(counted, "strangers"),
        "rx_overflow": total(counted, "overflow"),
        "sched_late_s": max((one["late_ns"] / 1e9 for one in sent if one), default=0.0),
        "source_cpu_s": total(sent, "cpu_ns") / 1e9,
        "sink_cpu_s": total(counted, "cpu_ns") / 1e9,
    }
    cpu_us = 1e6 * (totals["source_cpu_s"] + totals["sink_cpu_s"])
    streamed = totals["received_bytes"] - sum(one.get("datagram_bytes", 0) for one in counted)
    packets = totals["received_packets"] + streamed / TCP_PAYLOAD_BYTES
    return totals | {
        "cpu_us_per_packet": cpu_us / max(1.0, packets),
        "cpu_us_per_flow": cpu_us / max(1.0, totals["started_flows"]),
    }
