"""Judging codepoints, order of service, weights and limits from made-up arrivals of switches whose truth is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from dlcp.cli.show import switch
from dlcp.model.qos import DropProfile, Pfc, QosIntent, QueueIntent
from dlcp.transport.contract.codepoint import queue_of_dscp
from dlcp.verification import codepoints, limits, service
from dlcp.verification.placement import Station
from dlcp.verification.probe_trains import LEAD_S, Block, Load, block_s, read
from dlcp.verification.prober import NO_ARRIVALS
from dlcp.verification.procedure import _unseen as unseen
from dlcp.verification.repeat import settled
from dlcp.verification.rows import Row, Verdict, exit_code, starved

PLAIN = QosIntent(name="plain", port_buffer="100 kB")
TOP = 7

Map = Callable[[int], int]
"""DSCP → rank of its queue; TOP is not blocked."""


def passes(ranked: Map, seed: int = 1, late: float = 0.0) -> list[tuple[list[int], list[int], int]]:
    """What a switch with that map does with codepoints.orders. late: share of the passes in which all come early."""
    random, found = np.random.default_rng(seed), []
    for sent in codepoints.orders(codepoints.ROUNDS, seed):
        if random.random() < late:
            found.append((sent, list(sent), len(sent)))
            continue
        early = [dscp for dscp in sent if ranked(dscp) == TOP]
        rest = sorted((dscp for dscp in sent if ranked(dscp) != TOP), key=lambda dscp: -ranked(dscp))
        found.append((sent, early + rest, len(early)))
    return found


def judged(ranked: Map, intent: QosIntent = PLAIN, late: float = 0.0) -> Row:
    found = codepoints.measured(passes(ranked, late=late))
    return codepoints.judge(intent, "s1-h1", found, 2 * codepoints.ROUNDS)


def test_the_intended_map_passes() -> None:
    assert judged(queue_of_dscp).verdict == "ok"


def test_it_passes_when_some_blocks_did_not_hold() -> None:
    assert judged(queue_of_dscp, late=0.15).verdict == "ok"


def swapped(dscp: int) -> int:
    return {3: 4, 4: 3}.get(queue_of_dscp(dscp), queue_of_dscp(dscp))


def top_swapped(dscp: int) -> int:
    return {6: 7, 7: 6}.get(queue_of_dscp(dscp), queue_of_dscp(dscp))


@pytest.mark.parametrize(
    ("ranked", "said"),
    [
        (lambda dscp: 5 if dscp == 10 else queue_of_dscp(dscp), "DSCP 10 is served with 40's queue"),
        (lambda dscp: 6 if dscp == 1 else queue_of_dscp(dscp), "DSCP 1 is served with 48's queue"),
        (lambda dscp: 0 if dscp == 56 else queue_of_dscp(dscp), "DSCP 56 is served with 0's queue"),
        (lambda dscp: 7 if dscp == 48 else queue_of_dscp(dscp), "DSCP 48 is served with 56's queue"),
        (lambda dscp: queue_of_dscp(dscp) + 0.5 * (dscp == 10), "DSCP 10 has a queue of its own"),
        (swapped, "DSCP 24's queue is served before 32's"),
        (top_swapped, "DSCP 48's queue is served before 56's"),
        (lambda dscp: 0, "is served with"),
    ],
    ids=[
        "wrong queue",
        "undefined one",
        "top to bottom",
        "into the top",
        "alone",
        "two swapped",
        "top two",
        "one FIFO",
    ],
)
def test_a_wrong_map_is_found(ranked: Map, said: str) -> None:
    row = judged(ranked)
    assert row.verdict == "deviates"
    assert said in row.why


def test_codepoints_that_never_arrive_are_unclear() -> None:
    made = [(sent, [d for d in arrived if d != 8], early) for sent, arrived, early in passes(queue_of_dscp)]
    row = codepoints.judge(PLAIN, "s1-h1", codepoints.measured(made), 16)
    assert (row.verdict, row.why) == ("inconclusive", "nothing clear about DSCP 8")


def test_weighted_queues_are_one_group() -> None:
    queues = {0: QueueIntent(weight=1), 1: QueueIntent(weight=3)}
    intent = QosIntent(name="x", port_buffer="100 kB", queues=queues)
    wanted = codepoints.intended(intent)
    assert len(wanted.groups) == 7
    assert {8, 10, 12, 0, 1} <= wanted.groups[-1]

    def judged_so(ranked: Map) -> Row:
        found = codepoints.measured(passes(ranked), wanted.groups[-1])
        return codepoints.judge(intent, "s1-h1", found, 2 * codepoints.ROUNDS)

    assert judged_so(queue_of_dscp).verdict == "ok", "served one after the other, as small packets may be"
    assert judged_so(lambda dscp: max(1, queue_of_dscp(dscp))).verdict == "ok"
    row = judged_so(lambda dscp: 4 if dscp == 8 else queue_of_dscp(dscp))
    assert (row.verdict, "DSCP 8 is served with 32's queue" in row.why) == ("deviates", True)
    row = judged_so(lambda dscp: 0 if dscp == 32 else queue_of_dscp(dscp))
    assert row.verdict == "deviates"


def test_counters_tell_queue_and_precedence() -> None:
    right = {dscp: {(queue_of_dscp(dscp), codepoints.precedence_of_dscp(dscp)): 16} for dscp in range(64)}
    assert codepoints.judge_counters("s1", right).verdict == "ok"
    wrong = right | {10: {(1, 0): 16}}
    row = codepoints.judge_counters("s1", wrong)
    assert row.verdict == "deviates"
    assert row.why == "DSCP 10 counts in queue 1, precedence 0, not 1, 1"
    assert codepoints.judge_counters("s1", right | {10: {}}).verdict == "inconclusive"


def test_inversions_are_packets_of_the_lower_queue_before_the_last_of_the_higher() -> None:
    assert service.inversions(np.array([3, 3, 2, 3, 2]), 3, 2) == 1
    assert service.inversions(np.array([3, 3, 3, 2, 2]), 3, 2) == 0


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ([0] * 12, "ok"),
        ([0] * 10 + [8, 3], "ok"),
        ([8] * 12, "deviates"),
        ([1] * 12, "deviates"),
        ([0] * 7 + [4] * 5, "inconclusive"),
        ([], "inconclusive"),
    ],
)
def test_priority__deviates_when_most_blocks_do(found: list[int], verdict: Verdict) -> None:
    assert service.judge_pair("s1-h1", 4, 3, found, 8).verdict == verdict


def test_priority__what_was_out_of_order_and_still_passes_is_told_with_its_bound() -> None:
    rows = [service.judge_pair("s1-h1", 4, 3, [0] * 10 + [8, 3], 8), service.judge_pair("s1-h1", 3, 2, [0] * 12, 8)]
    (shown,) = switch._folded(rows)
    assert (shown.measured, shown.tolerance) == ("11 of 192 out of order, in 2 of 24 blocks", "25% of blocks")


def drained(weights: Sequence[int], packets: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Queues of equal backlog, served in turns of their weights."""
    left, order = [packets] * len(weights), []
    while any(left):
        for queue, weight in enumerate(weights):
            turn = min(weight, left[queue])
            order += [queue] * turn
            left[queue] -= turn
    return np.array(order, np.int64)


def test_weights__shares_are_those_until_the_first_queue_is_empty() -> None:
    weights = {0: 1, 1: 2, 2: 4}
    right = [service.shares(drained([1, 2, 4], 40), [0, 1, 2])] * 6
    assert service.judge_weights("s1-h1", weights, right).verdict == "ok"
    equal = [service.shares(drained([1, 1, 1], 40), [0, 1, 2])] * 6
    assert service.judge_weights("s1-h1", weights, equal).verdict == "deviates"
    turned = [service.shares(drained([4, 2, 1], 40), [0, 1, 2])] * 6
    assert service.judge_weights("s1-h1", weights, turned).verdict == "deviates"


def filled(intent: QosIntent, queue: int, held: int, top: float) -> Block:
    load = limits.load_of(intent, queue)
    assert load is not None
    count = int(np.searchsorted(np.cumsum(load.sizes), held, side="right"))
    return Block(load, np.arange(count), np.zeros(count, np.int64), 0, top)


@pytest.mark.parametrize(
    ("intent", "queue", "holds"),
    [
        (PLAIN, 0, 100_000 - 9_000),
        (QosIntent(name="x", port_buffer=60_000, queues={2: QueueIntent(limit=12_000)}), 2, 12_000),
        (QosIntent(name="x", port_buffer=60_000, queues={5: QueueIntent(reserved=20_000)}), 0, 40_000 - 9_000),
        # 9 kB of the shared 80 are gone; of the free bytes beyond, the queue takes alpha / (1 + alpha)
        (
            QosIntent(name="x", port_buffer=60_000, shared_buffer=80_000, queues={0: QueueIntent(alpha=0.5)}),
            0,
            71_000 / 3,
        ),
    ],
    ids=["port", "queue", "reserved by another", "shared"],
)
def test_limits(intent: QosIntent, queue: int, holds: float) -> None:
    right = [filled(intent, queue, int(holds), 9_000.0)] * 5
    assert limits.judge(intent, "s1-h1", [queue], right).verdict == "ok"
    for share in (0.5, 0.85):
        low = [filled(intent, queue, int(share * holds), 9_000.0)] * 5
        assert limits.judge(intent, "s1-h1", [queue], low).verdict == "deviates"
    load = right[0].load
    everything = Block(load, np.arange(len(load.sizes)), np.zeros(len(load.sizes), np.int64), 0, 9_000.0)
    assert limits.judge(intent, "s1-h1", [queue], [everything] * 5).verdict == "deviates"


def test_a_queue_that_drops_every_precedence_is_never_full() -> None:
    drop = DropProfile(minimum=100, maximum=200)
    intent = QosIntent(name="x", port_buffer=60_000, queues={1: QueueIntent(profiles=(drop, drop, drop))})
    assert limits.load_of(intent, 1) is None


def row(verdict: Verdict) -> Row:
    return Row("rate", "h1 → s1", "saturated", "100 Mbit/s", "+1 %", "", verdict, "why")


@pytest.mark.parametrize(
    ("tries", "verdict"),
    [
        (["ok"], "ok"),
        (["deviates", "ok", "ok"], "ok"),
        (["deviates", "ok", "deviates"], "deviates"),
        (["inconclusive", "inconclusive", "inconclusive"], "inconclusive"),
        (["deviates", "inconclusive", "ok"], "inconclusive"),
    ],
)
def test_what_is_not_ok_is_measured_again(tries: list[Verdict], verdict: Verdict) -> None:
    left = iter(tries)
    assert [one.verdict for one in settled(lambda: [row(next(left))])] == [verdict]
    assert list(left) == []


def test_starved_probes_prove_no_deviation() -> None:
    assert starved(row("deviates"), "cpu_busy").verdict == "inconclusive"
    assert starved(row("ok"), "cpu_busy").verdict == "ok"
    assert starved(row("deviates"), "").verdict == "deviates"


def test_what_no_probe_looks_at_is_said() -> None:
    pfc = Pfc(queues=(3,), xoff="30 kB", xon="20 kB")
    (told,) = unseen(PLAIN.model_copy(update={"pfc": pfc}))
    assert (told.check, told.verdict, told.intended) == ("pfc", "unsupported", "pause beyond 30 kB, until 20 kB")
    assert unseen(PLAIN) == []


@pytest.mark.parametrize(("verdict", "code"), [("ok", 0), ("unsupported", 0), ("deviates", 4), ("inconclusive", 4)])
def test_exit_code(verdict: Verdict, code: int) -> None:
    assert exit_code([row("ok"), row(verdict)]) == code


def test_a_block_whose_tester_was_late_is_left_out() -> None:
    """Cushion, load and sentinel sent at once: in the tester the sentinel overtakes the load."""
    load, cushion = Load(((0, 100),), 20), 2 * 1514
    where = Station("s1", "h1", "h2", "h3", 100e6, 100e6, 100e6)
    _, sentinel_s, end_s = block_s(where, load, cushion)

    def block(sentinel_at_s: float) -> list[Block]:
        trains = [(0, 0.0), (1, LEAD_S), (3, sentinel_at_s), (0, end_s), *[(2, LEAD_S)] * 20]
        made = np.zeros(len(trains), NO_ARRIVALS.dtype)
        made["train"] = [train for train, _ in trains]
        made["sent_ns"] = [10**9 + int(at_s * 1e9) for _, at_s in trains]
        made["arrived_ns"] = made["sent_ns"] + 100_000
        made["number"][-20:] = np.arange(20)
        return read(where, [load], cushion, made)

    (found,) = block(sentinel_s)
    assert (found.early, bool(found.arrived.all())) == (0, True)
    assert block(LEAD_S) == []
