"""The plan of a fabric: names, interface indexes, addresses and routes of every link end. Pure; touches nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv4Interface

from dlcp.errors import Problem
from dlcp.model.loading.check_topology import LONGEST_DEVICE_NAME, device_name
from dlcp.model.topology import Graph, Link

NETWORK_BITS = 15
FIRST_ADDRESS = IPv4Address("198.18.0.0")
"""198.18.0.0/15 is set aside for benchmarks (RFC 2544) and routed nowhere."""

_FIRST_IFINDEX = 100
"""Above what a kernel makes in every namespace by itself (lo, ifb0, tunl0, …). A multiple of four: a link's ends
are 2k and 2k + 1; with a delay 4k and 4k + 3."""


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
class WireEnd(End):
    """An inner end of a link with a delay: the link is then two pairs of devices, and between them the delay.

    What `node` has sent comes in here, leaves by the other inner end after delay_s, and reaches `neighbour`.
    """

    delay_s: float


@dataclass(frozen=True)
class Wiring:
    """All of a graph's link ends."""

    graph: Graph

    @cached_property
    def links(self) -> tuple[tuple[End, End], ...]:
        """In the graph's order. Raises Problem for a name that no device can have, or a host with several links."""
        index = _FIRST_IFINDEX
        ends = []
        for link in self.graph.links:
            if link.delay_s:
                index += -index % 4
            far = index + (3 if link.delay_s else 1)
            ends.append((self._end(link.a, link.b, index, link), self._end(link.b, link.a, far, link)))
            index = far + 1
        for host in self.graph.hosts:
            count = len(self.graph.neighbours[host])
            if count != 1:
                raise Problem(f"topology, host {host}", f"has {count} links; an emulated host has one")
        return tuple(ends)

    @cached_property
    def wires(self) -> tuple[WireEnd, ...]:
        """The inner ends of all links with delays."""
        return tuple(
            WireEnd(**vars(end) | {"device": f"wire{inner}", "ifindex": inner}, delay_s=link.delay_s)
            for link, ends in zip(self.graph.links, self.links, strict=True)
            if link.delay_s
            for end in ends
            for inner in [end.ifindex ^ 1]
        )

    @cached_property
    def pairs(self) -> tuple[tuple[End, End], ...]:
        """Every pair of devices to make."""
        inner = {wire.ifindex: wire for wire in self.wires}
        halves = [(end, inner[end.ifindex ^ 1]) for pair in self.links for end in pair if end.ifindex ^ 1 in inner]
        return (*(pair for pair in self.links if pair[0].ifindex ^ 1 not in inner), *halves)

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
        try:
            return self._by_nodes[node, neighbour]
        except KeyError:
            raise Problem(f"{node} – {neighbour}", "is not a link of this fabric") from None

    def address(self, host: str) -> IPv4Interface:
        """The N-th host's address is 198.18.0.0 + N, N from 1."""
        return self._addresses[host]

    @cached_property
    def neighbours(self) -> dict[str, tuple[str, str]]:
        """Host → its address and its MAC, as every other host must know them."""
        return {host: (str(self.address(host).ip), end.mac) for host, end in self.host_ends.items()}

    def routes(self, without: Iterable[tuple[str, str]] = ()) -> dict[tuple[str, IPv4Address], tuple[int, ...]]:
        """(switch, host's address) → the interface indexes of its equal-cost egress ports; unreachable ones absent.

        without: links, by their nodes, that are not there.
        """
        for link in (cut := tuple(without)):
            self.end(*link)
        graph = self.graph.without(cut)
        ports = {(end.node, end.neighbour): end.ifindex for end in self.switch_ends}
        found = {}
        for host in graph.hosts:
            address, next_hops = self.address(host).ip, graph.next_hops_to(host)
            for switch in graph.switches:
                if hops := next_hops.get(switch):
                    found[switch, address] = tuple(ports[switch, hop] for hop in hops)
        return found

    @cached_property
    def _addresses(self) -> dict[str, IPv4Interface]:
        hosts = enumerate(self.graph.hosts, start=1)
        return {host: IPv4Interface((FIRST_ADDRESS + number, NETWORK_BITS)) for number, host in hosts}

    @cached_property
    def _by_nodes(self) -> dict[tuple[str, str], End]:
        return {(end.node, end.neighbour): end for end in self.ends}

    def _end(self, node: str, neighbour: str, ifindex: int, link: Link) -> End:
        is_host = node in self.graph.hosts
        device = device_name(node, neighbour, is_host=is_host)
        if len(device) > LONGEST_DEVICE_NAME:
            raise Problem(
                f"topology, {node} – {neighbour}",
                f"the device name {device} has {len(device)} characters, Linux takes {LONGEST_DEVICE_NAME}",
                "use shorter node names",
            )
        return End(node, neighbour, device, ifindex, link.rate_bps, is_host, neighbour in self.graph.hosts)
