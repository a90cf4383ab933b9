"""The ideal transport: loads of links by hand-computed cases."""

import pytest

from dlcp.agents.job_spec import JobSpec, LayerWork
from dlcp.model.topology import LeafSpine, Star
from dlcp.model.transport.settings import TransportSettings
from dlcp.substrates.ideal import (
    Transfer,
    ideal_communication_s,
    ideal_iteration_s,
    link_loads_bytes,
    transfers_of,
    transfers_seen,
)


def test_incast_is_limited_by_the_servers_link() -> None:
    graph = Star(kind="star", hosts=5, rate="100 Mbit/s").graph
    push = [Transfer(f"h{i}", "h5", 1e6) for i in range(1, 5)]
    assert ideal_communication_s(graph, push) == pytest.approx(4e6 * 8 / 1e8)


@pytest.mark.parametrize(("pattern", "workers"), [("ring", 4), ("transpose", 4), ("transpose", 2)])
def test_all_reduces_move_as_many_bytes_over_each_link_in_each_direction(pattern: str, workers: int) -> None:
    """2 (N - 1) / N of the gradient: a ring in steps, a transpose all at once."""
    graph = Star(kind="star", hosts=4, rate="100 Mbit/s").graph
    hosts = tuple(graph.hosts[:workers])
    spec = JobSpec(
        name="job",
        kind="profile",
        workers=hosts,
        servers=(),
        pattern=pattern,
        iterations=2,
        warmup_iterations=1,
        bucket_bytes=1440 * 80,
        seed=1,
        layers=(LayerWork(name="only", elements=360 * 240),),
    )
    loads = link_loads_bytes(graph, transfers_of(spec, TransportSettings(kind="tcp")))
    ends = {(host, "s1") for host in hosts} | {("s1", host) for host in hosts}
    assert loads == pytest.approx(dict.fromkeys(ends, 360 * 240 * 4 * 2 * (workers - 1) / workers))


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


def test_what_a_job_of_codes_moved_is_what_its_messages_say() -> None:
    messages = {
        "src": ["h1", "h5", "h2", "h1", "h5"],
        "dst": ["h5", "h1", "h5", "h5", "h1"],
        "bytes": [80, 400, 80, 100, 300],
    }
    assert transfers_seen(messages, 2) == [
        Transfer("h1", "h5", 90),
        Transfer("h5", "h1", 350),
        Transfer("h2", "h5", 40),
    ]
