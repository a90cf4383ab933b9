"""The timeline of faults on a running fabric: each does what it says, with packets and counters, and ends in time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter
from traffic import Sink, at, pace, plain, together, udp

from dlcp.model.faults import Fault, FaultKind
from dlcp.model.frames import UDP_OVERHEAD_BYTES
from dlcp.model.host_settings import HostSettings
from dlcp.model.topology import LeafSpine
from dlcp.substrates.emulate.fabric import Fabric
from dlcp.substrates.emulate.faults import FaultPlayer, timeline

GRAPH = LeafSpine(kind="leaf-spine", leaves=2, spines=2, hosts=4, rate="100 Mbit/s").graph
RATE_MBIT = 40.0
PER_SECOND = RATE_MBIT * 1e6 / 8 / (1400 + UDP_OVERHEAD_BYTES)


def play(faults: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """h1 → h3 over both spines, packet by packet, while a timeline is played; everything that was counted and done."""
    found: list[FaultKind] = TypeAdapter(list[Fault]).validate_python(faults)
    actions = timeline(found, GRAPH, 10.0)
    intent = plain(60_000, load_balancing="per-packet")
    with Fabric(GRAPH, intent, seed=1, host_settings=HostSettings()) as fabric:
        before = fabric.effective()
        sender, receiver = udp(fabric, "h1"), udp(fabric, "h3", port=5000)
        sink = Sink(receiver)
        fabric.reset_counters()
        start_s = time.monotonic() + 0.1
        offset_s = time.time() - time.monotonic()

        def traffic() -> int:
            time.sleep(start_s - time.monotonic())
            return pace(sender, (fabric.address("h3"), 5000), rate_mbit=RATE_MBIT, seconds=seconds)

        player = FaultPlayer(fabric, actions, start_s)
        with player:
            (sent,) = together(traffic)
        unaccounted = fabric.conservation(2.0)
        sink.stop()
        fabric.verify()
        dropped = {
            f"{row['port']} {cause}": row[f"dropped_{cause}_packets"]
            for row in fabric.counters()
            for cause in ("loss", "down", "tail", "unrouted")
            if row["queue"] == row["precedence"] == 0 and row[f"dropped_{cause}_packets"]
        }
        return {
            "sent": sent,
            "arrivals": [moment - offset_s - start_s for moment, _, _ in sink.arrivals],
            "dropped": dropped,
            "unaccounted": unaccounted,
            "mended": fabric.effective() == before == fabric.intended(),
            "done": [done.data() for done in player.done],
            "never": player.never(),
            "lasting": player.lasting,
            "spine_packets": {port: at(fabric, port)[0, 0]["enqueued_packets"] for port in ("l1-s1", "l1-s2")},
        }


def require_sound(seen: dict[str, Any]) -> None:
    """Every packet is accounted for, and the fabric is as it was."""
    assert seen["unaccounted"] == []
    assert seen["mended"]
    assert seen["sent"] == len(seen["arrivals"]) + sum(seen["dropped"].values())


def within(seen: dict[str, Any], begin_s: float, end_s: float) -> int:
    return sum(begin_s <= moment < end_s for moment in seen["arrivals"])


def moments(seen: dict[str, Any]) -> list[float]:
    """When each step took effect: late on a machine that is busy, so what is expected is counted from there."""
    return [step["done_s"] for step in seen["done"]]


def test_a_gray_failure_loses_its_share_of_one_direction(inside: Callable[..., Any]) -> None:
    gray = {"kind": "gray-failure", "at": 0.2, "for": 0.5, "from": "l1", "to": "s1", "loss": 0.3}
    seen = inside(play, faults=[gray], seconds=1.0)
    require_sound(seen)
    assert list(seen["dropped"]) == ["l1-s1 loss"]
    assert [step["event"] for step in seen["done"]] == ["begin", "end"]
    begun_s, ended_s = moments(seen)
    expected = PER_SECOND * (ended_s - begun_s) / 2 * 0.3
    assert seen["dropped"]["l1-s1 loss"] == pytest.approx(expected, rel=0.35), "about 260, five standard deviations"


def test_a_cut_link_loses_what_it_is_given_until_the_detour(inside: Callable[..., Any]) -> None:
    cut = {"kind": "link-down", "at": 0.2, "for": 0.5, "link": ("l1", "s1"), "reroute_after": 0.1}
    seen = inside(play, faults=[cut], seconds=1.2)
    require_sound(seen)
    assert set(seen["dropped"]) <= {"l1-s1 down", "s1-l1 down"}
    assert [step["event"] for step in seen["done"]] == ["begin", "reroute", "end", "reroute"]
    cut_s, noticed_s, _, back_s = moments(seen)
    expected = PER_SECOND * (noticed_s - cut_s) / 2
    assert seen["dropped"]["l1-s1 down"] == pytest.approx(expected, rel=0.5), "half of 0.1 s, not of 0.5 s"
    first, second = seen["spine_packets"]["l1-s1"], seen["spine_packets"]["l1-s2"]
    alone = PER_SECOND * (back_s - noticed_s + (noticed_s - cut_s) / 2)
    assert second - first == pytest.approx(alone, rel=0.3), "for 0.5 s all that is left goes by s2"


def test_a_cut_that_nobody_notices_loses_its_half_to_the_end(inside: Callable[..., Any]) -> None:
    cut = {"kind": "link-down", "at": 0.3, "link": ("s1", "l1")}
    seen = inside(play, faults=[cut], seconds=0.8)
    require_sound(seen)
    expected = PER_SECOND * (0.8 - moments(seen)[0]) / 2
    assert seen["dropped"]["l1-s1 down"] == pytest.approx(expected, rel=0.3)
    assert seen["lasting"] == ["cut of s1 – l1"]
    assert [(step["event"], step["done_s"] is None) for step in seen["done"]] == [("begin", False), ("end", True)]


def test_a_rate_drop_slows_the_link_and_comes_back(inside: Callable[..., Any]) -> None:
    drop = {"kind": "rate-drop", "at": 0.2, "for": 0.4, "link": ("h3", "l2"), "rate": 10e6}
    seen = inside(play, faults=[drop], seconds=0.9)
    require_sound(seen)
    dropped_s, back_s = moments(seen)
    slow = within(seen, dropped_s + 0.05, back_s - 0.05) / (back_s - dropped_s - 0.1)
    assert slow == pytest.approx(PER_SECOND * 10 / RATE_MBIT, rel=0.15)
    assert list(seen["dropped"]) == ["l2-h3 tail"]


def test_a_frozen_queue_lets_nothing_out(inside: Callable[..., Any]) -> None:
    frozen = {"kind": "queue-frozen", "at": 0.3, "for": 0.2, "port": ("l2", "h3"), "queue": 0}
    seen = inside(play, faults=[frozen], seconds=0.8)
    require_sound(seen)
    begun_s = moments(seen)[0]
    assert within(seen, begun_s + 0.01, begun_s + 0.18) <= 1
    assert within(seen, begun_s + 0.3, math.inf) > 300, "it goes on"
    assert list(seen["dropped"]) == ["l2-h3 tail"]


def test_what_comes_after_the_end_never_happens_and_is_told(inside: Callable[..., Any]) -> None:
    late = {"kind": "gray-failure", "at": 5.0, "for": 0.5, "from": "l1", "to": "s1", "loss": 0.3}
    seen = inside(play, faults=[late], seconds=0.2)
    require_sound(seen)
    assert seen["done"] == []
    assert seen["never"] == ["30 % loss from l1 → s1, planned at 5 s, did not happen: the job was over before"]
