"""Isolation of queues: within its guaranteed share a queue loses nothing, whatever flood is in a lower one.

The blocker floods the lowest queue of a port with as much as the port carries, the tester sends a
light, evenly spaced stream through a higher queue. Together they are more than the port carries, so
that the flood takes all of the buffer that it can get. Under strict priority the light queue holds a
frame or two. Its packets find room as long as the switch keeps some for it: what is reserved for the
queue, and what the thresholds of the lower queues leave of the shared buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlcp.model.frames import FRAME_BYTES
from dlcp.model.qos import QUEUES, QosIntent
from dlcp.model.units import show_duration
from dlcp.transport.contract.codepoint import tos_of_queue
from dlcp.verification.codepoints import weighted
from dlcp.verification.curves import spared_tos
from dlcp.verification.limits import alike, full_bytes
from dlcp.verification.placement import Station
from dlcp.verification.prober import Arrivals, Prober, Send, Shot
from dlcp.verification.rows import Row, Verdict, starved, unsupported

CHECK = "isolation of queues"
FLOOD_SHARE, LIGHT_SHARE = 0.97, 0.3
"""Shares of the port's rate: of a flood that one host of the same rate can send, and of the light stream."""
LEAST_OFFERED = 1.1
SECONDS, LEAST_PACKETS = 0.3, 400
"""Length of the light stream while the buffer is full, in seconds and in packets."""
LONGEST_FILL_S = 5.0
_LIGHT, _FLOOD = 0, 1


def guaranteed_bytes(intent: QosIntent, queue: int) -> int:
    """Return what a queue can hold at any instant while all lower queues of its port hold the most that
    they can, by aqm.h: its reserved bytes, and alpha / (1 + alpha) of what the floods leave free.

    k floods of one alpha leave 1 / (1 + k alpha) of the shared buffer, less a frame at most, as a frame
    is judged by what is free before it. They give nothing of theirs back while the higher queue is
    served.
    """
    reserved = intent.reserved_of(queue)
    common = intent.port_buffer_bytes - intent.reserved_bytes
    shared = intent.shared_buffer_bytes
    if shared is None:  # one pool: the floods take all that nobody has reserved
        return _limited(intent, queue, reserved)
    below, own_alpha = sum(intent.alpha_of(number) for number in range(queue)), intent.alpha_of(queue)
    free = max(0.0, shared / (1 + below) - FRAME_BYTES)
    left = common - (shared - free)
    return _limited(intent, queue, reserved + max(0, int(min(own_alpha / (1 + own_alpha) * free, left))))


def _limited(intent: QosIntent, queue: int, size_bytes: int) -> int:
    limit = intent.queue(queue).limit_bytes
    return size_bytes if limit is None else min(limit, size_bytes)


@dataclass(frozen=True)
class Outcome:
    """Packets of both streams. within: those of the light stream that were lost while its queue held no
    more than is guaranteed, by the delays of the packets that arrived before and after them."""

    light_sent: int
    light_arrived: int
    within: int
    flood_sent: int
    flood_arrived: int
    guaranteed_bytes: int


def judge(where: str, what: str, found: Outcome) -> Row:
    """Return the row of a queue: nothing of the light stream may be lost while the flood overflows."""
    verdict: Verdict = "ok"
    why = ""
    lost = found.light_sent - found.light_arrived
    flood_lost = 1 - found.flood_arrived / found.flood_sent
    if found.flood_arrived == found.flood_sent:
        verdict, why = "inconclusive", "nothing of the flood is lost, so that it did not fill the buffer"
    elif found.within:
        verdict, why = "deviates", f"{found.within} of {found.light_sent} packets are lost within the guaranteed share"
    elif lost:
        verdict, why = (
            "inconclusive",
            "the light stream came in bursts, of more than is guaranteed, and lost only there",
        )
    return Row(
        CHECK,
        where,
        what,
        f"lost 0 within {found.guaranteed_bytes / 1000:.1f} kB",
        f"lost {lost} of {found.light_sent}, {flood_lost:.0%} of the flood",
        "0",
        verdict,
        why,
        vars(found),
    )


def probe(prober: Prober, station: Station, intent: QosIntent) -> list[Row]:
    """Return a row for each group of queues that buffers treat alike, above the flooded one."""
    flooded = next((queue for queue in range(QUEUES) if not intent.lossless(queue)), None)
    if flooded is None:
        return [unsupported(CHECK, station.port, "all queues", "", "all are lossless: a flood is paused")]
    groups = [*([queue for queue in group if _above(intent, queue, flooded)] for group in alike(intent)), [QUEUES - 1]]
    return [_probe(prober, station, intent, flooded, group[::-1]) for group in groups if group]


def _above(intent: QosIntent, queue: int, flooded: int) -> bool:
    return queue > flooded and queue not in weighted(intent) and not intent.lossless(queue)


def _probe(prober: Prober, station: Station, intent: QosIntent, flooded: int, queues: Sequence[int]) -> Row:
    others = ", ".join(map(str, sorted(queues[1:])))
    subject = f"queue {queues[0]}{f' (as {others})' if others else ''} above a flood in queue {flooded}"
    guaranteed = guaranteed_bytes(intent, queues[0])
    tos = next((spared for queue in queues if (spared := spared_tos(intent.queue(queue), queue)) is not None), None)
    if tos is None:
        return unsupported(CHECK, station.port, subject, "", "its profiles drop packets of every precedence early")
    if intent.shared_buffer_bytes is not None and any(intent.alpha_said(number) is None for number in queues):
        return unsupported(CHECK, station.port, subject, "", "its thresholds in the shared buffer are the system's own")
    if guaranteed < FRAME_BYTES:
        why = f"{guaranteed} B are guaranteed, less than a frame: a flood below may take the whole buffer"
        return unsupported(CHECK, station.port, subject, "", why)
    flood_bps = min(FLOOD_SHARE * station.blocker_bps, station.rate_bps)
    light_bps = min(LIGHT_SHARE * station.rate_bps, 0.8 * station.tester_bps)
    over = (flood_bps + light_bps) / station.rate_bps
    if over < LEAST_OFFERED:
        why = f"two hosts offer {over:.2f} of the port's rate, less than {LEAST_OFFERED:g}"
        return unsupported(CHECK, station.port, subject, "", why)
    fill_s = full_bytes(intent, flooded, 0, FRAME_BYTES) * 8 / ((over - 1) * station.rate_bps)
    if fill_s > LONGEST_FILL_S:
        why = f"the flood would fill the buffer in {show_duration(fill_s)} only, more than {LONGEST_FILL_S:g} s"
        return unsupported(CHECK, station.port, subject, "", why)
    seconds = 1.5 * fill_s + max(SECONDS, LEAST_PACKETS * FRAME_BYTES * 8 / light_bps)
    flood_tos = spared_tos(intent.queue(flooded), flooded)
    trains = [
        _stream(station.tester, station.sink, _LIGHT, tos, light_bps, seconds),
        _stream(
            station.blocker,
            station.sink,
            _FLOOD,
            tos_of_queue(flooded) if flood_tos is None else flood_tos,
            flood_bps,
            seconds,
        ),
    ]
    shot = prober.shoot(trains, 2 * intent.port_buffer_bytes * 8 / station.rate_bps + 0.02)
    row = judge(station.port, subject, _outcome(station, trains, shot, guaranteed))
    return starved(row, shot.lost)  # a machine that is busy shows in the delays, as bursts of the light stream


def _stream(host: str, to: str, name: int, tos: int, rate_bps: float, seconds: float) -> Send:
    return Send(host, to, name, 0.0, ((tos, FRAME_BYTES),), int(rate_bps * seconds / 8 / FRAME_BYTES), rate_bps)


def _outcome(station: Station, trains: Sequence[Send], shot: Shot, guaranteed: int) -> Outcome:
    arrivals = shot.at(station.sink)
    light, flood = (arrivals[arrivals["train"] == name] for name in (_LIGHT, _FLOOD))
    count = trains[_LIGHT].count
    return Outcome(
        count,
        len(light),
        lost_within(light, count, guaranteed * 8 / station.rate_bps),
        trains[_FLOOD].count,
        len(flood),
        guaranteed,
    )


def lost_within(arrivals: Arrivals, count: int, longest_s: float) -> int:
    """Return how many of a stream's packets are lost while those around them waited no longer than
    longest_s beyond the quickest. Where nothing arrives nothing waited."""
    numbers = arrivals["number"].astype(np.int64)
    delays_s = np.zeros(count + 2)
    if len(arrivals):
        took_s = (arrivals["arrived_ns"].astype(np.int64) - arrivals["sent_ns"].astype(np.int64)) / 1e9
        delays_s[numbers + 1] = took_s - took_s.min()
    sent = np.zeros(count + 2, bool)
    sent[[0, -1]] = sent[numbers + 1] = True
    places = np.arange(count + 2)
    before = np.maximum.accumulate(np.where(sent, places, 0))
    after = np.minimum.accumulate(np.where(sent, places, count + 1)[::-1])[::-1]
    around_s = np.maximum(delays_s[before], delays_s[after])
    return int((~sent & (around_s <= longest_s)).sum())
