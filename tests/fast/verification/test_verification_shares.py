"""Judging balance, selective drop, rates and paths; and who is chosen to send what for them."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from dlcp.model.qos import DropProfile, LoadBalancing, QosIntent, QueueIntent
from dlcp.model.topology import Graph, LeafSpine, Link, Star
from dlcp.verification import balance, overload, rates, reachability
from dlcp.verification.codepoint_counters import pairs
from dlcp.verification.placement import Station, cushion_bytes, station
from dlcp.verification.rows import Row

LEAF_SPINE = LeafSpine(kind="leaf-spine", leaves=2, spines=2, hosts=10, rate=100e6).graph
CROSSING = balance.Crossing("l1", "h1", "h6", ("s1", "s2"))
ALPHA = 1e-4


def split(share: float, per_unit: int, seed: int = 1) -> list[int]:
    """Packets of two next hops when each unit takes the first with that share."""
    units = balance.PACKETS // per_unit
    first = int(np.random.default_rng(seed).binomial(units, share)) * per_unit
    return [first, balance.PACKETS - first]


@pytest.mark.parametrize("balancing", get_args(LoadBalancing))
def test_an_even_split_passes_and_a_biased_one_deviates(balancing: LoadBalancing) -> None:
    _, per_unit = balance.train(LEAF_SPINE, CROSSING, balancing, 0.0005)
    even = [2400, 2400] if balancing == "round-robin" else split(0.5, per_unit)
    assert balance.judge(CROSSING, balancing, even, per_unit, ALPHA).verdict == "ok"
    assert balance.judge(CROSSING, balancing, split(0.7, per_unit), per_unit, ALPHA).verdict == "deviates"
    assert balance.judge(CROSSING, balancing, [balance.PACKETS, 0], per_unit, ALPHA).verdict == "deviates"


def test_an_even_split_passes_as_often_as_is_said() -> None:
    wrong = sum(
        balance.judge(CROSSING, "per-packet", split(0.5, 1, seed), 1, 0.01).verdict != "ok" for seed in range(400)
    )
    assert wrong <= 14, "two ends of 0.5 % each, of one number: 4 of 400 on average, 14 once in 10^4"


def test_flow_hash__flows_stay_together() -> None:
    _, per_unit = balance.train(LEAF_SPINE, CROSSING, "flow-hash", 0.0005)
    torn = [2400 + 1, 2400 - 1]
    row = balance.judge(CROSSING, "flow-hash", torn, per_unit, ALPHA)
    assert row.verdict == "deviates"
    assert "several ways" in row.why


def test_flowlet__bursts_of_a_flow_are_apart_by_more_than_the_gap() -> None:
    send, _ = balance.train(LEAF_SPINE, CROSSING, "flowlet", 0.01)
    apart_s = (send.flows - 1) * send.burst * send.pattern[0][1] * 8 / send.rate_bps
    assert apart_s > 2 * 0.01


def test_every_switch_with_several_next_hops_is_crossed() -> None:
    found = balance.crossings(LEAF_SPINE)
    assert [(one.switch, one.hops) for one in found] == [("l1", ("s1", "s2")), ("l2", ("s1", "s2"))]
    assert balance.crossings(Star(kind="star", hosts=4, rate=1e8).graph) == []


WRED = overload.Pairing(3, "precedence 0", "precedence 2", 0x60, 0x70)


def outcome(protected_lost: float, droppable_lost: float) -> overload.Outcome:
    return overload.Outcome(
        2000, round(2000 * (1 - protected_lost)), 2000, round(2000 * (1 - droppable_lost)), 0.3028, 0.75
    )


@pytest.mark.parametrize(
    ("protected_lost", "droppable_lost", "verdict"),
    [(0.0, 0.75, "ok"), (0.375, 0.375, "deviates"), (0.01, 0.74, "deviates"), (0.0, 0.4, "deviates")],
    ids=["selective", "both alike", "some protected", "fewer than the overload"],
)
def test_selective_drop(protected_lost: float, droppable_lost: float, verdict: str) -> None:
    row = overload.judge("s1-h1", WRED, 100e6, outcome(protected_lost, droppable_lost))
    assert row.verdict == verdict


def test_selective_drop__without_overload_nothing_is_concluded() -> None:
    calm = overload.Outcome(2000, 2000, 2000, 2000, 0.6, 0.0)
    assert overload.judge("s1-h1", WRED, 100e6, calm).verdict == "inconclusive"


def test_ideal_loss__is_what_does_not_fit_at_every_moment() -> None:
    frame_s = 1514 * 8 / 80e6
    steady = np.arange(2_000) * frame_s
    assert overload.ideal_loss(steady, steady, 100e6, 10_000) == pytest.approx(0.75, abs=0.01), "1.6 offered, 1 fits"
    assert overload.ideal_loss(steady, steady + 1.0, 100e6, 10_000) == 0, "one after the other there is no overload"
    halfway = np.concatenate([steady[:1_000], steady[1_000:] + 1.0])
    assert overload.ideal_loss(steady, halfway, 100e6, 10_000) == pytest.approx(0.375, abs=0.01)


def test_pairings__of_wred_and_of_ect() -> None:
    drop, mark = DropProfile(minimum=1, maximum=2), DropProfile(minimum=1, maximum=1, mark=True)
    queues = {1: QueueIntent(profiles=(None, None, drop)), 2: QueueIntent(profiles=(mark, None, None))}
    found = overload.pairings(QosIntent(name="x", port_buffer=60_000, queues=queues))
    assert [(one.queue, one.protected, one.droppable) for one in found] == [
        (1, "precedence 0", "precedence 2"),
        (2, "precedence 0, ECT", "precedence 0, Not-ECT"),
    ]


@pytest.mark.parametrize(
    ("measured_mbit", "offered", "verdict"),
    [
        (100.3, 1.5, "ok"),
        (98, 1.5, "deviates"),
        (102, 1.5, "deviates"),
        (102, 1.0, "deviates"),
        (99.8, 1.0, "ok"),
        (70, 1.0, "inconclusive"),
        (64, 0.67, "ok"),
        (40, 0.67, "inconclusive"),
    ],
)
def test_rate(measured_mbit: float, offered: float, verdict: str) -> None:
    row = rates.judge(("h1", "s1"), 100e6, measured_mbit * 1e6, 0.4, offered)
    assert row.verdict == verdict
    assert row.what == ("saturated" if offered > 1 else "lower bound")


def test_rate__of_arrivals() -> None:
    times = np.arange(2_000) * int(1514 * 8 / 100e6 * 1e9)
    arrivals = np.zeros(2_000, np.dtype([("arrived_ns", "<u8")]))
    arrivals["arrived_ns"] = times
    measured_bps, took_s = rates.received_bps(arrivals)
    assert measured_bps == pytest.approx(100e6, rel=1e-3)
    assert took_s == pytest.approx(0.9 * 2_000 * 1514 * 8 / 100e6, rel=1e-2)


def arrivals_at(rate_bps: float, stalls: int = 0) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """2000 frames at a rate, held up for 2 ms so many times."""
    gaps = np.full(2_000, 1514 * 8e9 / rate_bps)
    gaps[:: max(1, 2_000 // stalls) if stalls else 2_001] += 2e6 if stalls else 0
    arrivals = np.zeros(2_000, np.dtype([("arrived_ns", "<u8")]))
    arrivals["arrived_ns"] = np.cumsum(gaps)
    return arrivals


def test_rate__a_busy_machine_is_told_from_a_slow_link() -> None:
    assert rates.quick_bps(arrivals_at(50e6)) == pytest.approx(50e6, rel=0.01)
    held_up = arrivals_at(100e6, stalls=20)
    assert rates.received_bps(held_up)[0] < 90e6
    assert rates.quick_bps(held_up) == pytest.approx(100e6, rel=0.01)


def directions(graph: Graph) -> set[tuple[str, str]]:
    return {way for link in graph.links for way in ((link.a, link.b), (link.b, link.a))}


@pytest.mark.parametrize(
    "graph",
    [
        LEAF_SPINE,
        Star(kind="star", hosts=4, rate=1e8).graph,
        LeafSpine(kind="leaf-spine", leaves=4, spines=2, hosts=16, rate=1e8).graph,
    ],
)
def test_every_link_is_measured_in_each_direction(graph: Graph) -> None:
    aims = [*rates.host_aims(graph), *rates.switch_aims(graph)]
    measured = [link for aim in aims for link in aim.links]
    assert sorted(measured) == sorted(directions(graph)), "once each"


def test_links_from_the_leaves_are_saturated_and_those_to_them_are_not() -> None:
    found = rates.expected(rates.switch_aims(LEAF_SPINE))
    assert found[("l1", "s1")]
    assert not found[("s1", "l2")], "what comes from one link of the same rate cannot exceed it"


def test_hosts_measured_together_do_not_share_a_link() -> None:
    for aim in rates.host_aims(LEAF_SPINE):
        offered = rates.fluid(LEAF_SPINE, aim.flows)
        crowded = {link for link, asked in offered.items() if asked > 1.01 * LEAF_SPINE.link_rate_bps(*link)}
        assert crowded <= set(aim.links)


def test_fluid__splits_evenly_and_passes_no_more_than_a_link_has() -> None:
    offered = rates.fluid(LEAF_SPINE, [("h1", "h6"), ("h2", "h7"), ("h3", "h8")])
    assert offered[("l1", "s1")] == pytest.approx(150e6)
    assert offered[("s1", "l2")] == pytest.approx(100e6)


def test_station__the_tester_is_at_the_same_switch_and_the_blocker_fills_the_port() -> None:
    found = station(LEAF_SPINE, "l1", "h1")
    assert isinstance(found, Station)
    assert {found.tester, found.blocker} <= {"h2", "h3", "h4", "h5"}
    rates_bps = {"h1": 1e9, "h2": 1e8, "h3": 1e8}
    links = tuple(Link(a=host, b="s1", rate=rate) for host, rate in rates_bps.items())
    uneven = Graph(hosts=tuple(rates_bps), switches=("s1",), links=links)
    assert isinstance(station(uneven, "s1", "h1"), str), "no host is fast enough to keep it busy"
    assert isinstance(station(uneven, "s1", "h2"), Station)
    slow_sink = Graph(hosts=("h4", *rates_bps), switches=("s1",), links=(Link(a="h4", b="s1", rate=1e8), *links))
    chosen = station(slow_sink, "s1", "h4")
    assert isinstance(chosen, Station)
    assert (chosen.blocker, chosen.tester) == ("h2", "h1"), "the blocker's own link paces it, the tester is quick"
    slower = station(LEAF_SPINE, "l1", "h1", {("l1", "h1"): 5e7})
    assert isinstance(slower, Station)
    assert (slower.rate_bps, slower.blocker_bps) == (5e7, 1e8), "blocked at the rate that it has"


def test_cushion__whole_frames_below_what_the_top_queue_itself_drops() -> None:
    assert cushion_bytes(QosIntent(name="x", port_buffer="40 kB")) == 6 * 1514
    drop = DropProfile(minimum="8 kB", maximum="9 kB")
    queues = {7: QueueIntent(profiles=(drop, None, None))}
    assert cushion_bytes(QosIntent(name="x", port_buffer="40 kB", queues=queues)) == 2 * 1514


def test_all_switches_are_crossed_by_few_pairs() -> None:
    found = pairs(LEAF_SPINE)
    assert {switch for crossed in found.values() for switch in crossed} == {"l1", "l2", "s1", "s2"}
    assert len(found) <= 2


def test_reachability() -> None:
    reached = {("h1", "h2"): 4, ("h2", "h1"): 4}
    assert reachability.judge_reach(reached).verdict == "ok"
    row = reachability.judge_reach(reached | {("h2", "h1"): 0})
    assert (row.verdict, row.why) == ("deviates", "nothing arrives from h2 at h1")


def test_delay() -> None:
    links = (Link(a="h1", b="s1", rate=1e8, delay=0.002), Link(a="h2", b="s1", rate=1e8, delay=0.001))
    graph = Graph(hosts=("h1", "h2"), switches=("s1",), links=links)
    low, high = reachability.delays_s(graph, "h1", "h2")
    assert low == high == pytest.approx(0.003, abs=2e-5)
    wanted = {("h1", "h2"): (low, high)}
    assert reachability.judge_delay(wanted, {("h1", "h2"): 0.0031}).verdict == "ok"
    assert reachability.judge_delay(wanted, {("h1", "h2"): 0.001}).verdict == "deviates"
    assert reachability.judge_delay(wanted, {("h1", "h2"): 0.005}).verdict == "deviates"
    assert reachability.judge_delay({}, {}).verdict == "inconclusive"


@pytest.mark.parametrize(
    ("off", "verdict", "told"),
    [((0.0,), "ok", 100.0), ((-0.1, 0.0), "ok", 100.0), ((-0.1, -0.03, -0.2), "deviates", 97.0)],
)
def test_rate__only_what_deviates_every_time_does_and_all_tries_are_told(
    off: tuple[float, ...], verdict: str, told: float
) -> None:
    turns = []

    def measure(turn: int) -> list[Row]:
        turns.append(turn)
        return [rates.judge(("h1", "s1"), 100e6, 100e6 * (1 + off[turn]), 1.0)]

    (row,) = rates._again(measure)
    assert turns == list(range(len(off)))
    assert (row.verdict, row.data["measured_bps"]) == (verdict, pytest.approx(told * 1e6))
    assert row.data["tries_bps"] == pytest.approx([100e6 * (1 + one) for one in off])
