"""WRED under a load that does not yield: drops what is too much, and holds the queue where its curve drops just that.

A load ρ > 1 leaves when a share 1 − 1/ρ is dropped, so the curve must be at that share: the backlog that packets find
is, in the mean, min + (1 − 1/ρ) / p_max · (max − min), exactly, as the curve is straight there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from queueing import Watch, ahead_of_others, judged
from traffic import Sink, at, name_of, pace, profiled, star, together, tos, udp

from dlcp.model.qos import DropProfile

pytestmark = pytest.mark.measures

RATE_MBIT = 20
MINIMUM, MAXIMUM, PROBABILITY = 30_000, 150_000, 0.8
QUEUE = 3
ECT0 = 2
WARM_S = 0.5
"""Ten times what the queue takes to come to rest."""

DROP_TOLERANCE = 0.01
"""Absolute. The queue may hold 10 kB more or less at the end than at the beginning, of 5 MB; the rest is the clock."""

QUEUE_TOLERANCE = 0.08
"""Of the mean backlog. Over 2 s it varies by 1.2 % (standard deviation: random drops, correlated over 40 ms); a frame
of 1442 B that the shaper has taken early or late is 2 %; senders wake every 0.5 ms, with 2 to 4 frames in hand, 2 %."""


def overloaded(load: float, seconds: float, mark: bool = False) -> dict[str, Any]:
    """Two senders overload a port for a while after a warm-up: what it dropped, and its backlog each millisecond."""
    curve = DropProfile(minimum=MINIMUM, maximum=MAXIMUM, probability=PROBABILITY, mark=mark)
    with star([1000, 1000, RATE_MBIT], profiled(QUEUE, [curve] * 3, 600_000)) as fabric:
        sink = Sink(udp(fabric, "h3", port=9000))
        to = (fabric.address("h3"), 9000)
        senders = [udp(fabric, host, tos_byte=tos(QUEUE, 0, ECT0 if mark else 0)) for host in ("h1", "h2")]
        row = fabric.switch_ports.index(("s1", "s1-h3"))
        backlogs: list[int] = []
        window: dict[str, Any] = {}

        def look() -> None:
            time.sleep(WARM_S)
            fabric.reset_counters()
            with Watch() as watch, ahead_of_others():
                begun_s = due = time.monotonic()
                while (due := due + 0.001) < begun_s + seconds:
                    time.sleep(max(0.0, due - time.monotonic()))
                    watch.late_s.append(time.monotonic() - due)
                    backlogs.append(int(fabric.backlogs()[row, QUEUE]))
                window["seconds"] = time.monotonic() - begun_s
                window["port"] = at(fabric, "s1-h3")[QUEUE, 0]
            window["machine"] = watch.found

        looker = threading.Thread(target=look)
        looker.start()
        rate_mbit = load * RATE_MBIT / 2
        sent = together(*(partial(pace, s, to, rate_mbit=rate_mbit, seconds=WARM_S + seconds + 0.6) for s in senders))
        looker.join()
        violations = fabric.conservation()
        sink.stop()
        return window | {
            "mean_backlog": float(np.mean(backlogs)),
            "samples": len(backlogs),
            "sent": sum(sent),
            "received": sum(sink.packets[name_of(sender)] for sender in senders),
            "violations": violations,
        }


def complaint(seen: dict[str, Any]) -> str:
    """What is not as theory says; empty when all is."""
    told = list(seen["violations"])
    port = seen["port"]
    dropped, taken = port["dropped_wred_bytes"], port["enqueued_bytes"]
    load = (dropped + taken) * 8 / seen["seconds"] / (RATE_MBIT * 1e6)
    share, expected_share = dropped / (dropped + taken), 1 - 1 / load
    expected_bytes = MINIMUM + share / PROBABILITY * (MAXIMUM - MINIMUM)
    if abs(share - expected_share) > DROP_TOLERANCE:
        told.append(f"load {load:.3f}: {share:.4f} dropped, theory {expected_share:.4f}")
    if abs(seen["mean_backlog"] / expected_bytes - 1) > QUEUE_TOLERANCE:
        told.append(f"load {load:.3f}: mean backlog {seen['mean_backlog']:.0f} B, theory {expected_bytes:.0f}")
    if port["dropped_tail_packets"]:
        told.append(f"{port['dropped_tail_packets']} packets met the end of the buffer")
    return "; ".join(told)


def test_overload_finds_the_curves_equilibrium__short(inside: Callable[..., Any]) -> None:
    judged(lambda seed: inside(overloaded, load=1.5, seconds=1.5), complaint, attempts=2)


@pytest.mark.long
@pytest.mark.parametrize("load", [1.2, 1.5, 2.0])
def test_overload_finds_the_curves_equilibrium(inside: Callable[..., Any], load: float) -> None:
    judged(lambda seed: inside(overloaded, load=load, seconds=8.0), complaint)


def marked(packets: int) -> dict[str, Any]:
    """An ECN-capable overload under a marking curve: marks by the switch's count and by the receiver's."""
    curve = DropProfile(minimum=MINIMUM, maximum=MAXIMUM, probability=PROBABILITY, mark=True)
    with star([1000, 1000, RATE_MBIT], profiled(QUEUE, [curve] * 3, 400_000)) as fabric:
        sink = Sink(udp(fabric, "h3", port=9000))
        to = (fabric.address("h3"), 9000)
        senders = [udp(fabric, host, tos_byte=tos(QUEUE, p, ECT0)) for p, host in enumerate(("h1", "h2"))]
        seconds = packets * 1442 * 8 / (1.4 * RATE_MBIT * 1e6)
        sent = together(*(partial(pace, s, to, rate_mbit=0.7 * RATE_MBIT, seconds=seconds) for s in senders))
        violations = fabric.conservation(5)
        sink.stop()
        rows = at(fabric, "s1-h3")
        return {
            "sent": sent,
            "received": [sink.packets[name_of(sender)] for sender in senders],
            "ce": [sink.ce[name_of(sender)] for sender in senders],
            "counted": [rows[QUEUE, p]["marked_ce_packets"] for p in (0, 1)],
            "counted_bytes": [rows[QUEUE, p]["marked_ce_bytes"] for p in (0, 1)],
            "tail": [rows[QUEUE, p]["dropped_tail_packets"] for p in (0, 1)],
            "wred": [rows[QUEUE, p]["dropped_wred_packets"] for p in (0, 1)],
            "violations": violations,
        }


@pytest.mark.long
def test_marks_counted_are_marks_received(inside: Callable[..., Any]) -> None:
    """Exactly: nothing here depends on time. test_drops.py has the same in short."""
    packets = 40_000
    seen = inside(marked, within_s=90, packets=packets)
    assert seen["violations"] == []
    assert seen["ce"] == seen["counted"]
    assert min(seen["counted"]) > packets / 20
    assert seen["counted_bytes"] == [1442 * count for count in seen["counted"]]
    assert seen["wred"] == [0, 0], "what can be marked is not dropped by the curve"
    lost = [sent - came for sent, came in zip(seen["sent"], seen["received"], strict=True)]
    assert lost == seen["tail"]
