"""Hosts, switches and links of a network. No device, no vendor, no emulator in it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from dlcp.model.base import Frozen
from dlcp.model.units import Duration, QuantityError, Rate

MOST_HOSTS = 256
MOST_SWITCHES = 128
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def _node_name(name: str) -> str:
    """A switch port is called SWITCH-NEIGHBOUR, so that a dash inside a name would make two ports of one name."""
    if not _NAME.fullmatch(name):
        raise QuantityError(f"{name!r} is no name of a node", "a letter, then letters, digits and underscores")
    return name


Node = Annotated[str, AfterValidator(_node_name)]


class Link(Frozen):
    """A full-duplex cable between two nodes; rate and propagation delay, both as emulated, hold in each direction."""

    a: str
    b: str
    rate_bps: Rate = Field(alias="rate")
    delay_s: Duration = Field(default=0.0, alias="delay")


class Graph(Frozen):
    """Hosts, switches and links by name. Every topology becomes one."""

    hosts: tuple[str, ...]
    switches: tuple[str, ...]
    links: tuple[Link, ...]

    @cached_property
    def neighbours(self) -> dict[str, tuple[str, ...]]:
        """Node → the nodes that a link joins it to, in the order of the links."""
        joined: dict[str, list[str]] = {node: [] for node in (*self.hosts, *self.switches)}
        for link in self.links:
            joined[link.a].append(link.b)
            joined[link.b].append(link.a)
        return {node: tuple(others) for node, others in joined.items()}

    def next_hops(self, switch: str, host: str) -> tuple[str, ...]:
        """The neighbours of `switch` on a shortest path to `host` (equal-cost multipath).

        Empty if unreachable. Hosts do not forward: a path runs through switches alone.
        """
        return self.next_hops_to(host).get(switch, ())

    def next_hops_to(self, host: str) -> dict[str, tuple[str, ...]]:
        """Switch → its next hops to `host`; switches from which it cannot be reached are left out."""
        distance = self.distances_to(host)
        return {
            switch: tuple(n for n in self.neighbours[switch] if distance.get(n, -1) == distance[switch] - 1)
            for switch in self.switches
            if switch in distance
        }

    def distances_to(self, host: str) -> dict[str, int]:
        """Node → links on a shortest path to `host`; nodes from which it cannot be reached are left out."""
        distance = {host: 0}
        todo = deque([host])
        hosts = frozenset(self.hosts)
        while todo:
            node = todo.popleft()
            if node != host and node in hosts:
                continue
            for other in self.neighbours[node]:
                if other not in distance:
                    distance[other] = distance[node] + 1
                    todo.append(other)
        return distance

    def link(self, a: str, b: str) -> Link:
        """The link between two neighbours, in whichever order; KeyError when there is none."""
        return self._by_ends[frozenset((a, b))]

    def link_rate_bps(self, a: str, b: str) -> float:
        """The rate of the link between two neighbours; KeyError when there is none."""
        return self.link(a, b).rate_bps

    def host_link(self, host: str) -> Link:
        """The link that a host hangs on."""
        return self.link(host, self.neighbours[host][0])

    def without(self, cut: Iterable[tuple[str, str]]) -> Graph:
        """The graph that is left when some links, each named by its ends in whichever order, are taken away."""
        gone = {frozenset(ends) for ends in cut}
        left = tuple(link for link in self.links if frozenset((link.a, link.b)) not in gone)
        return Graph(hosts=self.hosts, switches=self.switches, links=left)

    @cached_property
    def slowest_host_bps(self) -> float:
        """The rate of the slowest link that a host hangs on: what stands for the lab's rate."""
        return min(self.host_link(host).rate_bps for host in self.hosts)

    @cached_property
    def _by_ends(self) -> dict[frozenset[str], Link]:
        return {frozenset((link.a, link.b)): link for link in self.links}


class Star(Frozen):
    """One switch s1, hosts h1…hN around it. delay: of every link."""

    kind: Literal["star"]
    hosts: int = Field(ge=2, le=MOST_HOSTS)
    rate_bps: Rate = Field(alias="rate")
    delay_s: Duration = Field(default=0.0, alias="delay")

    @cached_property
    def graph(self) -> Graph:
        """Every host is linked to s1."""
        hosts = _numbered("h", self.hosts)
        links = tuple(_link(host, "s1", self.rate_bps, self.delay_s) for host in hosts)
        return Graph(hosts=hosts, switches=("s1",), links=links)


class Dumbbell(Frozen):
    """Hosts h1…hL on switch s1, the next R on s2; one link of rate `bottleneck` joins the two. delay: of every link."""

    kind: Literal["dumbbell"]
    left: int = Field(ge=1, le=MOST_HOSTS // 2)
    right: int = Field(ge=1, le=MOST_HOSTS // 2)
    rate_bps: Rate = Field(alias="rate")
    bottleneck_bps: Rate = Field(alias="bottleneck")
    delay_s: Duration = Field(default=0.0, alias="delay")

    @cached_property
    def graph(self) -> Graph:
        """The bottleneck is the first link."""
        hosts = _numbered("h", self.left + self.right)
        links = [_link("s1", "s2", self.bottleneck_bps, self.delay_s)]
        links += [
            _link(host, "s1" if i < self.left else "s2", self.rate_bps, self.delay_s) for i, host in enumerate(hosts)
        ]
        return Graph(hosts=hosts, switches=("s1", "s2"), links=tuple(links))


class LeafSpine(Frozen):
    """Every leaf is linked to every spine; hosts h1…hN are shared out over the leaves in blocks.

    rate: of the hosts' links. uplink_rate: of those between leaf and spine, if it is another. delay: of every link.
    """

    kind: Literal["leaf-spine"]
    leaves: int = Field(ge=1, le=64)
    spines: int = Field(ge=1, le=64)
    hosts: int = Field(ge=2, le=MOST_HOSTS)
    rate_bps: Rate = Field(alias="rate")
    uplink_rate_bps: Rate | None = Field(default=None, alias="uplink_rate")
    delay_s: Duration = Field(default=0.0, alias="delay")

    @cached_property
    def graph(self) -> Graph:
        """Leaves l1…, spines s1…; the first ceil(hosts / leaves) hosts hang on l1, and so on."""
        block = -(-self.hosts // self.leaves)
        uplink_bps = self.rate_bps if self.uplink_rate_bps is None else self.uplink_rate_bps
        return _two_tiers(self.leaves, self.spines, self.hosts, block, (self.rate_bps, uplink_bps), self.delay_s)


class FatTree(Frozen):
    """Two tiers of switches with `radix` ports: as many leaves, each with radix / 2 hosts and a link to each of
    radix / 2 spines, all at one rate, so that nothing is oversubscribed. delay: of every link."""

    kind: Literal["fat-tree"]
    radix: int = Field(ge=2, le=22, multiple_of=2)
    rate_bps: Rate = Field(alias="rate")
    delay_s: Duration = Field(default=0.0, alias="delay")

    @cached_property
    def graph(self) -> Graph:
        """Leaves l1…, spines s1…, hosts h1… in blocks of radix / 2."""
        half = self.radix // 2
        return _two_tiers(self.radix, half, self.radix * half, half, (self.rate_bps, self.rate_bps), self.delay_s)


class WrittenLink(Link):
    """A link as a person names it."""

    a: Node
    b: Node


class AnyGraph(Frozen):
    """Any hosts, switches and links, each link with its rate and, if it has one, its delay. Every host has one link."""

    kind: Literal["graph"]
    hosts: tuple[Node, ...] = Field(min_length=2, max_length=MOST_HOSTS)
    switches: tuple[Node, ...] = Field(min_length=1, max_length=MOST_SWITCHES)
    links: tuple[WrittenLink, ...] = Field(min_length=2)

    @cached_property
    def graph(self) -> Graph:
        """As it is written."""
        return Graph(hosts=self.hosts, switches=self.switches, links=self.links)

    @property
    def rate_bps(self) -> float:
        """Rate of the slowest link of a host."""
        return self.graph.slowest_host_bps


TopologyKind = Star | Dumbbell | LeafSpine | FatTree | AnyGraph
Topology = Annotated[TopologyKind, Field(discriminator="kind")]
"""rate_bps of each is the rate of the slowest link that a host hangs on, which stands for the lab's."""


def _numbered(letter: str, count: int) -> tuple[str, ...]:
    return tuple(f"{letter}{i + 1}" for i in range(count))


def _link(a: str, b: str, rate_bps: float, delay_s: float) -> Link:
    return Link(a=a, b=b, rate=rate_bps, delay=delay_s)


def _two_tiers(
    leaf_count: int, spine_count: int, host_count: int, block: int, rates_bps: tuple[float, float], delay_s: float
) -> Graph:
    """rates_bps: of the hosts' links, of the uplinks."""
    leaves, spines, hosts = _numbered("l", leaf_count), _numbered("s", spine_count), _numbered("h", host_count)
    links = [_link(leaf, spine, rates_bps[1], delay_s) for leaf in leaves for spine in spines]
    links += [_link(host, leaves[i // block], rates_bps[0], delay_s) for i, host in enumerate(hosts)]
    return Graph(hosts=hosts, switches=(*leaves, *spines), links=tuple(links))
