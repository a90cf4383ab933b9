"""Hosts that probe a port: the host behind it, one that sends the probes, one that keeps the port busy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dlcp.model.buffering import alone_bytes
from dlcp.model.frames import FRAME_BYTES
from dlcp.model.qos import QUEUES, QosIntent
from dlcp.model.topology import Graph

_CUSHION_BYTES = 8 * FRAME_BYTES
_CUSHION_SHARE = 0.25


@dataclass(frozen=True)
class Station:
    """A port that leads to the host `sink`. tester: sends the probes; no other path than through this one switch.
    blocker: keeps the port busy. Rates are those of the three links."""

    switch: str
    sink: str
    tester: str
    blocker: str
    rate_bps: float
    tester_bps: float
    blocker_bps: float

    @property
    def port(self) -> str:
        """As the table `ports` names it."""
        return f"{self.switch}-{self.sink}"


def hosts_of(graph: Graph, switch: str) -> list[str]:
    """The hosts whose link leads to a switch."""
    return [host for host in graph.neighbours[switch] if host in graph.hosts]


def station(
    graph: Graph, switch: str, sink: str, slow: Mapping[tuple[str, str], float] = MappingProxyType({})
) -> Station | str:
    """The station of a host-facing port, or why there is none: its blocker must fill the port, and the tester's probes
    must not be overtaken on other paths. slow: directed links → the rate that they have in spite of the graph."""
    rate_bps = slow.get((switch, sink), graph.link_rate_bps(switch, sink))
    near = [host for host in hosts_of(graph, switch) if host != sink]
    near.sort(key=lambda host: -graph.link_rate_bps(host, switch))
    far = [host for host in graph.hosts if host not in near and host != sink and graph.next_hops(switch, host)]
    if not near:
        return f"no other host hangs on {switch}: what comes from elsewhere may arrive in any order"
    filling = {blocker: _narrowest(graph, blocker, sink) for blocker in [*near, *far]}
    for blocker in sorted(filling, key=lambda host: filling[host]):  # the slowest that does: its own link paces it best
        testers = [host for host in near if host != blocker]
        if filling[blocker] >= 0.999 * rate_bps and testers:
            first, tester = (blocker, graph.neighbours[blocker][0]), testers[0]
            tester_bps = slow.get((tester, switch), graph.link_rate_bps(tester, switch))
            blocker_bps = min(filling[blocker], slow.get(first, filling[blocker]))
            if blocker_bps >= 0.999 * rate_bps:
                return Station(switch, sink, tester, blocker, rate_bps, tester_bps, blocker_bps)
    return "no other host than the one that probes can keep the port busy"


def cushion_bytes(intent: QosIntent) -> int:
    """Bytes that the blocking queue is made to hold, so that it never runs empty for a moment: whole frames."""
    top = intent.queue(QUEUES - 1)
    room = intent.port_buffer_bytes
    if intent.shared_buffer_bytes is not None:
        single_bytes = alone_bytes(intent.shared_buffer_bytes, intent.alpha_of(QUEUES - 1))
        room = min(room, intent.reserved_of(QUEUES - 1) + single_bytes)
    if top.limit_bytes is not None:
        room = min(room, top.limit_bytes)
    room = min(int(room * _CUSHION_SHARE), _CUSHION_BYTES)
    if (profile := top.profiles[0]) is not None:  # where queue 7 itself drops, the cushion stays below
        room = min(room, profile.minimum_bytes // 2)
    return max(2, room // FRAME_BYTES) * FRAME_BYTES


def _narrowest(graph: Graph, host: str, sink: str) -> float:
    """Rate that surely arrives over one shortest path, its last link left out."""
    node, rate_bps = host, float("inf")
    distances = graph.distances_to(sink)
    while node != sink and node in distances:
        hops = [hop for hop in graph.neighbours[node] if distances.get(hop, -1) == distances[node] - 1]
        rate_bps = min([rate_bps, *(graph.link_rate_bps(node, hop) for hop in hops if hop != sink)])
        node = hops[0]
    return rate_bps
