"""The timeline of faults as data: what is done when, in which order, and what it leaves a link able to carry."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import TypeAdapter

from dlcp.model.faults import Fault, FaultKind, mean_rate_bps
from dlcp.model.topology import Graph, LeafSpine
from dlcp.substrates.emulate.faults import timeline

GRAPH: Graph = LeafSpine(kind="leaf-spine", leaves=2, spines=2, hosts=4, rate="100 Mbit/s").graph


def fault(**said: Any) -> FaultKind:
    found: FaultKind = TypeAdapter(Fault).validate_python(said)
    return found


def steps(*faults: FaultKind, limit_s: float = 10.0) -> list[tuple[float, int, str, tuple[Any, ...]]]:
    return [
        (round(action.at_s, 9), action.fault, action.call, action.arguments)
        for action in timeline(faults, GRAPH, limit_s)
    ]


def test_each_fault_begins_and_ends() -> None:
    assert steps(fault(kind="gray-failure", at="1 s", source="l1", sink="s1", loss="5 %", **{"for": "500 ms"})) == [
        (1.0, 0, "set_loss", ("l1", "s1", 0.05)),
        (1.5, 0, "set_loss", ("l1", "s1", 0.0)),
    ]
    assert steps(fault(kind="rate-drop", at="1 s", link=("s1", "l1"), rate="10 Mbit/s", **{"for": "1 s"})) == [
        (1.0, 0, "set_rate", ("s1", "l1", 10e6)),
        (2.0, 0, "set_rate", ("s1", "l1", 100e6)),
    ]
    assert steps(fault(kind="queue-frozen", at="1 s", port=("l1", "h1"), queue=3, **{"for": "20 ms"})) == [
        (1.0, 0, "freeze", ("l1", "h1", 3, pytest.approx(0.02))),
        (1.02, 0, "thaw", ("l1", "h1", 3)),
    ]


def test_a_fault_without_an_end_lasts_as_long_as_the_run() -> None:
    assert steps(fault(kind="link-down", at="4 s", link=("l1", "s1")), limit_s=6.0) == [
        (4.0, 0, "set_link", ("l1", "s1", False)),
        (math.inf, 0, "set_link", ("l1", "s1", True)),
    ]


def test_detours_know_every_link_that_is_down_and_noticed() -> None:
    first = fault(kind="link-down", at="1 s", link=("l1", "s1"), reroute_after="100 ms", **{"for": "2 s"})
    second = fault(kind="link-down", at="2 s", link=("l2", "s2"), reroute_after="200 ms", **{"for": "5 s"})
    unseen = fault(kind="link-down", at="1500 ms", link=("l1", "h1"), **{"for": "1 s"})
    detours = [(at, arguments[0]) for at, _, call, arguments in steps(first, second, unseen) if call == "reroute"]
    assert detours == [
        (1.1, (("l1", "s1"),)),
        (2.2, (("l1", "s1"), ("l2", "s2"))),
        (3.1, (("l2", "s2"),)),
        (7.2, ()),
    ]


def test_a_link_mends_before_its_next_fault_begins() -> None:
    gray = {"kind": "gray-failure", "source": "l1", "sink": "s1"}
    later = fault(**gray, at="2 s", loss="50 %", **{"for": "1 s"})
    earlier = fault(**gray, at="1 s", loss="5 %", **{"for": "1 s"})
    assert [arguments[2] for _, _, _, arguments in steps(later, earlier)] == [0.05, 0.0, 0.5, 0.0]


def test_what_a_link_carries_is_less_by_its_rate_drops() -> None:
    drop = fault(kind="rate-drop", at="1 s", link=("s1", "l1"), rate="20 Mbit/s", **{"for": "1 s"})
    assert mean_rate_bps([drop], GRAPH, "l1", "s1", 4.0) == pytest.approx(80e6)
    assert mean_rate_bps([drop], GRAPH, "l1", "s1", 1.5) == pytest.approx(100e6 - 80e6 / 3)
    assert mean_rate_bps([drop], GRAPH, "l1", "s1", 0.5) == 100e6
    assert mean_rate_bps([drop], GRAPH, "l1", "s2", 4.0) == 100e6
