"""Links that lose, break, slow down; queues that stand still; routes that follow: with the account exact throughout."""

from __future__ import annotations

import itertools
import math
import subprocess
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from traffic import Sink, at, leaf_spine, name_of, pace, plain, star, together, tos, udp

from dlcp.model.frames import UDP_OVERHEAD_BYTES
from dlcp.substrates.emulate.fabric import Fabric

pytestmark = pytest.mark.measures

DROPS = ("wred", "tail", "shared", "loss", "down", "unrouted")


def ledger(fabric: Fabric) -> dict[str, Any]:
    """The table `ports` and the hosts' own counts, summed, and what they contradict."""
    violations = fabric.conservation()
    rows, hosts = fabric.counters(), fabric.host_counters()

    def total(table: list[dict[str, Any]], column: str) -> int:
        return sum(row[column] for row in table)

    switches = {row["switch"] for row in rows}
    return {
        "violations": violations,
        "host_sent": total(hosts, "sent_packets"),
        "host_received": total(hosts, "received_packets"),
        "host_down": total(hosts, "dropped_down_packets"),
        "dropped": {cause: total(rows, f"dropped_{cause}_packets") for cause in DROPS},
        "unbalanced": [
            switch
            for switch in switches
            for unit in ("packets", "bytes")
            for mine in [[row for row in rows if row["switch"] == switch]]
            if total(mine, f"received_{unit}")
            != total(mine, f"enqueued_{unit}") + sum(total(mine, f"dropped_{cause}_{unit}") for cause in DROPS)
        ],
        "waiting": sum(row["enqueued_packets"] != row["sent_packets"] for row in rows),
    }


def require_exact(seen: dict[str, Any]) -> None:
    """Everything that hosts sent was received by hosts or is in a counter."""
    assert seen["violations"] == []
    assert seen["unbalanced"] == []
    assert seen["waiting"] == 0
    assert seen["host_sent"] == seen["host_received"] + sum(seen["dropped"].values())


def lossy(sender: str, receiver: str) -> dict[str, Any]:
    """2000 packets h1 → h2 over a star with 20 % loss on one direction of one link."""
    with star([100, 100], plain()) as fabric:
        sink = Sink(udp(fabric, "h2", port=9000))
        fabric.set_loss(sender, receiver, 0.2)
        h1 = udp(fabric, "h1", tos_byte=tos(3, 1))
        sent = pace(h1, (fabric.address("h2"), 9000), rate_mbit=40, seconds=0.6)
        seen = ledger(fabric)
        sink.stop()
        lost_at = [
            (row["port"], row["queue"], row["precedence"]) for row in fabric.counters() if row["dropped_loss_packets"]
        ]
        return seen | {"sent": sent, "arrived": sink.packets[name_of(h1)], "lost_at": lost_at}


@pytest.mark.parametrize(("sender", "receiver", "where"), [("h1", "s1", "s1-h1"), ("s1", "h2", "s1-h2")])
def test_any_direction_of_a_link_may_lose(inside: Callable[..., Any], sender: str, receiver: str, where: str) -> None:
    seen = inside(lossy, sender=sender, receiver=receiver)
    require_exact(seen)
    assert seen["lost_at"] == [[where, 3, 1]]
    lost = seen["dropped"]["loss"]
    assert seen["arrived"] == seen["host_received"] == seen["sent"] - lost
    assert abs(lost - 0.2 * seen["sent"]) < 4 * math.sqrt(0.2 * 0.8 * seen["sent"])


def cut_under_load(a: str, b: str) -> dict[str, Any]:
    """h1 → h2 at twice the rate of the last link, so that queues stand; one link is cut for 0.2 s."""
    with star([20, 10], plain(60_000)) as fabric:
        sink = Sink(udp(fabric, "h2", port=9000))
        h1 = udp(fabric, "h1")

        def cut() -> list[float]:
            time.sleep(0.3)
            begun = time.time()
            fabric.set_link(a, b, False)
            down = fabric.effective()["ports"]
            fabric.verify()
            time.sleep(0.2)
            ended = time.time()
            fabric.set_link(a, b, True)
            assert any(not words["up"] for words in down.values())
            return [begun, ended]

        sent, (begun, ended) = together(partial(pace, h1, (fabric.address("h2"), 9000), rate_mbit=20, seconds=0.8), cut)
        waited = at(fabric, "s1-h2")[0, 0]["enqueued_packets"]
        seen = ledger(fabric)
        sink.stop()
        moments = [moment for moment, _, _ in sink.arrivals]
        return seen | {
            "sent": sent,
            "arrived": len(moments),
            "during": sum(begun + 0.01 < moment < ended for moment in moments),
            "after": sum(moment > ended for moment in moments),
            "enqueued": waited,
            "down_at": sorted({row["port"] for row in fabric.counters() if row["dropped_down_packets"]}),
            "same": fabric.intended() == fabric.effective(),
        }


@pytest.mark.parametrize(("a", "b", "where"), [("h1", "s1", "s1-h1"), ("s1", "h2", "s1-h2")])
def test_nothing_crosses_a_cut_link_and_what_waited_for_it_is_lost(
    inside: Callable[..., Any], a: str, b: str, where: str
) -> None:
    seen = inside(cut_under_load, a=a, b=b)
    require_exact(seen)
    assert seen["host_sent"] == seen["sent"]
    assert seen["arrived"] == seen["host_received"] - seen["host_down"], "what died under way is counted at the host"
    # 60 kB wait before the second link when the first is cut: 48 ms, of which 10 are not looked at
    assert seen["during"] == (0 if where == "s1-h2" else pytest.approx(32, abs=6))
    assert seen["after"] > 100
    assert seen["down_at"] == [where]
    assert (seen["host_down"] > 20) == (where == "s1-h2"), "the queue of 60 kB before the cut cable died under way"
    assert seen["same"], "a mended link is as before"


def slowed() -> dict[str, Any]:
    """A flow that fills 50 Mbit/s while the last link drops to 10 Mbit/s and comes back; Mbit/s of frames at h2."""
    with star([50, 50], plain(30_000)) as fabric:
        sink = Sink(udp(fabric, "h2", port=9000))
        marks = []

        def change() -> None:
            for rate_bps in (10e6, 50e6):
                time.sleep(0.4)
                fabric.set_rate("h2", "s1", rate_bps)
                marks.append(time.time())
            fabric.verify()

        together(partial(pace, udp(fabric, "h1"), (fabric.address("h2"), 9000), rate_mbit=49, seconds=1.2), change)
        seen = ledger(fabric)
        sink.stop()

        def mbit(start: float, end: float) -> float:
            sizes = [size + UDP_OVERHEAD_BYTES for moment, _, size in sink.arrivals if start <= moment < end]
            return sum(sizes) * 8 / (end - start) / 1e6

        before = mbit(marks[0] - 0.3, marks[0] - 0.05)
        slow, after = mbit(marks[0] + 0.05, marks[1] - 0.05), mbit(marks[1] + 0.1, marks[1] + 0.35)
        return seen | {"before": before, "slow": slow, "after": after}


def test_a_link_slows_down_in_place(inside: Callable[..., Any]) -> None:
    seen = inside(slowed)
    require_exact(seen)
    assert seen["slow"] == pytest.approx(10, rel=0.02)
    assert seen["before"] == pytest.approx(49, rel=0.1)
    assert seen["after"] == pytest.approx(49, rel=0.1)


def frozen(for_s: float, backlogged: bool, thaw_after_s: float | None = None) -> dict[str, Any]:
    """Queue 3 of a port freezes while 5 Mbit/s each go through queues 3 and 5; backlogged: 30 packets wait in it."""
    with star([100, 100, 20], plain(400_000)) as fabric:
        sink = Sink(udp(fabric, "h3", port=9000))
        to = (fabric.address("h3"), 9000)
        victim, other = udp(fabric, "h1", tos_byte=tos(3)), udp(fabric, "h2", tos_byte=tos(5))
        moments: dict[str, float] = {}

        def freeze() -> None:
            time.sleep(0.2)
            if backlogged:
                for _ in range(60):
                    victim.sendto(bytes(1400), to)
                time.sleep(0.003)
            moments["frozen"] = time.time()
            fabric.freeze("s1", "h3", 3, for_s)
            moments["told"] = time.time()
            fabric.verify()
            if thaw_after_s is not None:
                time.sleep(thaw_after_s)
                moments["thawed"] = time.time()
                fabric.thaw("s1", "h3", 3)

        calls = [partial(pace, sender, to, rate_mbit=5, seconds=for_s + 0.8) for sender in (victim, other)]
        together(*calls, freeze)
        seen = ledger(fabric)
        sink.stop()
        mine = [moment for moment, who, _ in sink.arrivals if who == name_of(victim)]
        begun = moments["frozen"]
        gaps = [(start, end) for start, end in itertools.pairwise(mine) if end - start > 0.2]
        gap_start, gap_end = gaps[0][0], gaps[-1][1]
        others = [m for m, who, _ in sink.arrivals if who == name_of(other) and gap_start < m < gap_end]
        fabric.verify()
        return seen | {
            "leaked": sum(moments["told"] + 0.004 < moment < begun + for_s - 0.02 for moment in mine),
            "ended_s": gap_end - begun,
            "thaw_took_s": gap_end - moments.get("thawed", gap_end),
            "others": len(others) / (gap_end - gap_start) * (1400 + UDP_OVERHEAD_BYTES) * 8 / 1e6,
            "strays": sum(row["not_ipv4_packets"] for row in fabric.strays()),
        }


@pytest.mark.parametrize("backlogged", [False, True])
def test_a_frozen_queue_stands_still_for_its_time(inside: Callable[..., Any], backlogged: bool) -> None:
    seen = inside(frozen, for_s=0.4, backlogged=backlogged)
    require_exact(seen)
    assert seen["ended_s"] == pytest.approx(0.4, abs=0.02)
    assert seen["leaked"] == 0
    assert seen["others"] == pytest.approx(5, rel=0.1), "the other queue goes on"
    assert seen["strays"] == 0, "fillers count nowhere"


@pytest.mark.long
def test_a_long_freeze_leaks_one_packet_a_second(inside: Callable[..., Any]) -> None:
    seen = inside(frozen, for_s=2.4, backlogged=True)
    require_exact(seen)
    assert seen["leaked"] == 2
    assert seen["ended_s"] == pytest.approx(2.4, abs=0.02)


@pytest.mark.long
def test_a_freeze_may_end_early(inside: Callable[..., Any]) -> None:
    seen = inside(frozen, for_s=20, backlogged=False, thaw_after_s=0.3)
    assert 0 < seen["thaw_took_s"] < 1.02


def detour() -> dict[str, Any]:
    """A sprayed flow over two spines; one uplink is cut, then routed around, then there is no way at all."""
    with leaf_spine(plain(load_balancing="round-robin")) as fabric:
        sender, to = udp(fabric, "h1"), (fabric.address("h3"), 9)

        def packets(count: int) -> dict[str, int]:
            before = {row["port"]: row for row in fabric.counters() if (row["queue"], row["precedence"]) == (0, 0)}
            for _ in range(count):
                sender.sendto(bytes(100), to)
            fabric.conservation()
            after = {row["port"]: row for row in fabric.counters() if (row["queue"], row["precedence"]) == (0, 0)}
            return {
                "arrived": after["l2-h3"]["sent_packets"] - before["l2-h3"]["sent_packets"],
                "down": after["l1-s1"]["dropped_down_packets"] - before["l1-s1"]["dropped_down_packets"],
                "unrouted": after["l1-h1"]["dropped_unrouted_packets"] - before["l1-h1"]["dropped_unrouted_packets"],
            }

        steps = {"whole": packets(40)}
        fabric.set_link("s1", "l1", False)
        steps["cut"] = packets(40)
        fabric.reroute([("l1", "s1")])
        steps["detour"] = packets(40)
        fabric.verify()
        fabric.reroute([("l1", "s1"), ("s2", "l2")])
        steps["nowhere"] = packets(40)
        fabric.verify()
        fabric.set_link("s1", "l1", True)
        fabric.reroute([])
        steps["mended"] = packets(40)
        fabric.verify()
        return {"steps": steps} | ledger(fabric)


def test_routes_follow_the_links(inside: Callable[..., Any]) -> None:
    seen = inside(detour)
    require_exact(seen)
    whole = {"arrived": 40, "down": 0, "unrouted": 0}
    assert seen["steps"] == {
        "whole": whole,
        "cut": {"arrived": 20, "down": 20, "unrouted": 0},
        "detour": whole,
        "nowhere": {"arrived": 0, "down": 0, "unrouted": 40},
        "mended": whole,
    }


def paused(node: str, neighbour: str) -> dict[str, Any]:
    """Queue 3 pauses for 0.3 s on the way h1 → h2 under 10 Mbit/s on a 20 Mbit/s path."""
    with star([20, 20], plain(1_000_000)) as fabric:
        sink = Sink(udp(fabric, "h2", port=9000))

        def hold() -> list[float]:
            time.sleep(0.2)
            fabric.pause(node, neighbour, 3)
            fabric.verify()
            begun = time.time()
            time.sleep(0.3)
            ended = time.time()
            fabric.resume(node, neighbour, 3)
            return [begun, ended]

        h1 = udp(fabric, "h1", tos_byte=tos(3))
        _, (begun, ended) = together(partial(pace, h1, (fabric.address("h2"), 9000), rate_mbit=10, seconds=0.9), hold)
        seen = ledger(fabric)
        sink.stop()
        moments = [moment for moment, _, _ in sink.arrivals]
        return seen | {
            "during": sum(begun + 0.01 < moment < ended for moment in moments),
            "first_after_s": min(moment for moment in moments if moment > ended) - ended,
            "arrived": len(moments),
        }


@pytest.mark.parametrize(("node", "neighbour"), [("s1", "h2"), ("h1", "s1")])
def test_a_paused_queue_keeps_a_hundredth_of_its_rate(inside: Callable[..., Any], node: str, neighbour: str) -> None:
    seen = inside(paused, node=node, neighbour=neighbour)
    require_exact(seen)
    # 200 kbit/s for 0.3 s are five frames of 1442 B
    assert seen["during"] == pytest.approx(5, abs=2)
    assert seen["first_after_s"] < 0.1, "a hundred frame times are 58 ms"
    assert seen["arrived"] == seen["host_sent"]


def out_of_order() -> dict[str, Any]:
    """h1 → h2, first while the device of the last port takes nothing, which no fault of an experiment does."""
    with star([100, 100], plain()) as fabric:
        sink = Sink(udp(fabric, "h2", port=9000))
        h1 = udp(fabric, "h1", tos_byte=tos(3))
        waiting = []
        for state in ("down", "up"):
            subprocess.run(["ip", "link", "set", "dev", "s1-h2", state], check=True)
            for _ in range(20):
                h1.sendto(bytes(1000), (fabric.address("h2"), 9000))
            fabric.conservation()
            waiting.append(int(fabric.backlogs().sum()))
        seen = ledger(fabric)
        sink.stop()
        return seen | {"arrived": sink.packets[name_of(h1)], "waiting_bytes": waiting}


@pytest.mark.long
def test_what_a_device_does_not_take_is_missed_in_the_account_but_waits_nowhere(inside: Callable[..., Any]) -> None:
    seen = inside(out_of_order)
    assert seen["arrived"] == 20
    assert seen["waiting_bytes"] == [0, 0]
    frames = "{} packets ({} B)"
    came_in, accounted = frames.format(40, 40 * 1042), frames.format(20, 20 * 1042)
    assert seen["violations"] == [f"switch s1: {came_in} came in, {accounted} enqueued or dropped"]
