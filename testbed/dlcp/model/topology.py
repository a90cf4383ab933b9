"""Which hosts and switches there are, and how they are linked. No device, no vendor, no emulator in it."""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from dlcp.model.base import Frozen
from dlcp.model.units import Duration, Rate


class Link(Frozen):
    """A full-duplex cable between two nodes; rate and propagation delay hold in each direction."""

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
        found: dict[str, list[str]] = {node: [] for node in (*self.hosts, *self.switches)}
        for link in self.links:
            found[link.a].append(link.b)
            found[link.b].append(link.a)
        return {node: tuple(others) for node, others in found.items()}

    def next_hops(self, switch: str, host: str) -> tuple[str, ...]:
        """The neighbours of `switch` on a shortest path to `host` (equal-cost multipath).

        Empty if unreachable. Hosts do not forward: a path runs through switches alone.
        """
        distance = self.distances_to(host)
        if switch not in distance:
            return ()
        return tuple(n for n in self.neighbours[switch] if distance.get(n, -1) == distance[switch] - 1)

    def distances_to(self, host: str) -> dict[str, int]:
        """Node → links on a shortest path to `host`; nodes from which it cannot be reached are left out."""
        distance = {host: 0}
        todo = deque([host])
        while todo:
            node = todo.popleft()
            if node != host and node in self.hosts:
                continue
            for other in self.neighbours[node]:
                if other not in distance:
                    distance[other] = distance[node] + 1
                    todo.append(other)
        return distance

    def link(self, a: str, b: str) -> Link:
        """The link between two neighbours, in whichever order; KeyError when there is none."""
        for link in self.links:
            if {link.a, link.b} == {a, b}:
                return link
        raise KeyError((a, b))

    def link_rate_bps(self, a: str, b: str) -> float:
        """The rate of the link between two neighbours; KeyError when there is none."""
        return self.link(a, b).rate_bps


class LeafSpine(Frozen):
    """Every leaf is linked to every spine; hosts h1…hN are shared out over the leaves in blocks."""

    kind: Literal["leaf-spine"]
    leaves: int = Field(ge=1, le=64)
    spines: int = Field(ge=1, le=64)
    hosts: int = Field(ge=2, le=256)
    rate_bps: Rate = Field(alias="rate")

    @cached_property
    def graph(self) -> Graph:
        """Leaves l1…, spines s1…; the first ceil(hosts / leaves) hosts hang on l1, and so on."""
        leaves = [f"l{i + 1}" for i in range(self.leaves)]
        spines = [f"s{i + 1}" for i in range(self.spines)]
        hosts = [f"h{i + 1}" for i in range(self.hosts)]
        block = -(-self.hosts // self.leaves)
        links = [Link(a=leaf, b=spine, rate=self.rate_bps) for leaf in leaves for spine in spines]
        links += [Link(a=host, b=leaves[i // block], rate=self.rate_bps) for i, host in enumerate(hosts)]
        return Graph(hosts=tuple(hosts), switches=(*leaves, *spines), links=tuple(links))


class Star(Frozen):
    """One switch s1, hosts h1…hN around it."""

    kind: Literal["star"]
    hosts: int = Field(ge=2, le=256)
    rate_bps: Rate = Field(alias="rate")

    @cached_property
    def graph(self) -> Graph:
        """Every host is linked to s1."""
        hosts = tuple(f"h{i + 1}" for i in range(self.hosts))
        links = tuple(Link(a=host, b="s1", rate=self.rate_bps) for host in hosts)
        return Graph(hosts=hosts, switches=("s1",), links=links)


Topology = Annotated[LeafSpine | Star, Field(discriminator="kind")]
