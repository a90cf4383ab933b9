"""DSCP → queue and precedence, strict priorities at switches and at hosts, shaped rates."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from traffic import Sink, at, name_of, pace, plain, star, together, tos, udp

from dlcp.model.qos import QosIntent, QueueIntent

VALID = {(queue, precedence): queue << 3 | precedence << 1 for queue in range(8) for precedence in range(3)}


def one_packet_per_codepoint() -> list[list[int]]:
    """For each of the 64 codepoints: [dscp, queue, precedence] where the switch counted its one packet."""
    found = []
    with star([100, 100], plain()) as fabric:
        sender = udp(fabric, "h1")
        for dscp in range(64):
            fabric.reset_counters()
            sender.setsockopt(0, 1, dscp << 2)
            sender.sendto(b"x", (fabric.address("h2"), 9))
            fabric.conservation()
            rows = [key for key, row in at(fabric, "s1-h2").items() if row["enqueued_packets"] == 1]
            found.append([dscp, *rows[0]] if len(rows) == 1 else [dscp, -1, -1])
    return found


def test_each_codepoint_has_its_queue_and_precedence(inside: Callable[..., Any]) -> None:
    found = {dscp: (queue, precedence) for dscp, queue, precedence in inside(one_packet_per_codepoint)}
    assert {where: dscp for dscp, where in found.items() if dscp in VALID.values()} == VALID
    undefined = {where for dscp, where in found.items() if dscp not in VALID.values()}
    assert undefined == {(0, 0)}, "undefined codepoints are best effort"


def two_floods(high: int, low: int) -> dict[str, float]:
    """Both hosts offer more than the port's 20 Mbit/s; Mbit/s that each got while both sent, after the first 0.2 s.

    The high queue has bytes of its own: a starved queue fills whatever buffer is shared.
    """
    intent = QosIntent(name="two", port_buffer=200_000, queues={high: QueueIntent(reserved=50_000)})
    with star([100, 100, 20], intent) as fabric:
        sink = Sink(udp(fabric, "h3", port=9000))
        to = (fabric.address("h3"), 9000)
        upper, lower = udp(fabric, "h1", tos_byte=tos(high)), udp(fabric, "h2", tos_byte=tos(low))
        start = time.monotonic()
        together(
            partial(pace, upper, to, rate_mbit=25, seconds=1.0), partial(pace, lower, to, rate_mbit=25, seconds=1.0)
        )
        sink.stop()
        violations = fabric.conservation()
        got = {
            name: sum((size + 42) * 8 for at_s, who, size in sink.arrivals if who == name and 0.2 < at_s - start < 0.9)
            / 0.7e6
            for name in (name_of(upper), name_of(lower))
        }
        return {"high": got[name_of(upper)], "low": got[name_of(lower)], "violations": len(violations)}


@pytest.mark.parametrize(("high", "low"), [(7, 6), (1, 0), (7, 0)])
def test_a_higher_queue_starves_a_lower_one(inside: Callable[..., Any], high: int, low: int) -> None:
    got = inside(two_floods, high=high, low=low)
    assert got["high"] == pytest.approx(20, rel=0.03)
    assert got["low"] < 0.2
    assert got["violations"] == 0


def control_behind_own_data() -> dict[str, float]:
    """A host with half a second of data in its own queue sends one control packet."""
    with star([10, 100], plain(400_000)) as fabric:
        sink = Sink(udp(fabric, "h2", port=9000))
        to = (fabric.address("h2"), 9000)
        data, control = udp(fabric, "h1", tos_byte=tos(3)), udp(fabric, "h1", tos_byte=tos(7))
        for _ in range(400):
            data.sendto(bytes(1400), to)
        time.sleep(0.05)
        sent = time.monotonic()
        control.sendto(b"urgent", to)
        time.sleep(0.6)
        sink.stop()
        arrived = [at_s for at_s, who, _ in sink.arrivals if who == name_of(control)]
        last_data = max(at_s for at_s, who, _ in sink.arrivals if who == name_of(data))
        return {"control_s": arrived[0] - sent, "data_s": last_data - sent, "data": sink.packets[name_of(data)]}


def test_a_hosts_control_packet_overtakes_its_own_data(inside: Callable[..., Any]) -> None:
    seen = inside(control_behind_own_data)
    assert seen["data"] == 400
    assert seen["data_s"] > 0.3, "the data kept the host's interface busy"
    assert seen["control_s"] < 0.02, "the control packet waited for a frame or two, not for the queue"


def shaped(rates_mbit: list[float], senders: list[str], offered_mbit: float) -> float:
    """Mbit/s of frames that h1 received between 0.3 s and 1.0 s of an overload."""
    with star(rates_mbit, plain(200_000)) as fabric:
        sink = Sink(udp(fabric, "h1", port=9000))
        to = (fabric.address("h1"), 9000)
        start = time.monotonic()
        together(*(partial(pace, udp(fabric, host), to, rate_mbit=offered_mbit, seconds=1.05) for host in senders))
        sink.stop()
        window = [(at_s, size + 42) for at_s, _, size in sink.arrivals if 0.3 < at_s - start < 1.0]
        return sum(size for _, size in window[1:]) * 8 / (window[-1][0] - window[0][0]) / 1e6


@pytest.mark.parametrize(
    ("rates_mbit", "offered_mbit", "expected"),
    [([10, 100, 100], 8, 10), ([50, 100, 100], 40, 50), ([100, 20], 30, 20)],
    ids=["switch port at 10 Mbit/s", "switch port at 50 Mbit/s", "host port at 20 Mbit/s"],
)
def test_a_port_runs_at_its_rate(
    inside: Callable[..., Any], rates_mbit: list[float], offered_mbit: float, expected: float
) -> None:
    senders = [f"h{i + 2}" for i in range(len(rates_mbit) - 1)]
    measured = inside(shaped, rates_mbit=rates_mbit, senders=senders, offered_mbit=offered_mbit)
    assert measured == pytest.approx(expected, rel=0.01)
