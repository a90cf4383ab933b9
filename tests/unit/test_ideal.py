"""The ideal transport: loads of links by hand-computed cases."""

import pytest

from dlcp.model.topology import LeafSpine, Star
from dlcp.substrates.ideal import Transfer, ideal_communication_s, ideal_iteration_s, link_loads_bytes


def test_incast_is_limited_by_the_servers_link() -> None:
    graph = Star(kind="star", hosts=5, rate="100 Mbit/s").graph
    push = [Transfer(f"h{i}", "h5", 1e6) for i in range(1, 5)]
    assert ideal_communication_s(graph, push) == pytest.approx(4e6 * 8 / 1e8)


def test_equal_cost_paths_share_the_load() -> None:
    graph = LeafSpine(kind="leaf-spine", leaves=2, spines=2, hosts=4, rate="100 Mbit/s").graph
    loads = link_loads_bytes(graph, [Transfer("h1", "h4", 1000)])
    assert loads["l1", "s1"] == loads["l1", "s2"] == loads["s1", "l2"] == loads["s2", "l2"] == 500
    assert loads["h1", "l1"] == loads["l2", "h4"] == 1000


def test_traffic_inside_a_leaf_does_not_climb() -> None:
    graph = LeafSpine(kind="leaf-spine", leaves=2, spines=2, hosts=4, rate="100 Mbit/s").graph
    assert set(link_loads_bytes(graph, [Transfer("h1", "h2", 1000)])) == {("h1", "l1"), ("l1", "h2")}


@pytest.mark.parametrize(("compute_s", "expected_s"), [(0.01, 0.08), (0.5, 0.5)])
def test_an_iteration_is_the_longer_of_compute_and_communication(compute_s: float, expected_s: float) -> None:
    graph = Star(kind="star", hosts=2, rate="100 Mbit/s").graph
    assert ideal_iteration_s(graph, [Transfer("h1", "h2", 1e6)], compute_s) == pytest.approx(expected_s)
