"""In which order a port serves its queues: strict priority by inversions, weights by shares of what drains.

All queues below the top one are filled while the port is blocked, the lowest first; then they drain. Under strict
priority nothing of a queue leaves before all of the next higher one has: what does is an inversion. For the top queue
and the one beneath it, the block itself is the test: whatever of the lower one comes before the sentinel has left while
the top queue held packets.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dlcp.model.frames import FRAME_BYTES
from dlcp.model.qos import QUEUES, QosIntent
from dlcp.transport.contract.codepoint import tos_of_queue
from dlcp.verification.codepoints import weighted
from dlcp.verification.placement import Station, cushion_bytes
from dlcp.verification.probe_trains import Block, Load, shoot
from dlcp.verification.prober import SMALLEST_BYTES, Prober
from dlcp.verification.rows import Row, Verdict, starved, unsupported

TOP = QUEUES - 1
BLOCKS = 12
PROBES = 8
"""Probes of each queue, in a block."""
PROBE_BYTES = 200
DISTURBED_SHARE = 0.25
"""Share of the blocks in which packets may be out of order because the machine was late; a wrong order shows in most.
"""
LEAST_SHARE = 0.02
"""Share of a port's buffer that each queue has at least, so that no drop profile is reached."""
PRIORITY, WEIGHTS = "strict priority", "weights"
ROUNDS = 3
"""Rounds of the weighted queues that a port must hold at once for their shares to be seen."""


def warm_up(prober: Prober, station: Station, intent: QosIntent) -> None:
    """Some frames through every queue, not judged: a shaper may let a queue's first packets through as a welcome."""
    load = Load(tuple((tos_of_queue(queue), FRAME_BYTES) for queue in range(TOP)), 2)
    shoot(prober, station, lambda: [load], cushion_bytes(intent), wanted=1, most=1, all_count=True)


def inversions(queues: npt.NDArray[np.int64], higher: int, lower: int) -> int:
    """Packets of the lower queue that came before the last one of the higher; queues: of each packet, as it came."""
    last = np.flatnonzero(queues == higher)
    return int((queues[: last[-1]] == lower).sum()) if len(last) else 0


def judge_pair(where: str, higher: int, lower: int, found: Sequence[int], packets: int, doubt: str = "") -> Row:
    """found: inversions in each block; packets: of the lower queue in each."""
    verdict: Verdict
    blocks, total = len(found), sum(found)
    crossed = sum(count > 0 for count in found)
    measured = f"{total} of {packets * blocks} out of order" if blocks else "nothing"
    if crossed:
        measured += f", in {crossed} of {blocks} blocks"
    if doubt or not blocks:
        verdict, why = "inconclusive", doubt or "no block could be read"
    elif crossed > blocks / 2:
        verdict, why = (
            "deviates",
            f"queue {lower} is served while queue {higher} waits, in {crossed} of {blocks} blocks",
        )
    elif crossed > DISTURBED_SHARE * blocks:
        verdict, why = "inconclusive", f"{crossed} of {blocks} blocks were disturbed"
    else:
        verdict, why = "ok", ""
    return Row(
        PRIORITY,
        where,
        f"queue {higher} before queue {lower}",
        "nothing out of order",
        measured,
        f"{DISTURBED_SHARE:.0%} of blocks",
        verdict,
        why,
        {"inversions": list(found), "packets": packets},
    )


def probe_priority(prober: Prober, station: Station, intent: QosIntent) -> list[Row]:
    """A row for every two adjacent queues that are not both weighted."""
    size = max(SMALLEST_BYTES, min(PROBE_BYTES, int(LEAST_SHARE * intent.port_buffer_bytes) // PROBES))
    pattern = tuple((tos_of_queue(queue), size) for queue in range(TOP) for _ in range(PROBES))
    load = Load(pattern, spread=True)
    blocks = shoot(prober, station, lambda: [load] * BLOCKS, cushion_bytes(intent), wanted=BLOCKS // 2, most=2)
    if not blocks.blocks:
        row = Row(PRIORITY, station.port, "all queues", "", "nothing", "", "inconclusive", blocks.doubt)
        return [starved(row, blocks.lost)]
    early = [int((_queues(block)[: block.early] == TOP - 1).sum()) for block in blocks.blocks]
    rows = [judge_pair(station.port, TOP, TOP - 1, early, PROBES)]
    apart = weighted(intent)
    for lower, higher in reversed(list(pairwise(range(TOP)))):
        if lower in apart and higher in apart:
            continue
        counts = [inversions(_queues(block)[block.early :], higher, lower) for block in blocks.blocks]
        rows.append(judge_pair(station.port, higher, lower, counts, PROBES))
    return [starved(row, blocks.lost) for row in rows]


def _queues(block: Block) -> npt.NDArray[np.int64]:
    """Queue of each probe, as they came; the load is sorted by queue, PROBES of each."""
    return block.numbers // PROBES


def shares(queues: npt.NDArray[np.int64], members: Sequence[int]) -> dict[int, int]:
    """Packets of each member that left before the first of them ran empty."""
    ends = [np.flatnonzero(queues == member)[-1] for member in members if (queues == member).any()]
    until = min(ends) + 1 if len(ends) == len(members) else 0
    return {member: int((queues[:until] == member).sum()) for member in members}


def judge_weights(where: str, weights: dict[int, int], found: Sequence[dict[int, int]], doubt: str = "") -> Row:
    """found: packets of each queue in each block while all of them were backlogged. A block can be off by one turn of
    every queue, half of it on average, so the tolerance is one turn in all that a block drains."""
    verdict: Verdict
    total = {queue: sum(block.get(queue, 0) for block in found) for queue in weights}
    everything, all_weights = sum(total.values()), sum(weights.values())
    per_block = everything / max(1, len(found))
    tolerance = max(weights.values()) / per_block if per_block else 1.0
    wanted = {queue: weight / all_weights for queue, weight in weights.items()}
    got = {queue: count / everything if everything else 0.0 for queue, count in total.items()}
    worst = max(weights, key=lambda queue: abs(got[queue] - wanted[queue]))
    off = abs(got[worst] - wanted[worst])
    if doubt or not everything:
        verdict, why = "inconclusive", doubt or "no block could be read"
    elif off > tolerance:
        verdict, why = "deviates", f"queue {worst} gets {got[worst]:.1%}, not {wanted[worst]:.1%}"
    else:
        verdict, why = "ok", ""
    return Row(
        WEIGHTS,
        where,
        "queues " + ", ".join(map(str, weights)),
        _listed(wanted),
        _listed(got),
        f"± {100 * tolerance:.0f} points",
        verdict,
        why,
        {"weights": weights, "packets": total},
    )


def probe_weights(prober: Prober, station: Station, intent: QosIntent, room_bytes: int) -> list[Row]:
    """One row for all weighted queues, none when there are none. room_bytes: what they can hold together."""
    members = weighted(intent)
    if len(members) < 2:
        return []
    weights = {queue: intent.queue(queue).weight or 1 for queue in members}
    rounds = int(0.9 * room_bytes / (sum(weights.values()) * FRAME_BYTES))
    if rounds < ROUNDS:
        round_bytes = sum(weights.values()) * FRAME_BYTES
        why = f"{ROUNDS} rounds of {round_bytes} B do not fit into the {room_bytes} B that the port leaves them"
        return [unsupported(WEIGHTS, station.port, "queues " + ", ".join(map(str, members)), _listed(weights), why)]
    labels = [queue for queue in members for _ in range(weights[queue] * rounds)]
    load = Load(tuple((tos_of_queue(queue), FRAME_BYTES) for queue in labels), spread=True)
    blocks = shoot(prober, station, lambda: [load] * BLOCKS, cushion_bytes(intent), wanted=BLOCKS // 2)
    names = np.array(labels, np.int64)
    drained = [shares(names[block.numbers], members) for block in blocks.held]
    return [starved(judge_weights(station.port, weights, drained, blocks.doubt), blocks.lost)]


def _listed(values: dict[int, float] | dict[int, int]) -> str:
    return " : ".join(f"{value:.1%}" if isinstance(value, float) else str(value) for value in values.values())
