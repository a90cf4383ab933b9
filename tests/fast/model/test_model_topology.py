"""Named topologies as graphs: who hangs where, which ways there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcp.model.loading.check_topology import cut_off
from dlcp.model.loading.experiment_files import load_topology, topology_names
from dlcp.model.topology import AnyGraph, Dumbbell, FatTree, Graph, LeafSpine, Link, Star
from dlcp.paths import TOPOLOGIES


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
    assert cut_off(graph) == ["h3", "b"]
    assert cut_off(leaf_spine(2, 2, 10)) == []


def test_dumbbell() -> None:
    graph = Dumbbell(kind="dumbbell", left=2, right=3, rate="100 Mbit/s", bottleneck="20 Mbit/s", delay="1 ms").graph
    assert graph.neighbours["s1"] == ("s2", "h1", "h2")
    assert graph.neighbours["s2"] == ("s1", "h3", "h4", "h5")
    assert graph.link_rate_bps("s2", "s1") == 20e6
    assert graph.slowest_host_bps == 100e6
    assert {link.delay_s for link in graph.links} == {0.001}


def test_oversubscription_is_in_the_uplinks() -> None:
    shape = LeafSpine(kind="leaf-spine", leaves=2, spines=2, hosts=8, rate="100 Mbit/s", uplink_rate="50 Mbit/s")
    assert shape.graph.link_rate_bps("l1", "s2") == 50e6
    assert shape.graph.host_link("h8").rate_bps == shape.rate_bps == 100e6


@pytest.mark.parametrize("radix", [2, 4, 6])
def test_every_port_of_a_fat_tree_is_used(radix: int) -> None:
    graph = FatTree(kind="fat-tree", radix=radix, rate="10 Mbit/s").graph
    assert len(graph.hosts) == radix * radix // 2
    assert all(len(graph.neighbours[switch]) == radix for switch in graph.switches)
    assert cut_off(graph) == []
    far = graph.hosts[-1]
    assert len(graph.next_hops("l1", far)) == radix // 2


def test_a_graph_stands_for_the_lab_by_its_slowest_host_link() -> None:
    links = [
        {"a": "h1", "b": "a", "rate": "50 Mbit/s"},
        {"a": "b", "b": "h2", "rate": "100 Mbit/s"},
        {"a": "a", "b": "b", "rate": "10 Mbit/s", "delay": "2 ms"},
    ]
    found = AnyGraph(kind="graph", hosts=("h1", "h2"), switches=("a", "b"), links=links)
    assert found.rate_bps == found.graph.slowest_host_bps == 50e6
    assert found.graph.link("b", "a").delay_s == 0.002
    assert found.graph.next_hops("a", "h2") == ("b",)


@pytest.mark.parametrize("name", topology_names())
def test_a_shipped_topology_is_fine_and_explained(name: str) -> None:
    topology, problems = load_topology(name)
    assert problems == []
    assert topology is not None
    assert cut_off(topology.graph) == []
    assert (TOPOLOGIES / f"{name}.yaml").read_text().startswith("# ")
