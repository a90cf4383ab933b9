"""At which backlog a queue is full: its limit, the port's buffer, the switch's shared buffer, by aqm.h.

A load that fits nowhere piles up in a blocked queue; what arrives of it in the end is what the queue can hold. The
top queue takes its part of the port's buffer: how much, the sentinel's delay tells, give or take a frame or two.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlcp.model.frames import FRAME_BYTES
from dlcp.model.qos import QUEUES, QosIntent
from dlcp.transport._native import ffi, lib
from dlcp.verification.curves import spared_tos
from dlcp.verification.placement import Station, cushion_bytes
from dlcp.verification.probe_trains import Block, Load, shoot
from dlcp.verification.prober import SMALLEST_BYTES, Prober
from dlcp.verification.rows import Row, Verdict, starved, unsupported

CHECK = "tail limit"
BLOCKS = 10
PACKETS = 64
"""About so many fill a queue."""
LARGE_BYTES, BLOCKER_BYTES = 1250, 600
"""In a port that is full to the brim the smaller packets still find room: where the port's buffer is what is seen, the
load's are at least this large and the blocker's this small, so that the top queue does not run empty."""
BEYOND = 1.25
TOP_FRAMES = 2
"""How exactly the top queue's backlog is known."""


def full_bytes(intent: QosIntent, queue: int, top_bytes: float, packet_bytes: int) -> int:
    """The largest backlog of a queue that still takes a packet, while the top queue holds top_bytes and all others of
    the switch are empty."""
    native = ffi.new("struct dlcp_aqm_queue *")
    own = intent.queue(queue)
    native.reserved_bytes = intent.reserved_of(queue)
    native.limit_bytes = lib.DLCP_AQM_UNLIMITED if own.limit_bytes is None else own.limit_bytes
    native.alpha_q8 = round(intent.alpha_of(queue) * 256)
    common = intent.port_buffer_bytes - intent.reserved_bytes
    top_beyond = max(0, int(top_bytes) - intent.reserved_of(QUEUES - 1))
    arrival = ffi.new("struct dlcp_aqm_arrival *")
    arrival.packet_bytes = packet_bytes

    def takes(backlog: int) -> bool:
        beyond = top_beyond + max(0, backlog - native.reserved_bytes)
        arrival.backlog_bytes, arrival.beyond_bytes = backlog, beyond
        shared = intent.shared_buffer_bytes
        arrival.shared_free_bytes = lib.DLCP_AQM_UNSHARED if shared is None else max(0, shared - beyond)
        return bool(lib.dlcp_aqm_room(native, common, arrival) == lib.DLCP_AQM_ENQUEUE)

    low, high = -1, intent.port_buffer_bytes + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if takes(middle) else (low, middle)
    return max(0, low)


def alike(intent: QosIntent) -> list[tuple[int, ...]]:
    """Queues below the top one, grouped by what limits them."""
    groups: dict[tuple[int, int | None, float], list[int]] = {}
    for queue in range(QUEUES - 1):
        alpha = intent.alpha_of(queue) if intent.shared_buffer_bytes is not None else 0.0
        limited = (intent.reserved_of(queue), intent.queue(queue).limit_bytes, alpha)
        groups.setdefault(limited, []).append(queue)
    return [tuple(group) for group in groups.values()]


def load_of(intent: QosIntent, queue: int) -> Load | None:
    """More than the queue can hold; None when its profiles drop every packet before it is full."""
    tos = spared_tos(intent.queue(queue), queue)
    if tos is None:
        return None
    room = full_bytes(intent, queue, 0, SMALLEST_BYTES)
    roomy = intent.model_copy(update={"port_buffer_bytes": 4 * intent.port_buffer_bytes})
    by_port = full_bytes(roomy, queue, 0, SMALLEST_BYTES) > room
    size = min(FRAME_BYTES, max(LARGE_BYTES if by_port else SMALLEST_BYTES, room // PACKETS))
    return Load(
        ((tos, size),),
        int(BEYOND * full_bytes(intent, queue, 0, size) / size) + 4,
        blocker_bytes=BLOCKER_BYTES if by_port else FRAME_BYTES,
    )


def held_bytes(block: Block) -> int | None:
    """What the queue took; None when it took everything."""
    return None if block.arrived.all() else int(block.load.sizes[block.arrived].sum())


def judge(intent: QosIntent, where: str, queues: Sequence[int], blocks: Sequence[Block], doubt: str = "") -> Row:
    """A row of queues that are limited alike, seen on the first of them."""
    verdict: Verdict
    queue = queues[0]
    what = _named(queues)
    found = [(held_bytes(block), block.top_bytes) for block in blocks]
    size = int(blocks[0].load.sizes[0]) if blocks else 0
    slack = TOP_FRAMES * FRAME_BYTES
    tops = float(np.median([top for _, top in found])) if found else 0.0
    low, high = (size + full_bytes(intent, queue, max(0.0, tops + error), max(1, size)) for error in (slack, -slack))
    full = [at for at, _ in found if at is not None]
    verdict, why = "ok", ""
    measured = f"holds {np.median(full) / 1000:.1f} kB" if full else "is never full"
    if doubt or not found:
        verdict, why = "inconclusive", doubt or "no block could be read"
    elif len(full) <= len(found) / 2:
        verdict, why = "deviates", f"took {blocks[0].load.sizes.sum() / 1000:.1f} kB and dropped nothing"
    elif not low - size <= np.median(full) <= high + size:
        verdict, why = "deviates", f"holds {np.median(full) / 1000:.1f} kB"
    intended = f"{low / 1000:.1f} kB" if low == high else f"{low / 1000:.1f}–{high / 1000:.1f} kB"
    return Row(
        CHECK,
        where,
        what,
        intended,
        measured,
        f"± {size} B",
        verdict,
        why,
        {"held_bytes": full, "top_bytes": [round(top) for _, top in found], "queues": list(queues)},
    )


def probe(prober: Prober, station: Station, intent: QosIntent) -> list[Row]:
    """A row for each group of queues that are limited alike."""
    rows = []
    for group in alike(intent):
        usable = [queue for queue in group if load_of(intent, queue) is not None]
        if not usable:
            why = "its profiles drop packets of every precedence before it is full"
            rows.append(unsupported(CHECK, station.port, _named(group), "", why))
            continue
        load = load_of(intent, usable[0])
        assert load is not None
        found = shoot(prober, station, lambda load=load: [load] * BLOCKS, cushion_bytes(intent), wanted=BLOCKS // 2)  # type: ignore[misc]
        order = (usable[0], *(queue for queue in group if queue != usable[0]))
        rows.append(starved(judge(intent, station.port, order, found.held, found.doubt), found.lost))
    return rows


def _named(queues: Sequence[int]) -> str:
    others = sorted(queues[1:])
    return f"queue {queues[0]}" + (f" (as {', '.join(map(str, others))})" if others else "")
