"""aqm.h, the drop-or-mark decision that the eBPF switch and the simulator compile, called through cffi."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcp.transport._native import ffi, lib

CERTAIN = 2**32
UNLIMITED = 2**32 - 1
UNSHARED = 2**64 - 1
ACTIVE, MARK = 1, 2
NOT_ECT, ECT0, CE = 0, 2, 3
ENQUEUE, MARKED, WRED, TAIL, SHARED = (
    lib.DLCP_AQM_ENQUEUE,
    lib.DLCP_AQM_ENQUEUE_MARKED,
    lib.DLCP_AQM_DROP_WRED,
    lib.DLCP_AQM_DROP_TAIL,
    lib.DLCP_AQM_DROP_SHARED,
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


def queue(
    curve: Curve | None = None,
    *,
    precedence: int = 0,
    reserved: int = 0,
    limit: int = UNLIMITED,
    alpha: float = 1.0,
) -> Any:
    """struct dlcp_aqm_queue with one profile."""
    made = ffi.new("struct dlcp_aqm_queue *")
    made.reserved_bytes, made.limit_bytes, made.alpha_q8 = reserved, limit, round(alpha * 256)
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
    common: int = 2**32 - 1,
    backlog: int = 0,
    judged: int | None = None,
    beyond: int = 0,
    free: int = UNSHARED,
    packet: int = 1500,
    precedence: int = 0,
    ecn: int = NOT_ECT,
    random: int = 0,
) -> int:
    """The verdict. judged: the backlog, unless given."""
    arrival = ffi.new("struct dlcp_aqm_arrival *")
    arrival.backlog_bytes, arrival.judged_bytes = backlog, backlog if judged is None else judged
    arrival.beyond_bytes, arrival.shared_free_bytes = beyond, free
    arrival.packet_bytes, arrival.precedence, arrival.ecn, arrival.random = packet, precedence, ecn, random
    return int(lib.dlcp_aqm_decide(made, common, arrival))


def taken(made: Any, backlog: int, packet: int) -> int:
    return int(lib.dlcp_aqm_taken_bytes(made, backlog, packet))


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


@given(curves(), st.integers(0, 2**31), st.integers(0, 2**31), randoms)
def test_decide__profiles_look_at_what_they_are_told_to(curve: Curve, backlog: int, judged: int, random: int) -> None:
    verdict = decide(queue(curve), backlog=backlog, judged=judged, random=random)
    assert verdict == (WRED if random < probability(curve, judged) else ENQUEUE)


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


@given(sizes, st.integers(0, 2**31), packets)
def test_decide__a_queue_holds_its_limit_at_most(limit: int, backlog: int, packet: int) -> None:
    verdict = decide(queue(limit=limit), backlog=backlog, packet=packet)
    assert (verdict == TAIL) == (limit != UNLIMITED and backlog + packet > limit)


@given(sizes, st.integers(0, 2**31), st.integers(0, 2**31), packets)
def test_decide__the_end_of_the_buffer(common: int, backlog: int, beyond: int, packet: int) -> None:
    verdict = decide(queue(), common=common, backlog=backlog, beyond=beyond, packet=packet)
    assert (verdict == TAIL) == (beyond + packet > common)


@given(sizes, st.integers(1, 2**20), st.integers(0, 2**31), st.integers(0, 2**20), st.data())
def test_decide__a_packet_within_its_reserved_bytes_always_fits(
    common: int, reserved: int, beyond: int, free: int, data: st.DataObject
) -> None:
    packet = data.draw(st.integers(1, min(reserved, 65_535)))
    backlog = data.draw(st.integers(0, reserved - packet))
    made = queue(reserved=reserved)
    assert decide(made, common=common, backlog=backlog, beyond=beyond, free=free, packet=packet) == ENQUEUE


def test_decide__a_full_buffer_drops_what_would_only_have_been_marked() -> None:
    made = queue(Curve(0, 0, flags=ACTIVE | MARK))
    assert decide(made, common=10_000, backlog=9_000, beyond=9_000, packet=1_500, ecn=ECT0) == TAIL


@given(st.integers(0, 2**24), st.integers(0, 2**20), st.integers(0, 2**24), packets, st.sampled_from([0.25, 1.0, 8.0]))
def test_decide__a_queue_holds_alpha_times_what_is_free_of_the_shared_buffer(
    backlog: int, reserved: int, free: int, packet: int, alpha: float
) -> None:
    made = queue(reserved=reserved, alpha=alpha)
    beyond = max(0, backlog + packet - reserved)
    takes = taken(made, backlog, packet)
    fits = takes == 0 or (takes <= free and beyond <= alpha * free)
    assert decide(made, backlog=backlog, free=free, packet=packet) == (ENQUEUE if fits else SHARED)


@given(st.lists(st.integers(0, 9_000), min_size=8, max_size=8), st.lists(st.tuples(st.integers(0, 7), packets)))
def test_port__never_holds_more_than_its_buffer_and_keeps_reserved_bytes_free(
    reserved: list[int], arrivals: list[tuple[int, int]]
) -> None:
    buffer, held = 72_000, [0] * 8
    common, beyond = buffer - sum(reserved), 0
    queues = [queue(reserved=share) for share in reserved]
    for number, packet in arrivals:
        verdict = decide(queues[number], common=common, backlog=held[number], beyond=beyond, packet=packet)
        if verdict == ENQUEUE:
            beyond += taken(queues[number], held[number], packet)
            held[number] += packet
        assert sum(held) <= buffer
        for i in range(8):  # what is reserved and unused can still be had
            free = reserved[i] - held[i]
            if free > 0:
                assert decide(queues[i], common=common, backlog=held[i], beyond=beyond, packet=free) == ENQUEUE


@given(st.integers(0, 2**20), st.integers(0, 2**24), packets)
def test_taken__is_given_back_when_the_packet_leaves(reserved: int, backlog: int, packet: int) -> None:
    made = queue(reserved=reserved)
    before, after = (int(lib.dlcp_aqm_beyond_bytes(made, held)) for held in (backlog, backlog + packet))
    assert taken(made, backlog, packet) == after - before == max(0, backlog + packet - max(reserved, backlog))


@given(st.integers(0, 100_000), st.lists(st.tuples(st.booleans(), st.integers(0, 30_000)), max_size=60))
def test_shared_buffer__is_never_exceeded_and_runs_empty(size: int, steps: list[tuple[bool, int]]) -> None:
    used, held = ffi.new("uint64_t *"), []
    for take, amount in steps:
        if take:
            had = bool(lib.dlcp_aqm_take_shared(used, size, amount))
            assert had == (amount == 0 or sum(held) + amount <= size)
            held += [amount] if had else []
        elif held:
            lib.dlcp_aqm_give_shared(used, held.pop())
        assert used[0] == sum(held) <= max(size, 0)


def test_shared_buffer__is_never_exceeded_by_takers_at_once() -> None:
    """Threads run the C function side by side: cffi lets go of the interpreter's lock."""
    used, size, takers, tries = ffi.new("uint64_t *"), 40_000, 4, 20_000
    had = [0] * takers

    def take(taker: int) -> None:
        for _ in range(tries):
            had[taker] += lib.dlcp_aqm_take_shared(used, size, 1)

    threads = [threading.Thread(target=take, args=(taker,)) for taker in range(takers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(had) == used[0] <= size
    assert sum(had) >= size - takers, "one is refused for another's sake only in the same instant"


@pytest.mark.parametrize("alpha", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("greedy", [1, 2, 5])
def test_shared_buffer__greedy_queues_settle_where_choudhury_and_hahne_say(alpha: float, greedy: int) -> None:
    size, packet = 1_000_000, 500
    queues, held = [queue(alpha=alpha) for _ in range(greedy)], [0] * greedy
    for _ in range(3 * size // packet):
        for i in range(greedy):
            if decide(queues[i], backlog=held[i], free=size - sum(held), packet=packet) == ENQUEUE:
                held[i] += packet
    share = alpha / (1 + greedy * alpha) * size
    # what a queue is allowed falls by alpha packets for each packet that it takes: so far from the fixed point at most
    assert held == pytest.approx([share] * greedy, abs=(1 + alpha) * packet)


def averaged(weight: int, samples: list[tuple[int, int]], frame_ns: int = 1000, emptied_ns: int = 0) -> list[int]:
    """The average after each (time in ns, backlog), of one queue that ran empty at emptied_ns."""
    average = ffi.new("struct dlcp_aqm_average *")
    lib.dlcp_aqm_empty(average, emptied_ns)
    return [int(lib.dlcp_aqm_average(average, weight, backlog, now, frame_ns)) for now, backlog in samples]


@given(st.integers(1, 15), st.lists(st.integers(1, 2**32 - 1), min_size=1, max_size=200))
def test_average__moves_by_its_weight_towards_each_backlog(weight: int, found: list[int]) -> None:
    exact = 0.0
    for backlog, seen in zip(found, averaged(weight, [(0, b) for b in found]), strict=True):
        exact += (backlog - exact) / 2**weight
        assert seen == pytest.approx(exact, rel=1e-6, abs=2)


def test_average__of_a_steady_backlog_becomes_that_backlog() -> None:
    assert averaged(9, [(0, 50_000)] * 20_000)[-1] == pytest.approx(50_000, abs=1)


@given(st.integers(1, 15), st.integers(1, 2**22), st.integers(1, 10**6))
def test_average__of_an_idle_queue_decays_as_if_frames_had_found_it_empty(
    weight: int, frames: int, frame_ns: int
) -> None:
    full = 1_000_000
    filled = [(0, full)] * (40 << weight if weight < 8 else 1)
    average = ffi.new("struct dlcp_aqm_average *")
    start = [int(lib.dlcp_aqm_average(average, weight, backlog, now, frame_ns)) for now, backlog in filled][-1]
    lib.dlcp_aqm_empty(average, 5)
    idle_ns = frames * frame_ns
    decayed = int(lib.dlcp_aqm_average(average, weight, 0, 5 + idle_ns, frame_ns))
    assert decayed == pytest.approx(start * (1 - 2.0**-weight) ** frames, rel=1e-3, abs=2)


def test_average__idle_time_counts_once() -> None:
    frame_ns = 1000
    filled = [(0, 100_000)] * 100
    at_once = averaged(3, [*filled, (20 * frame_ns, 0)], frame_ns)[-1]
    in_steps = averaged(3, [*filled, *((step * frame_ns // 2, 0) for step in range(1, 41))], frame_ns)[-1]
    assert in_steps == pytest.approx(at_once, abs=3)


@given(st.integers(1, 15), st.integers(0, 2**63))
def test_decay__is_a_share_that_only_falls(weight: int, steps: int) -> None:
    share = int(lib.dlcp_aqm_decay_q32(weight, steps))
    assert 0 <= int(lib.dlcp_aqm_decay_q32(weight, steps + 1)) <= share <= CERTAIN
