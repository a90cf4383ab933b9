"""Rates, shares and sums: what a port lets through, how spraying splits, and that nothing is counted but what was sent.

A rate is of frames as tc counts them: the Ethernet header of 14 B and the rest, without FCS, preamble and gap. A real
port of the same nominal rate carries 1514 of every 1538 byte times, 1.6 % less, at full frames.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from queueing import Watch, ahead_of_others, judged
from traffic import Sink, at, leaf_spine, name_of, pace, plain, profiled, star, together, tos, udp

from dlcp.model.frames import UDP_OVERHEAD_BYTES
from dlcp.model.qos import DropProfile
from dlcp.model.result import DROP_CAUSES

pytestmark = pytest.mark.measures

RATE_TOLERANCE = 0.005
"""Of the rate. Receive time stamps are the kernel's own; a backlog of n frames of which one is late by 1 ms is off by
0.1 % in 1 s."""

PAYLOAD_BYTES = 1458
FRAME_BYTES = PAYLOAD_BYTES + UDP_OVERHEAD_BYTES


def drained(rate_mbit: float, seconds: float) -> dict[str, Any]:
    """A backlog of so many seconds leaves a port: Mbit/s between the time stamps after its first tenth."""
    packets = int(seconds * rate_mbit * 1e6 / 8 / FRAME_BYTES)
    with star([10_000, rate_mbit], plain(packets * FRAME_BYTES + 100_000)) as fabric:
        sink = Sink(udp(fabric, "h2", port=9000))
        sender = udp(fabric, "h1", send_buffer=64 << 20)
        with Watch() as watch:
            for _ in range(packets):
                sender.sendto(bytes(PAYLOAD_BYTES), (fabric.address("h2"), 9000))
            with ahead_of_others():
                for _ in range(int((seconds + 3) / 0.002)):
                    due = time.monotonic() + 0.002
                    time.sleep(0.002)
                    watch.late_s.append(time.monotonic() - due)
                    if not fabric.backlogs().any():
                        break
        violations = fabric.conservation()
        sink.stop()
        steady = sink.arrivals[packets // 10 :]
        span_s = steady[-1][0] - steady[0][0]
        return {
            "mbit": (len(steady) - 1) * FRAME_BYTES * 8 / span_s / 1e6,
            "lost": packets - len(sink.arrivals),
            "violations": violations,
            "machine": watch.found,
        }


def rate_complaint(seen: dict[str, Any], rate_mbit: float) -> str:
    """What is not as theory says; empty when all is."""
    told = [*seen["violations"], *([f"{seen['lost']} frames lost"] if seen["lost"] else [])]
    if abs(seen["mbit"] / rate_mbit - 1) > RATE_TOLERANCE:
        told.append(f"{seen['mbit']:.3f} Mbit/s, not {rate_mbit}")
    return "; ".join(told)


@pytest.mark.parametrize(
    ("rate_mbit", "seconds"),
    [
        (100, 0.7),
        *(pytest.param(rate, 5.0, marks=pytest.mark.long) for rate in (10, 100)),
        pytest.param(250, 1.2, marks=pytest.mark.long),
    ],
)
def test_a_port_runs_at_its_rate_to_half_a_percent(
    inside: Callable[..., Any], rate_mbit: float, seconds: float
) -> None:
    measure = partial(inside, drained, within_s=40, rate_mbit=rate_mbit, seconds=seconds)
    judged(lambda seed: measure(), lambda seen: rate_complaint(seen, rate_mbit), attempts=5 if seconds > 1 else 3)


def sprayed(balancing: str, packets: int) -> dict[str, Any]:
    """One flow over two spines: packets by spine."""
    with leaf_spine(plain(1_000_000, load_balancing=balancing), rate_mbit=1000) as fabric:
        sink = Sink(udp(fabric, "h3", port=9000))
        sender = udp(fabric, "h1")
        to = (fabric.address("h3"), 9000)
        for number in range(packets):
            sender.sendto(b"x", to)
            if number % 200 == 199:
                fabric.conservation()
        violations = fabric.conservation()
        sink.stop()
        by_spine = [at(fabric, f"s{spine}-l2")[0, 0]["enqueued_packets"] for spine in (1, 2)]
        return {"by_spine": by_spine, "received": sum(sink.packets.values()), "violations": violations}


@pytest.mark.parametrize("balancing", ["per-packet", "round-robin"])
@pytest.mark.long
def test_spraying_splits_in_halves(inside: Callable[..., Any], balancing: str) -> None:
    """At random: within 1 %, 5.6 standard deviations of a fair coin, a false alarm in 60 million. In turn: to the
    packet. test_paths.py has the same in short."""
    packets = 80_000
    seen = inside(sprayed, within_s=60, balancing=balancing, packets=packets)
    assert seen["violations"] == []
    first, second = seen["by_spine"]
    assert first + second == seen["received"] == packets
    tolerance = 1 if balancing == "round-robin" else 0.01 * packets
    assert abs(first - packets / 2) <= tolerance


def everything(seconds: float, seed: int) -> dict[str, Any]:
    """An overloaded leaf-spine with WRED, tail drops, marks and injected loss: its tables and what the hosts saw."""
    curve = DropProfile(minimum=20_000, maximum=60_000, probability=0.5, mark=True)
    intent = profiled(2, [None, curve, None], 70_000).model_copy(update={"load_balancing": "per-packet"})
    with leaf_spine(intent, hosts=6, rate_mbit=20, seed=seed) as fabric:
        fabric.set_loss("l2", "h4", 0.05)
        fabric.set_loss("s1", "l2", 0.02)
        sink = Sink(udp(fabric, "h4", port=9000))
        to = (fabric.address("h4"), 9000)
        kinds = [("h1", 0, 0), ("h2", 1, 0), ("h3", 1, 2), ("h5", 0, 2)]
        senders = [udp(fabric, host, tos_byte=tos(2, precedence, ecn)) for host, precedence, ecn in kinds]
        sent = together(*(partial(pace, s, to, rate_mbit=9, seconds=seconds) for s in senders))
        violations = fabric.conservation(5)
        sink.stop()
        return {
            "sent": sum(sent),
            "received": sum(sink.packets[name_of(sender)] for sender in senders),
            "ce": sum(sink.ce.values()),
            "rows": fabric.counters(),
            "hosts": fabric.host_counters(),
            "violations": violations,
        }


@pytest.mark.parametrize("seconds", [1.0, pytest.param(10.0, marks=pytest.mark.long)])
def test_packets_in_are_packets_out_and_dropped_at_every_port(inside: Callable[..., Any], seconds: float) -> None:
    """From the table alone, to the packet and the byte: every port has sent what it took, every switch has taken or
    dropped what it received, and every link has delivered what was sent into it."""
    seen = inside(everything, seconds=seconds, seed=3)
    rows = seen["rows"]
    assert seen["violations"] == []
    for unit in ("packets", "bytes"):
        for row in rows:
            assert row[f"enqueued_{unit}"] == row[f"sent_{unit}"], row
        for switch in {row["switch"] for row in rows}:
            own = [row for row in rows if row["switch"] == switch]
            dropped = sum(row[f"dropped_{cause}_{unit}"] for row in own for cause in DROP_CAUSES)
            assert sum(row[f"received_{unit}"] for row in own) == sum(row[f"enqueued_{unit}"] for row in own) + dropped
        for row in rows:
            there, _, here = row["port"].partition("-")
            if here.startswith("h"):
                continue
            key = (f"{here}-{there}", row["queue"], row["precedence"])
            (far,) = [one for one in rows if (one["port"], one["queue"], one["precedence"]) == key]
            assert far[f"received_{unit}"] == row[f"sent_{unit}"], row
    dropped = {cause: sum(row[f"dropped_{cause}_packets"] for row in rows) for cause in DROP_CAUSES}
    assert all(dropped[cause] > 0 for cause in ("wred", "tail", "loss")), dropped
    assert seen["sent"] == seen["received"] + sum(dropped.values())
    assert sum(row["received_packets"] for row in seen["hosts"]) == seen["received"]
    at_h4 = sum(row["marked_ce_packets"] for row in rows if row["port"] == "l2-h4")
    lost_marks = sum(row["marked_ce_packets"] for row in rows) - seen["ce"]
    assert 0 <= lost_marks <= dropped["tail"] + dropped["loss"], (
        "a mark is received but where its packet was dropped later"
    )
    assert at_h4 > 0
