"""Which codepoints share a queue, and which queue is served before which: by the order in which probes arrive alone.

All 64 are sent into a blocked port, in a random order and then in the opposite one. Strict priority sorts by queue and
keeps the order of sending inside a queue: two codepoints that arrive in the order of sending both times share a queue;
of two that do not, the one that comes first both times is in the higher one. Codepoints of the top queue are not
blocked: they arrive before the sentinel. Weighted queues share what the strict ones leave and mix as the scheduler
likes, so all weighted queues are looked at as one; only counters tell them apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dlcp.model.qos import PRECEDENCES, QUEUES, QosIntent
from dlcp.transport.contract.codepoint import precedence_of_dscp, queue_of_dscp
from dlcp.verification.placement import Station, cushion_bytes
from dlcp.verification.probe_trains import MIN_HOLD_SHARE, Block, Load, shoot
from dlcp.verification.prober import SMALLEST_BYTES, Prober
from dlcp.verification.rows import Row, Verdict, starved

CODEPOINTS = 64
ROUNDS = 8
"""Pairs of opposite orders."""
AGREE = 0.75
"""Share of the passes that must say the same of a pair of codepoints."""
ROW = "DSCP → queue"
COUNTED = "DSCP by counters"


Pass = tuple[Sequence[int], Sequence[int], int]


@dataclass(frozen=True)
class Partition:
    """Groups of codepoints, highest first; unclear: those about which the rounds disagree or which never arrived."""

    groups: tuple[frozenset[int], ...]
    unclear: frozenset[int] = frozenset()


def intended(intent: QosIntent) -> Partition:
    """By codepoint.h; weighted queues are one group."""
    lowest = max(0, len(weighted(intent)) - 1)
    groups: dict[int, set[int]] = {}
    for dscp in range(CODEPOINTS):
        groups.setdefault(max(queue_of_dscp(dscp), lowest), set()).add(dscp)
    return Partition(tuple(frozenset(groups[queue]) for queue in sorted(groups, reverse=True)))


def weighted(intent: QosIntent) -> list[int]:
    """The queues that share by weight."""
    return [number for number in range(QUEUES) if intent.queue(number).weight is not None]


def orders(rounds: int, seed: int) -> list[list[int]]:
    """Random orders of all codepoints, each followed by its opposite."""
    random = np.random.default_rng([seed, CODEPOINTS])
    found = []
    for _ in range(rounds):
        order = [int(dscp) for dscp in random.permutation(CODEPOINTS)]
        found += [order, order[::-1]]
    return found


def measured(passes: Sequence[Pass], alike: frozenset[int] = frozenset()) -> Partition:
    """From passes of (codepoints in the order of sending, in that of arrival, how many arrived before the sentinel).

    Passes of an undisturbed block have the same codepoints before the sentinel: the top queue's. Only passes that have
    the most frequent such set are believed; the partition is empty, all codepoints unclear, when they are too few.
    alike: codepoints of weighted queues, whose order among each other says nothing; they are in one group unless they
    are in another's queue.
    """
    sets = Counter(frozenset(arrived[:count]) for _, arrived, count in passes)
    top, times = max(sets.items(), key=lambda one: one[1], default=(frozenset(), 0))
    if not times or times < MIN_HOLD_SHARE * len(passes):
        return Partition((), frozenset(range(CODEPOINTS)))
    seen = np.zeros(CODEPOINTS)
    before, as_sent, both = (np.zeros((CODEPOINTS, CODEPOINTS)) for _ in range(3))
    for sent, arrived, count in passes:
        if frozenset(arrived[:count]) != top:
            continue
        place, turn = _places(arrived), _places(sent)
        there = np.isfinite(place)
        seen += there
        here = there[:, None] & there[None, :]
        both += here
        before += here & (place[:, None] < place[None, :])
        as_sent += here & ((place[:, None] < place[None, :]) == (turn[:, None] < turn[None, :]))
    with np.errstate(invalid="ignore", divide="ignore"):
        before, as_sent = before / both, as_sent / both
    rest = [dscp for dscp in range(CODEPOINTS) if seen[dscp] and dscp not in top]
    groups, unclear = _groups([dscp for dscp in rest if dscp not in alike], before, as_sent)
    loose = set()
    for dscp in alike.intersection(rest):
        home = [group for group in groups if np.median([as_sent[dscp, other] for other in group]) >= AGREE]
        if home:
            groups[groups.index(home[0])] |= {dscp}
        else:
            loose.add(dscp)
    groups += [frozenset(loose)] if loose else []
    unclear |= {dscp for dscp in range(CODEPOINTS) if not seen[dscp]}
    return Partition(tuple(([top] if top else []) + groups), frozenset(unclear))


def _places(order: Sequence[int]) -> npt.NDArray[np.float64]:
    place = np.full(CODEPOINTS, np.inf)
    place[list(order)] = np.arange(len(order))
    return place


def _groups(
    codepoints: list[int], before: npt.NDArray[np.float64], as_sent: npt.NDArray[np.float64]
) -> tuple[list[frozenset[int]], set[int]]:
    """Groups, highest first, of codepoints whose pairs are clear; and those that disagree with most."""
    mean = {dscp: float(np.mean([before[dscp, other] for other in codepoints])) for dscp in codepoints}
    groups: list[list[int]] = []
    unclear: set[int] = set()
    for dscp in sorted(codepoints, key=lambda one: -mean[one]):
        home = [group for group in groups if np.median([as_sent[dscp, other] for other in group]) >= AGREE]
        if len(home) > 1:
            unclear.add(dscp)
        elif home:
            home[0].append(dscp)
        else:
            groups.append([dscp])
    groups.sort(key=lambda group: -float(np.mean([mean[dscp] for dscp in group])))
    return [frozenset(group) for group in groups], unclear


def differences(intended: Partition, measured: Partition) -> list[str]:
    """Where two partitions differ, one sentence for each codepoint or pair of groups."""
    names = {min(group, key=lambda dscp: (dscp % 8, dscp)): group for group in intended.groups}
    told = []
    homes: list[int | None] = []
    for group in measured.groups:
        name = max(names, key=lambda one: len(names[one] & group))
        homes.append(name if names[name] & group else None)
        for dscp in sorted(group - names[name]):
            told.append(f"DSCP {dscp} is served with {name}'s queue, not with {_home(names, dscp)}'s")
    for name, group in names.items():
        parts = [found & group for found, home in zip(measured.groups, homes, strict=True) if home == name]
        for part in sorted(parts, key=len)[:-1]:
            told.append(f"DSCP {_listed(part)} has a queue of its own, apart from {name}")
    order = [name for name in names if name in homes]
    served = [home for home in dict.fromkeys(homes) if home is not None]
    for one, other in zip(order, served, strict=False):
        if one != other:
            told.append(f"DSCP {other}'s queue is served before {one}'s")
            break
    return told


def judge(intent: QosIntent, where: str, found: Partition, blocks: int) -> Row:
    """The row of one port."""
    verdict: Verdict
    wanted = intended(intent)
    told = differences(Partition(tuple(left for group in wanted.groups if (left := group - found.unclear))), found)
    what = "all 64 codepoints"
    if len(weighted(intent)) > 1:
        what += ", weighted queues as one"
    measured = f"{_count(found.groups, 'group')}, " + ("as intended" if not told else told[0])
    if len(told) > 1:
        measured += f" (and {len(told) - 1} more)"
    unclear = f"nothing clear about DSCP {_listed(found.unclear)}" if found.unclear else ""
    verdict = "deviates" if told else "inconclusive" if unclear else "ok"
    return Row(
        ROW,
        where,
        what,
        _count(wanted.groups, "queue"),
        measured,
        "exact",
        verdict,
        "; ".join([*told[:8], unclear] if unclear else told[:8]),
        {"intended": _data(wanted), "measured": _data(found), "unclear": sorted(found.unclear), "passes": blocks},
    )


def probe(prober: Prober, station: Station, intent: QosIntent, seed: int) -> Row:
    """Send them and judge."""
    passes = orders(ROUNDS, seed)
    loads = [Load(tuple((dscp << 2, SMALLEST_BYTES) for dscp in order), spread=True) for order in passes]
    found = shoot(prober, station, lambda: loads, cushion_bytes(intent), wanted=len(loads) // 2, most=2, all_count=True)
    told = [_pass(block) for block in found.blocks]
    if not told:
        why = found.doubt or "no probe arrived"
        return starved(Row(ROW, station.port, "all 64 codepoints", "", "nothing", "exact", "deviates", why), found.lost)
    alike = intended(intent).groups[-1] if len(weighted(intent)) > 1 else frozenset()
    return starved(judge(intent, station.port, measured(told, alike), len(told)), found.lost)


def _pass(block: Block) -> Pass:
    sent = [tos >> 2 for tos, _ in block.load.pattern]
    return sent, [sent[number] for number in block.numbers], block.early


def judge_counters(switch: str, found: dict[int, dict[tuple[int, int], int]], tolerance_packets: int = 0) -> Row:
    """found: DSCP → (queue, precedence) → packets that the switch counted while only that codepoint was sent."""
    told, unclear = [], []
    for dscp, cells in sorted(found.items()):
        wanted = (queue_of_dscp(dscp), precedence_of_dscp(dscp))
        wrong = {cell: packets for cell, packets in cells.items() if cell != wanted and packets > tolerance_packets}
        if wrong:
            queue, precedence = max(wrong, key=lambda cell: wrong[cell])
            told.append(f"DSCP {dscp} counts in queue {queue}, precedence {precedence}, not {wanted[0]}, {wanted[1]}")
        elif not cells.get(wanted):
            unclear.append(dscp)
    measured = "as intended" if not told else told[0] + (f" (and {len(told) - 1} more)" if len(told) > 1 else "")
    why = "; ".join(told[:8]) or (f"no packet of DSCP {_listed(unclear)} came through" if unclear else "")
    return Row(
        COUNTED,
        switch,
        f"all {len(found)} codepoints",
        f"{QUEUES} queues × {PRECEDENCES} precedences",
        measured,
        "exact",
        "deviates" if told else "inconclusive" if unclear else "ok",
        why,
        {"packets": {str(dscp): {f"{q},{p}": n for (q, p), n in cells.items()} for dscp, cells in found.items()}},
    )


def _home(names: dict[int, frozenset[int]], dscp: int) -> int:
    return next((name for name, group in names.items() if dscp in group), dscp)


def _listed(codepoints: frozenset[int] | list[int]) -> str:
    found = sorted(codepoints)
    return ", ".join(map(str, found[:6])) + (f" and {len(found) - 6} more" if len(found) > 6 else "")


def _count(groups: Sequence[frozenset[int]], word: str) -> str:
    return f"{len(groups)} {word}{'s' * (len(groups) != 1)}"


def _data(partition: Partition) -> list[list[int]]:
    return [sorted(group) for group in partition.groups]
