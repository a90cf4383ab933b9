"""Named topologies as graphs: who hangs where, which ways there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcp.model.check import cut_off
from dlcp.model.topology import Graph, LeafSpine, Link, Star


def leaf_spine(leaves: int, spines: int, hosts: int) -> Graph:
    return LeafSpine(kind="leaf-spine", leaves=leaves, spines=spines, hosts=hosts, rate="100 Mbit/s").graph


def test_quickstart_fabric() -> None:
    graph = leaf_spine(2, 2, 10)
    assert graph.neighbours["l1"] == ("s1", "s2", "h1", "h2", "h3", "h4", "h5")
    assert graph.neighbours["l2"] == ("s1", "s2", "h6", "h7", "h8", "h9", "h10")
    assert graph.next_hops("l1", "h10") == ("s1", "s2")
    assert graph.next_hops("l1", "h2") == ("h2",)
    assert graph.next_hops("s1", "h6") == ("l2",)
    assert graph.link_rate_bps("h1", "l1") == 100e6
    with pytest.raises(KeyError):
        graph.link_rate_bps("h1", "l2")


def test_star() -> None:
    graph = Star(kind="star", hosts=3, rate="10 Mbit/s").graph
    assert graph.neighbours["s1"] == ("h1", "h2", "h3")
    assert graph.distances_to("h1") == {"h1": 0, "s1": 1, "h2": 2, "h3": 2}


@given(st.integers(1, 5), st.integers(1, 4), st.integers(2, 24))
def test_every_next_hop_brings_a_packet_nearer(leaves: int, spines: int, hosts: int) -> None:
    """Packets arrive, over switches alone, in at most three of them, on all equally short ways."""
    graph = leaf_spine(leaves, spines, hosts)
    for host in graph.hosts:
        distance = graph.distances_to(host)
        for switch in graph.switches:
            hops = graph.next_hops(switch, host)
            assert hops
            assert all(distance[hop] == distance[switch] - 1 for hop in hops)
            assert all(hop == host or hop in graph.switches for hop in hops)
        assert max(distance[other] for other in graph.hosts) <= 4


def test_hosts_do_not_forward() -> None:
    links = (Link(a="h1", b="a", rate=1e6), Link(a="h1", b="b", rate=1e6), Link(a="h2", b="b", rate=1e6))
    graph = Graph(hosts=("h1", "h2"), switches=("a", "b"), links=links)
    assert graph.next_hops("a", "h2") == ()
    assert graph.next_hops("b", "h2") == ("h2",)


def test_hosts_that_cannot_be_reached_are_named() -> None:
    links = (Link(a="h1", b="a", rate=1e6), Link(a="h2", b="a", rate=1e6), Link(a="h3", b="b", rate=1e6))
    graph = Graph(hosts=("h1", "h2", "h3"), switches=("a", "b"), links=links)
    assert cut_off(graph) == ["h3"]
    assert cut_off(leaf_spine(2, 2, 10)) == []
