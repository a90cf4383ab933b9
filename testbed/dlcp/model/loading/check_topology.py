"""Checks of a topology beyond each value's type: it can be wired, and all hosts reach each other."""

from __future__ import annotations

from collections.abc import Iterator

from dlcp.model.loading.document import Loc
from dlcp.model.loading.explain import did_you_mean
from dlcp.model.loading.notes import Notes
from dlcp.model.topology import AnyGraph, Graph, LeafSpine, Link, TopologyKind

LONGEST_DEVICE_NAME = 15
"""Longest name of a network interface in Linux (IFNAMSIZ less one)."""

_HERE: Loc = ("topology",)


def device_name(node: str, neighbour: str, *, is_host: bool) -> str:
    """Name of the interface of a node at its end of a link: a host has one, a switch one for each neighbour."""
    return f"{node}-eth0" if is_host else f"{node}-{neighbour}"


def check_topology(notes: Notes, topology: TopologyKind) -> Graph | None:
    """The graph of a topology; None when it is no graph that further checks could ask of."""
    if isinstance(topology, AnyGraph) and _ill_formed(notes, topology):
        return None
    graph = topology.graph
    lost = cut_off(graph)
    if lost:
        notes.wrong(_HERE, f"{graph.hosts[0]} cannot reach {', '.join(lost)}", "link their switches")
    if isinstance(topology, LeafSpine):
        bare = [s for s in graph.switches[: topology.leaves] if not set(graph.neighbours[s]) & set(graph.hosts)]
        if bare:
            hint = "use fewer leaves, or more hosts: they are shared out in blocks of hosts / leaves, rounded up"
            notes.warn((*_HERE, "leaves"), f"no host hangs on {', '.join(bare)}", hint)
    return graph


def cut_off(graph: Graph) -> list[str]:
    """Hosts and switches that the first host cannot reach. Links go both ways, so without any, all reach all."""
    reached = graph.distances_to(graph.hosts[0])
    return [node for node in (*graph.hosts, *graph.switches) if node not in reached]


def _ill_formed(notes: Notes, topology: AnyGraph) -> bool:
    """Report problems with names, links and the placement of hosts; return true if there is any."""
    before = len(notes.problems)
    _check_names(notes, topology)
    known = {*topology.hosts, *topology.switches}
    first: dict[frozenset[str], int] = {}
    for i, link in enumerate(topology.links):
        link_loc: Loc = (*_HERE, "links", i)
        unknown = [end for end in (link.a, link.b) if end not in known]
        for key, end in (("a", link.a), ("b", link.b)):
            if end in unknown:
                notes.wrong(
                    (*link_loc, key),
                    f"the topology has no node {end!r}",
                    did_you_mean(end, (*topology.switches, *topology.hosts)),
                )
        if unknown:
            continue
        if link.a == link.b:
            notes.wrong(link_loc, f"a link from {link.a} to itself", "a link joins two nodes")
        elif first.setdefault(frozenset((link.a, link.b)), i) != i:
            line = notes.document.line((*_HERE, "links", first[frozenset((link.a, link.b))]))
            problem = f"{link.a} and {link.b} are linked already, in line {line}"
            notes.wrong(link_loc, problem, "one link for each pair: a higher rate, or another switch between them")
        else:
            _check_devices(notes, link_loc, link, topology)
    _check_host_links(notes, topology)
    return len(notes.problems) > before


def _check_names(notes: Notes, topology: AnyGraph) -> None:
    used: set[str] = set()
    for key, names in (("hosts", topology.hosts), ("switches", topology.switches)):
        for i, name in enumerate(names):
            if name in used:
                notes.wrong((*_HERE, key, i), f"two nodes are called {name}", "every host and switch has its own name")
            used.add(name)


def _check_devices(notes: Notes, here: Loc, link: Link, topology: AnyGraph) -> None:
    if link.a in topology.hosts and link.b in topology.hosts:
        problem = f"{link.a} and {link.b} are both hosts"
        notes.wrong(here, problem, "hosts do not forward: link each of them to a switch")
        return
    for node, other in ((link.a, link.b), (link.b, link.a)):
        device = device_name(node, other, is_host=node in topology.hosts)
        if len(device) > LONGEST_DEVICE_NAME:
            problem = f"the device {device} would have {len(device)} characters, Linux takes {LONGEST_DEVICE_NAME}"
            notes.wrong(here, problem, "use shorter node names")


def _check_host_links(notes: Notes, topology: AnyGraph) -> None:
    for i, host in enumerate(topology.hosts):
        links = list(_links_of(topology, host))
        if not links:
            notes.wrong((*_HERE, "hosts", i), f"{host} has no link", "link it to a switch")
        for j in links[1:]:
            problem = f"{host} hangs on a switch already, by link {links[0] + 1}"
            notes.wrong((*_HERE, "links", j), problem, "a host has one link: its one interface")


def _links_of(topology: AnyGraph, node: str) -> Iterator[int]:
    """Positions of a node's links; of two between the same pair, which is a problem of its own, the first."""
    pairs: set[frozenset[str]] = set()
    for i, link in enumerate(topology.links):
        ends = frozenset((link.a, link.b))
        if node in ends and ends not in pairs and len(ends) > 1:
            pairs.add(ends)
            yield i
