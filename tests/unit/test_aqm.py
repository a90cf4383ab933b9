"""aqm.h, the drop-or-mark decision that the eBPF switch and the simulator compile, called through cffi."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcp.transport._native import ffi, lib

CERTAIN = 2**32
ACTIVE, MARK = 1, 2
NOT_ECT, ECT0, CE = 0, 2, 3
ENQUEUE, MARKED, WRED, TAIL = (
    lib.DLCP_AQM_ENQUEUE,
    lib.DLCP_AQM_ENQUEUE_MARKED,
    lib.DLCP_AQM_DROP_WRED,
    lib.DLCP_AQM_DROP_TAIL,
)

sizes = st.integers(0, 2**32 - 1)
backlogs = st.integers(0, 2**33)
randoms = st.integers(0, 2**32 - 1)
packets = st.integers(1, 65_535)


@dataclass(frozen=True)
class Curve:
    """One drop profile."""

    minimum: int
    maximum: int
    probability_q32: int = CERTAIN
    flags: int = ACTIVE


@st.composite
def curves(draw: st.DrawFn, flags: int = ACTIVE) -> Curve:
    """Any valid profile."""
    minimum, maximum = sorted((draw(sizes), draw(sizes)))
    return Curve(minimum, maximum, draw(st.integers(0, CERTAIN)), flags)


def queue(curve: Curve | None = None, *, precedence: int = 0, reserved: int = 0) -> Any:
    """struct dlcp_aqm_queue with one profile."""
    made = ffi.new("struct dlcp_aqm_queue *")
    made.reserved_bytes = reserved
    if curve is not None:
        profile = made.profiles[precedence]
        profile.minimum_bytes, profile.maximum_bytes = curve.minimum, curve.maximum
        profile.probability_q32, profile.flags = curve.probability_q32, curve.flags
    return made


def probability(curve: Curve, backlog: int) -> int:
    """In units of 2^-32."""
    made = queue(curve)
    return int(lib.dlcp_aqm_probability_q32(ffi.addressof(made.profiles[0]), backlog))


def decide(
    made: Any,
    *,
    buffer: int = 2**32 - 1,
    backlog: int = 0,
    others: int = 0,
    packet: int = 1500,
    precedence: int = 0,
    ecn: int = NOT_ECT,
    random: int = 0,
) -> int:
    """The verdict."""
    return int(lib.dlcp_aqm_decide(made, buffer, backlog, others, packet, precedence, ecn, random))


@given(curves(), backlogs, backlogs)
def test_probability__never_falls_as_the_backlog_grows(curve: Curve, one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert 0 <= probability(curve, low) <= probability(curve, high) <= CERTAIN


@given(curves(), st.data())
def test_probability__zero_up_to_the_minimum_certain_above_the_maximum(curve: Curve, data: st.DataObject) -> None:
    assert probability(curve, data.draw(st.integers(0, curve.minimum))) == 0
    assert probability(curve, data.draw(st.integers(curve.maximum + 1, 2**33))) == CERTAIN


@given(curves(), st.data())
def test_probability__is_the_line_between(curve: Curve, data: st.DataObject) -> None:
    if curve.maximum <= curve.minimum:
        return
    backlog = data.draw(st.integers(curve.minimum, curve.maximum))
    exact = curve.probability_q32 * (backlog - curve.minimum) / (curve.maximum - curve.minimum)
    assert probability(curve, backlog) == pytest.approx(exact, abs=2)
    assert probability(curve, curve.maximum) == curve.probability_q32


def test_probability__a_step_where_minimum_is_maximum() -> None:
    step = Curve(10_000, 10_000)
    assert [probability(step, backlog) for backlog in (9_999, 10_000, 10_001)] == [0, 0, CERTAIN]


@given(curves(flags=0), backlogs, randoms)
def test_decide__an_inactive_profile_never_strikes(curve: Curve, backlog: int, random: int) -> None:
    verdict = decide(queue(curve), backlog=min(backlog, 2**31), random=random)
    assert verdict == ENQUEUE


@given(curves(), st.integers(0, 2**31), randoms, st.integers(0, 2))
def test_decide__strikes_when_the_random_number_is_below_the_probability(
    curve: Curve, backlog: int, random: int, precedence: int
) -> None:
    verdict = decide(queue(curve, precedence=precedence), backlog=backlog, precedence=precedence, random=random)
    assert verdict == (WRED if random < probability(curve, backlog) else ENQUEUE)


def test_decide__looks_at_the_packets_own_precedence() -> None:
    made = queue(Curve(0, 0), precedence=2)
    verdicts = [decide(made, backlog=1, precedence=precedence) for precedence in (0, 1, 2, 3)]
    assert verdicts == [ENQUEUE, ENQUEUE, WRED, ENQUEUE], "a precedence that does not exist counts as 0"


@given(curves(flags=ACTIVE | MARK), st.integers(0, 2**31), randoms, st.sampled_from([1, ECT0, CE]))
def test_decide__marks_exactly_what_it_would_drop(curve: Curve, backlog: int, random: int, ecn: int) -> None:
    plain = decide(queue(curve), backlog=backlog, random=random)
    capable = decide(queue(curve), backlog=backlog, random=random, ecn=ecn)
    assert (plain, capable) in {(ENQUEUE, ENQUEUE), (WRED, MARKED)}


@given(curves(), st.integers(0, 2**31), randoms)
def test_decide__drops_ect_packets_where_the_profile_does_not_mark(curve: Curve, backlog: int, random: int) -> None:
    same = [decide(queue(curve), backlog=backlog, random=random, ecn=ecn) for ecn in (NOT_ECT, ECT0)]
    assert same[0] == same[1] != MARKED


@given(sizes, st.integers(0, 2**31), st.integers(0, 2**31), packets)
def test_decide__the_end_of_the_buffer(buffer: int, backlog: int, others: int, packet: int) -> None:
    verdict = decide(queue(), buffer=buffer, backlog=backlog, others=others, packet=packet)
    assert (verdict == TAIL) == (backlog + others + packet > buffer)


@given(sizes, st.integers(1, 2**20), st.integers(0, 2**31), st.data())
def test_decide__a_packet_within_its_reserved_bytes_always_fits(
    buffer: int, reserved: int, others: int, data: st.DataObject
) -> None:
    packet = data.draw(st.integers(1, min(reserved, 65_535)))
    backlog = data.draw(st.integers(0, reserved - packet))
    assert decide(queue(reserved=reserved), buffer=buffer, backlog=backlog, others=others, packet=packet) == ENQUEUE


def test_decide__a_full_buffer_drops_what_would_only_have_been_marked() -> None:
    made = queue(Curve(0, 0, flags=ACTIVE | MARK))
    assert decide(made, buffer=10_000, backlog=9_000, packet=1_500, ecn=ECT0) == TAIL


@given(st.lists(st.integers(0, 9_000), min_size=8, max_size=8), st.lists(st.tuples(st.integers(0, 7), packets)))
def test_port__never_holds_more_than_its_buffer_and_keeps_reserved_bytes_free(
    reserved: list[int], arrivals: list[tuple[int, int]]
) -> None:
    buffer, held = 72_000, [0] * 8
    queues = [queue(reserved=share) for share in reserved]
    for number, packet in arrivals:
        claims = [int(lib.dlcp_aqm_claim_bytes(queues[i], held[i])) for i in range(8)]
        others = sum(claims) - claims[number]
        if decide(queues[number], buffer=buffer, backlog=held[number], others=others, packet=packet) == ENQUEUE:
            held[number] += packet
        assert sum(held) <= buffer
        for i in range(8):  # what is reserved and unused can still be had
            free = reserved[i] - held[i]
            if free > 0:
                others = sum(max(held[j], reserved[j]) for j in range(8) if j != i)
                assert decide(queues[i], buffer=buffer, backlog=held[i], others=others, packet=free) == ENQUEUE
