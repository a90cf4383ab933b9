"""The plan of a fabric: indexes, names, addresses, routes."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from dlcp.errors import Problem
from dlcp.model.topology import Graph, LeafSpine, Link
from dlcp.substrates.emulate.wiring_plan import Wiring


def leaf_spine(**more: object) -> Wiring:
    """2 × 2 with ten hosts, as the quickstart."""
    size = {"leaves": 2, "spines": 2, "hosts": 10, "rate": "100 Mbit/s"} | more
    return Wiring(LeafSpine.model_validate({"kind": "leaf-spine", **size}).graph)


def test_the_ends_of_a_link_are_neighbouring_indexes() -> None:
    wiring = leaf_spine()
    assert all(a.ifindex ^ 1 == b.ifindex for a, b in wiring.links)
    indexes = [end.ifindex for end in wiring.ends]
    assert len(set(indexes)) == len(indexes) == 2 * 14
    assert len({end.mac for end in wiring.ends}) == len(indexes)


def test_names_and_addresses() -> None:
    wiring = leaf_spine()
    assert wiring.host_ends["h10"].device == "h10-eth0"
    assert {end.device for end in wiring.switch_ends if end.node == "s1"} == {"s1-l1", "s1-l2"}
    assert str(wiring.address("h10")) == "198.18.0.10/15"
    assert str(leaf_spine(hosts=256, leaves=16).address("h256").ip) == "198.18.1.0"


def test_routes_are_all_shortest_paths() -> None:
    wiring = leaf_spine()
    device = {end.ifindex: end.device for end in wiring.ends}
    routes = {key: sorted(device[index] for index in ways) for key, ways in wiring.routes().items()}
    near, far = IPv4Address("198.18.0.1"), IPv4Address("198.18.0.10")
    assert len(routes) == 4 * 10
    assert routes["l1", near] == ["l1-h1"]
    assert routes["l1", far] == ["l1-s1", "l1-s2"]
    assert routes["s2", far] == ["s2-l2"]


def test_a_name_that_linux_cannot_hold_is_refused() -> None:
    graph = Graph(hosts=("h1", "h2"), switches=("a-very-long-name",), links=())
    links = tuple(Link(a=host, b="a-very-long-name", rate=1e6) for host in graph.hosts)
    with pytest.raises(Problem, match="19 characters, Linux takes 15"):
        _ = Wiring(graph.model_copy(update={"links": links})).links


def test_a_host_with_two_links_is_refused() -> None:
    links = (Link(a="h1", b="s1", rate=1e6), Link(a="h1", b="s2", rate=1e6), Link(a="h2", b="s1", rate=1e6))
    with pytest.raises(Problem, match="h1: has 2 links"):
        _ = Wiring(Graph(hosts=("h1", "h2"), switches=("s1", "s2"), links=links)).links


def test_a_link_with_a_delay_has_two_inner_ends() -> None:
    """The account finds a far end by ifindex ^ 1, and the program the other inner end by ifindex ^ 3."""
    links = (
        Link(a="h1", b="a", rate=1e6),
        Link(a="a", b="b", rate=1e6, delay=0.002),
        Link(a="h2", b="b", rate=1e6, delay=0.001),
    )
    wiring = Wiring(Graph(hosts=("h1", "h2"), switches=("a", "b"), links=links))
    assert [(a.ifindex, b.ifindex) for a, b in wiring.links] == [(100, 101), (104, 107), (108, 111)]
    assert [(wire.ifindex, wire.node, wire.delay_s) for wire in wiring.wires] == [
        (105, "a", 0.002),
        (106, "b", 0.002),
        (109, "h2", 0.001),
        (110, "b", 0.001),
    ]
    assert sorted((a.ifindex, b.ifindex) for a, b in wiring.pairs) == [
        (100, 101),
        (104, 105),
        (107, 106),
        (108, 109),
        (111, 110),
    ]
    devices = [end.device for pair in wiring.pairs for end in pair]
    assert len(set(devices)) == 10
    assert {"a-b", "b-a", "wire105", "wire106"} <= set(devices)
