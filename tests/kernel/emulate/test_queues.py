"""DSCP → queue and precedence, strict priorities at switches and at hosts, shaped rates."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from traffic import Sink, at, name_of, pace, plain, star, together, tos, udp

from dlcp.model.frames import UDP_OVERHEAD_BYTES
from dlcp.model.qos import QosIntent, QueueIntent

pytestmark = pytest.mark.measures

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


def two_backlogs(high: int, low: int) -> list[str]:
    """Forty packets wait in a low queue of a slow port when forty come for a higher one; the order of arrival."""
    intent = QosIntent(name="two", port_buffer=200_000, queues={high: QueueIntent(reserved=60_000)})
    with star([100, 100, 2], intent) as fabric:
        sink = Sink(udp(fabric, "h3", port=9000))
        to = (fabric.address("h3"), 9000)
        upper, lower = udp(fabric, "h1", tos_byte=tos(high)), udp(fabric, "h2", tos_byte=tos(low))
        for sender in (lower, upper):
            for _ in range(40):
                sender.sendto(bytes(1400), to)
            time.sleep(0.01)
        assert fabric.conservation() == []
        sink.stop()
        return ["high" if who == name_of(upper) else "low" for _, who, _ in sink.arrivals]


@pytest.mark.parametrize(("high", "low"), [(7, 6), (4, 3), (1, 0), (7, 0)])
def test_a_higher_queue_starves_a_lower_one(inside: Callable[..., Any], high: int, low: int) -> None:
    order = inside(two_backlogs, high=high, low=low)
    assert order.count("high") == order.count("low") == 40
    first, last = order.index("high"), 79 - order[::-1].index("high")
    assert first <= 12, "what left before the high queue had anything: 20 ms at 2 Mbit/s are 4, and a shaper's burst"
    assert last - first == 39, "no low packet leaves while a high one waits"


def control_behind_own_data() -> dict[str, int]:
    """A host with half a second of data in its own queue sends one control packet."""
    with star([10, 100], plain(400_000)) as fabric:
        sink = Sink(udp(fabric, "h2", port=9000))
        to = (fabric.address("h2"), 9000)
        data, control = udp(fabric, "h1", tos_byte=tos(3)), udp(fabric, "h1", tos_byte=tos(7))
        for _ in range(400):
            data.sendto(bytes(1400), to)
        time.sleep(0.05)
        sent = time.time()
        control.sendto(b"urgent", to)
        time.sleep(0.6)
        sink.stop()
        (arrived,) = (at_s for at_s, who, _ in sink.arrivals if who == name_of(control))
        moments = [at_s for at_s, who, _ in sink.arrivals if who == name_of(data)]
        return {
            "between": sum(sent < moment < arrived for moment in moments),
            "after": sum(moment > arrived for moment in moments),
            "data": len(moments),
        }


def test_a_hosts_control_packet_overtakes_its_own_data(inside: Callable[..., Any]) -> None:
    seen = inside(control_behind_own_data)
    assert seen["data"] == 400
    assert seen["after"] > 200, "the data kept the host's interface busy"
    assert seen["between"] < 17, "the control packet waited for a frame or two, not for the queue"


def shaped(rates_mbit: list[float], packets: int) -> float:
    """Mbit/s of frames by the kernel's time stamps at h2 while a backlog from h1 drains; its first tenth left out."""
    with star(rates_mbit, plain(20_000_000)) as fabric:
        sink = Sink(udp(fabric, "h2", port=9000))
        sender = udp(fabric, "h1")
        for _ in range(packets):
            sender.sendto(bytes(1400), (fabric.address("h2"), 9000))
        assert fabric.conservation() == []
        sink.stop()
        assert len(sink.arrivals) == packets, f"{len(sink.arrivals)} of {packets}, {fabric.counters()}"
        steady = sink.arrivals[packets // 10 :]
        return (len(steady) - 1) * (1400 + UDP_OVERHEAD_BYTES) * 8 / (steady[-1][0] - steady[0][0]) / 1e6


@pytest.mark.parametrize(
    ("rates_mbit", "bottleneck_mbit"),
    [([1000, 10], 10), ([1000, 50], 50), ([1000, 100], 100), ([20, 1000], 20), ([100, 1000], 100)],
    ids=["switch 10 Mbit/s", "switch 50 Mbit/s", "switch 100 Mbit/s", "host 20 Mbit/s", "host 100 Mbit/s"],
)
def test_a_port_runs_at_its_rate(inside: Callable[..., Any], rates_mbit: list[float], bottleneck_mbit: float) -> None:
    packets = int(0.4 * bottleneck_mbit * 1e6 / 8 / (1400 + UDP_OVERHEAD_BYTES))
    measured: list[float] = []
    # what other work on this machine takes from a shaper is not its fault: one clean measurement of three will do
    while len(measured) < 3 and not any(m == pytest.approx(bottleneck_mbit, rel=0.01) for m in measured):
        measured.append(inside(shaped, rates_mbit=rates_mbit, packets=packets))
    assert measured[-1] == pytest.approx(bottleneck_mbit, rel=0.01)
    assert max(measured) <= 1.01 * bottleneck_mbit, "nothing excuses more than the link's rate"


WEIGHTS = {0: 1, 1: 2, 2: 4}
PAYLOADS = {0: 1400, 1: 700, 2: 200}


def weighted(strict_mbit: float) -> dict[str, Any]:
    """Three weighted queues, each flooded with packets of its own size, at 20 Mbit/s; some of a strict queue above."""
    queues = {number: QueueIntent(weight=weight, limit=60_000) for number, weight in WEIGHTS.items()}
    with star([100, 100, 100, 100, 20], QosIntent(name="weighted", port_buffer=400_000, queues=queues)) as fabric:
        sink = Sink(udp(fabric, "h5", port=9000))
        to = (fabric.address("h5"), 9000)
        senders = {number: udp(fabric, f"h{number + 1}", tos_byte=tos(number)) for number in WEIGHTS}
        strict = udp(fabric, "h4", tos_byte=tos(5))
        calls = [
            partial(pace, sender, to, rate_mbit=18, seconds=1.2, payload_bytes=PAYLOADS[number])
            for number, sender in senders.items()
        ]
        if strict_mbit:
            calls.append(partial(pace, strict, to, rate_mbit=strict_mbit, seconds=1.2))
        start = time.time()
        together(*calls)
        end = time.time()
        fabric.conservation()
        fabric.verify()
        assert fabric.effective() == fabric.intended()
        assert fabric.effective()["weights"] == {str(number): weight for number, weight in WEIGHTS.items()}
        sink.stop()
        steady = [
            (who, size + UDP_OVERHEAD_BYTES) for at_s, who, size in sink.arrivals if start + 0.2 < at_s < end - 0.05
        ]
        bytes_of = {
            name_of(sender): sum(size for who, size in steady if who == name_of(sender))
            for sender in (*senders.values(), strict)
        }
        return {
            "weighted": {str(number): bytes_of[name_of(sender)] for number, sender in senders.items()},
            "strict_mbit": bytes_of[name_of(strict)] * 8 / (end - start - 0.25) / 1e6,
        }


@pytest.mark.parametrize("strict_mbit", [0, 8])
def test_weighted_queues_share_what_the_strict_ones_leave(inside: Callable[..., Any], strict_mbit: float) -> None:
    seen = inside(weighted, strict_mbit=strict_mbit)
    total, weights = sum(seen["weighted"].values()), sum(WEIGHTS.values())
    for number, weight in WEIGHTS.items():
        assert seen["weighted"][str(number)] / total == pytest.approx(weight / weights, abs=0.02)
    assert seen["strict_mbit"] == pytest.approx(strict_mbit, rel=0.1)
    assert total * 8 / 0.95 / 1e6 == pytest.approx(20 - strict_mbit, rel=0.15)


def test_strict_queues_starve_the_weighted_ones(inside: Callable[..., Any]) -> None:
    seen = inside(weighted, strict_mbit=30)
    assert seen["strict_mbit"] == pytest.approx(20, rel=0.03)
    assert sum(seen["weighted"].values()) < 0.01 * seen["strict_mbit"] * 1e6 / 8


def watched() -> dict[str, Any]:
    """Backlogs of a port that hardly drains, between two readings of its counters."""
    with star([1000, 0.02, 100], plain(100_000)) as fabric:
        rows = {port: i for i, (_, port) in enumerate(fabric.switch_ports)}
        for number, packets in ((2, 7), (6, 20)):
            for _ in range(packets):
                udp(fabric, "h1", tos_byte=tos(number)).sendto(
                    bytes(1000 - UDP_OVERHEAD_BYTES), (fabric.address("h2"), 9)
                )
        before = at(fabric, "s1-h2")
        live = fabric.backlogs()
        after = at(fabric, "s1-h2")
        held = [
            [found[n, 0]["enqueued_bytes"] - found[n, 0]["sent_bytes"] for n in (2, 6)] for found in (before, after)
        ]
        return {
            "shape": live.shape,
            "live": live[rows["s1-h2"]].tolist(),
            "held": held,
            "elsewhere": int(live.sum()) - int(live[rows["s1-h2"]].sum()),
        }


def test_backlogs_are_what_the_counters_say(inside: Callable[..., Any]) -> None:
    seen = inside(watched)
    assert seen["shape"] == [3, 8]
    for number, before, after in zip((2, 6), *seen["held"], strict=True):
        assert after <= seen["live"][number] <= before
    assert sum(seen["live"]) == seen["live"][2] + seen["live"][6] > 20_000
    assert seen["elsewhere"] == 0
