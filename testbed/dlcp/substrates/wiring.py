"""The plan of a fabric: names, interface indexes, addresses and routes of every link end. Pure; touches nothing."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv4Interface

from dlcp.errors import Problem
from dlcp.model.check_topology import LONGEST_DEVICE_NAME, device_name
from dlcp.model.topology import Graph

NETWORK_BITS = 15
FIRST_ADDRESS = IPv4Address("198.18.0.0")
"""198.18.0.0/15 is set aside for benchmarks (RFC 2544) and routed nowhere."""

_FIRST_IFINDEX = 100
"""Above what a kernel makes in every namespace by itself (lo, ifb0, tunl0, …). Even: a link's ends are 2k, 2k + 1."""


@dataclass(frozen=True)
class End:
    """One end of a link. A host has one interface, NAME-eth0; a switch port is SWITCH-NEIGHBOUR."""

    node: str
    neighbour: str
    device: str
    ifindex: int
    rate_bps: float
    is_host: bool
    faces_host: bool

    @property
    def mac(self) -> str:
        """Locally administered, from the interface index."""
        return f"02:00:00:00:{self.ifindex >> 8:02x}:{self.ifindex & 255:02x}"


@dataclass(frozen=True)
class Wiring:
    """All of a graph's link ends."""

    graph: Graph

    @cached_property
    def links(self) -> tuple[tuple[End, End], ...]:
        """In the graph's order. Raises Problem for a name that no device can have, or a host with several links."""
        indexes = itertools.count(_FIRST_IFINDEX)
        ends = []
        for link in self.graph.links:
            pair = (link.a, link.b), (link.b, link.a)
            a, b = (self._end(node, other, next(indexes), link.rate_bps) for node, other in pair)
            ends.append((a, b))
        for host in self.graph.hosts:
            count = len(self.graph.neighbours[host])
            if count != 1:
                raise Problem(f"topology, host {host}", f"has {count} links; an emulated host has one")
        return tuple(ends)

    @cached_property
    def ends(self) -> tuple[End, ...]:
        """Every link end."""
        return tuple(end for link in self.links for end in link)

    @cached_property
    def host_ends(self) -> dict[str, End]:
        """Host → its interface, in the graph's order of hosts."""
        found = {end.node: end for end in self.ends if end.is_host}
        return {host: found[host] for host in self.graph.hosts}

    @cached_property
    def switch_ends(self) -> tuple[End, ...]:
        """Every switch port."""
        return tuple(end for end in self.ends if not end.is_host)

    def end(self, node: str, neighbour: str) -> End:
        """A node's end of the link to a neighbour. Raises Problem when there is no such link."""
        for end in self.ends:
            if (end.node, end.neighbour) == (node, neighbour):
                return end
        raise Problem(f"{node} – {neighbour}", "is not a link of this fabric")

    def address(self, host: str) -> IPv4Interface:
        """The N-th host's address is 198.18.0.0 + N, N from 1."""
        number = self.graph.hosts.index(host) + 1
        return IPv4Interface((FIRST_ADDRESS + number, NETWORK_BITS))

    def routes(self) -> dict[tuple[str, IPv4Address], tuple[int, ...]]:
        """(switch, host's address) → the interface indexes of its equal-cost egress ports; unreachable ones absent."""
        ports = {(end.node, end.neighbour): end.ifindex for end in self.switch_ends}
        found = {}
        for host in self.graph.hosts:
            for switch in self.graph.switches:
                hops = self.graph.next_hops(switch, host)
                if hops:
                    found[switch, self.address(host).ip] = tuple(ports[switch, hop] for hop in hops)
        return found

    def _end(self, node: str, neighbour: str, ifindex: int, rate_bps: float) -> End:
        is_host = node in self.graph.hosts
        device = device_name(node, neighbour, is_host=is_host)
        if len(device) > LONGEST_DEVICE_NAME:
            raise Problem(
                f"topology, {node} – {neighbour}",
                f"the device name {device} has {len(device)} characters, Linux takes {LONGEST_DEVICE_NAME}",
                "use shorter node names",
            )
        return End(node, neighbour, device, ifindex, rate_bps, is_host, neighbour in self.graph.hosts)
