"""The check "isolation of queues": what is guaranteed, what a stream's fate proves, and who is probed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from dlcp.model.frames import FRAME_BYTES
from dlcp.model.qos import DropProfile, Pfc, QosIntent, QueueIntent
from dlcp.transport._native import ffi, lib
from dlcp.verification import isolation
from dlcp.verification.isolation import Outcome, guaranteed_bytes, judge, probe
from dlcp.verification.placement import Station
from dlcp.verification.prober import NO_ARRIVALS, Reading, Send, Shot
from dlcp.verification.rows import Row

PORT = Station("s1", "h1", "h2", "h3", 100e6, 100e6, 100e6)


def dynamic(alpha: float = 1.0, memory: int = 80_000, **more: Any) -> QosIntent:
    return QosIntent.model_validate(
        {
            "name": "x",
            "port_buffer": memory + 8 * FRAME_BYTES,
            "shared_buffer": memory,
            "alpha": alpha,
            "minimum": FRAME_BYTES,
        }
        | more
    )


def held_by_aqm(intent: QosIntent, queue: int) -> int:
    """Frames fill every lower queue in turn by the rule of aqm.h; then the queue takes what it can: its bytes."""
    held = [0] * 8
    native = ffi.new("struct dlcp_aqm_queue[8]")
    for number in range(8):
        native[number].reserved_bytes = intent.reserved_of(number)
        native[number].limit_bytes = lib.DLCP_AQM_UNLIMITED
        native[number].alpha_q8 = round(intent.alpha_of(number) * 256)
    common = intent.port_buffer_bytes - intent.reserved_bytes
    arrival = ffi.new("struct dlcp_aqm_arrival *")

    def takes(number: int) -> bool:
        beyond = sum(max(0, held[other] - intent.reserved_of(other)) for other in range(8))
        arrival.packet_bytes, arrival.backlog_bytes, arrival.beyond_bytes = FRAME_BYTES, held[number], beyond
        shared = intent.shared_buffer_bytes
        arrival.shared_free_bytes = lib.DLCP_AQM_UNSHARED if shared is None else max(0, shared - beyond)
        fits = bool(lib.dlcp_aqm_room(ffi.addressof(native, number), common, arrival) == lib.DLCP_AQM_ENQUEUE)
        held[number] += FRAME_BYTES if fits else 0
        return fits

    while sum(takes(number) for number in range(queue)):
        pass
    while takes(queue):
        pass
    return held[queue]


@pytest.mark.parametrize("alpha", [0.25, 0.5, 1.0, 2.0, 8.0])
@pytest.mark.parametrize("memory", [40_000, 80_000, 1_000_000])
@pytest.mark.parametrize("queue", [1, 3, 7])
def test_the_guarantee_is_what_the_rule_leaves_a_queue(alpha: float, memory: int, queue: int) -> None:
    intent = dynamic(alpha, memory)
    held, guaranteed = held_by_aqm(intent, queue), guaranteed_bytes(intent, queue)
    assert FRAME_BYTES <= guaranteed // FRAME_BYTES * FRAME_BYTES <= held
    assert held <= guaranteed + 3 * FRAME_BYTES


def test_a_pool_guarantees_what_is_reserved_and_a_ports_limit_counts() -> None:
    static = QosIntent(name="x", port_buffer="40 kB", queues={5: QueueIntent(reserved="3 kB")})
    assert [guaranteed_bytes(static, queue) for queue in (5, 6)] == [3_000, 0]
    capped = dynamic(port_buffer=20_000 + 8 * FRAME_BYTES)
    assert guaranteed_bytes(capped, 5) == FRAME_BYTES == held_by_aqm(capped, 5)
    limited = dynamic(queues={5: QueueIntent(limit="2 kB")})
    assert guaranteed_bytes(limited, 5) == 2_000


@pytest.mark.parametrize(
    ("light", "flood", "within", "verdict"),
    [
        (100, 900, 0, "ok"),
        (99, 900, 1, "deviates"),
        (90, 900, 1, "deviates"),
        (99, 900, 0, "inconclusive"),  # the light stream itself outgrew what is guaranteed
        (100, 1000, 0, "inconclusive"),  # the flood flooded nothing
        (99, 1000, 1, "inconclusive"),
    ],
)
def test_only_a_loss_within_the_guarantee_under_a_real_flood_deviates(
    light: int, flood: int, within: int, verdict: str
) -> None:
    assert judge("s1-h1", "queue 5", Outcome(100, light, within, 1000, flood, 10_000)).verdict == verdict


def test_lost_within__leaves_out_what_is_lost_in_a_burst() -> None:
    waited_us = {0: 0, 1: 0, 3: 0, 4: 900, 6: 0, 7: 0, 10: 0}  # 2, 5, 8, 9 and 11 are lost, 5 after a long wait
    rows = [(0, number, 0, 10**6 * number, 10**6 * number + 1000 * us) for number, us in waited_us.items()]
    arrivals = np.array(rows, NO_ARRIVALS.dtype)
    assert isolation.lost_within(arrivals, 12, 500e-6) == 4
    assert isolation.lost_within(arrivals, 12, 1e-3) == 5
    assert isolation.lost_within(arrivals[::-1], 12, 500e-6) == 4, "in any order of arrival"
    assert isolation.lost_within(arrivals[:0], 12, 500e-6) == 12


class FakePort:
    """A prober whose port loses so many packets of each stream."""

    counters, no_counters = None, ""

    def __init__(self, light_lost: int, flood_lost: int) -> None:
        self._lost = (light_lost, flood_lost)
        self.shots: list[list[Send]] = []

    def shoot(self, sends: Iterable[Send], after_s: float) -> Shot:
        trains = list(sends)
        self.shots.append(trains)
        rows = [
            (train.train, number, 0, 10**6 * number, 10**6 * number + 1000)
            for train in trains
            for number in range(train.count - self._lost[train.train])
        ]
        return Shot({"h1": np.array(rows, NO_ARRIVALS.dtype)}, "")

    def shoot_and_read(self, *arguments: Any) -> tuple[Shot, list[Reading]]:
        raise AssertionError


def verdicts(rows: list[Row]) -> dict[str, str]:
    return {row.what: row.verdict for row in rows}


def test_probe__floods_the_lowest_queue_and_looks_at_each_kind_of_queue_above() -> None:
    port = FakePort(0, 50)
    drop = DropProfile(minimum="5 kB", maximum="5 kB")
    intent = dynamic(queues={6: QueueIntent(alpha=4), 3: QueueIntent(profiles=(drop, drop, drop), limit="9 kB")})
    assert verdicts(probe(port, PORT, intent)) == {
        "queue 5 (as 1, 2, 4) above a flood in queue 0": "ok",
        "queue 3 above a flood in queue 0": "unsupported",
        "queue 6 above a flood in queue 0": "ok",
        "queue 7 above a flood in queue 0": "ok",
    }
    for light, flood in port.shots:
        assert light.rate_bps + flood.rate_bps > 1.1 * PORT.rate_bps
        assert (light.host, flood.host) == ("h2", "h3")
    assert set(verdicts(probe(FakePort(1, 50), PORT, dynamic())).values()) == {"deviates"}


def test_probe__says_why_it_cannot_look() -> None:
    port = FakePort(0, 50)
    static = probe(port, PORT, QosIntent(name="x", port_buffer="40 kB"))
    assert {row.verdict for row in static} == {"unsupported"}
    assert "a flood below may take the whole buffer" in static[0].why
    lossless = dynamic(pfc=Pfc(queues=tuple(range(8)), xoff="20 kB", xon="10 kB"))
    assert [row.verdict for row in probe(port, PORT, lossless)] == ["unsupported"]
    huge = dynamic(memory=2_000_000_000)
    assert "the flood would fill the buffer in" in probe(port, PORT, huge)[0].why
    unsaid = dynamic().model_copy(update={"alpha": None})
    assert "thresholds in the shared buffer are the system's own" in probe(port, PORT, unsaid)[0].why
    slow = Station("s1", "h1", "h2", "h3", 100e6, 10e6, 100e6)
    assert "two hosts offer 1.05 of the port's rate" in probe(port, slow, dynamic())[0].why
    assert port.shots == []
    assert isolation.CHECK == "isolation of queues"
