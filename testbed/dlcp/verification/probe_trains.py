"""Trains of probes into a port that is kept busy by its top queue, and which of them can be believed.

A block: the blocker fills the port with packets of queue 7 at the port's rate; the tester puts a cushion of some frames
more into that queue, so that it never runs empty; then the load, the probes proper, piles up in lower queues. After it
the tester sends a sentinel through queue 7. Probes that arrive before the sentinel have leaked: the block did not hold
while the load arrived (or the queue that they are in is not below queue 7). After the blocker's end the load drains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dlcp.model.frames import FRAME_BYTES
from dlcp.model.qos import QUEUES
from dlcp.transport.contract.codepoint import tos_of_queue
from dlcp.verification.placement import Station
from dlcp.verification.prober import HOST_BURST_BYTES, SMALLEST_BYTES, Arrivals, Prober, Send

TOP_TOS = tos_of_queue(QUEUES - 1)
LEAD_S = 0.003
"""The blocker begins so much before the cushion."""
SLACK_S = 0.0005
SPREAD_SHARE = 0.5
"""A spread load's rate, of the tester's link."""
MARGIN_S = 0.003
"""The blocker goes on for so long after the sentinel was to be sent."""
REST_S = 0.002
"""Between the end of a block's drain and the next block."""
PUNCTUAL_SHARE = 0.9
"""Share of the time planned between the cushion and the sentinel that must have been between them."""
MIN_HOLD_SHARE = 0.3
"""With fewer valid blocks than that of those tried, nothing is concluded."""
_BLOCKER, _CUSHION, _LOAD, _SENTINEL = range(4)


@dataclass(frozen=True)
class Load:
    """Probes: (TOS byte, frame bytes) in order. spread: no two of them queue in the tester (needed when they belong to
    several queues, which the tester itself might sort). blocker_bytes: frames of the blocker."""

    pattern: tuple[tuple[int, int], ...]
    repeat: int = 1
    spread: bool = False
    blocker_bytes: int = FRAME_BYTES

    @property
    def sizes(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Frame bytes by number."""
        return np.tile(np.array([size for _, size in self.pattern], np.int64), self.repeat)


@dataclass(frozen=True)
class Block:
    """One load and what came of it. numbers: of the load's probes in their order of arrival; tos: as they arrived;
    early: how many of them came before the sentinel; top_bytes: what queue 7 held when the sentinel came, by its
    delay. began_ns: when the first that arrived was sent; emptied_ns: when the last one arrived (0 when none did)."""

    load: Load
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]]
    tos: np.ndarray[tuple[int], np.dtype[np.int64]]
    early: int
    top_bytes: float
    began_ns: int = 0
    emptied_ns: int = 0

    @property
    def held(self) -> bool:
        """True if nothing leaked."""
        return self.early == 0

    @property
    def arrived(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """By number of the load."""
        present = np.zeros(len(self.load.sizes), bool)
        present[self.numbers] = True
        return present

    def tos_by_number(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """TOS byte on arrival; -1 of what did not arrive."""
        tos = np.full(len(self.load.sizes), -1, np.int64)
        tos[self.numbers] = self.tos
        return tos


def block_s(station: Station, load: Load, cushion: int) -> tuple[float, float, float]:
    """When the load and the sentinel are sent, and how long the blocker lasts, seconds after its beginning."""
    load_bytes = int(load.sizes.sum())
    cushion_s = cushion * 8 / station.tester_bps
    start_s = LEAD_S
    if load.spread:  # the cushion has left the tester, and its link may let a burst through again
        start_s += cushion_s + HOST_BURST_BYTES * 8 / station.tester_bps + SLACK_S
    took_s = load_bytes * 8 / ((SPREAD_SHARE if load.spread else 1.0) * station.tester_bps)
    sentinel_s = start_s + 1.1 * took_s + SLACK_S + (0 if load.spread else cushion_s)
    return start_s, sentinel_s, sentinel_s + MARGIN_S + 2 * FRAME_BYTES * 8 / station.rate_bps


def sends(station: Station, loads: Sequence[Load], cushion: int) -> tuple[list[Send], float]:
    """The trains of one block after the other, and how long after the last probe the port is empty."""
    trains: list[Send] = []
    at_s, drain_s = 0.0, 0.0
    paced = 0.0 if station.blocker_bps < 1.02 * station.rate_bps else 1.01 * station.rate_bps
    for index, load in enumerate(loads):
        load_s, sentinel_s, end_s = block_s(station, load, cushion)
        frames = math.ceil(end_s * station.rate_bps / 8 / load.blocker_bytes)
        name = 4 * index
        blocker, tester, sink = station.blocker, station.tester, station.sink
        full, smallest = ((TOP_TOS, FRAME_BYTES),), ((TOP_TOS, SMALLEST_BYTES),)
        busy = ((TOP_TOS, load.blocker_bytes),)
        rate_bps = SPREAD_SHARE * station.tester_bps if load.spread else 0.0
        trains += [
            Send(blocker, sink, name + _BLOCKER, at_s, busy, frames, paced, catch_up=True),
            Send(tester, sink, name + _CUSHION, at_s + LEAD_S, full, cushion // FRAME_BYTES),
            Send(tester, sink, name + _LOAD, at_s + load_s, load.pattern, load.repeat, rate_bps),
            Send(tester, sink, name + _SENTINEL, at_s + sentinel_s, smallest),
        ]
        drain_s = (int(load.sizes.sum()) + cushion + FRAME_BYTES) * 8 / station.rate_bps + REST_S
        at_s += end_s + drain_s
    return trains, drain_s + 2 * REST_S


def read(station: Station, loads: Sequence[Load], cushion: int, arrivals: Arrivals) -> list[Block]:
    """Return the results of the loads of `sends`; a block whose sentinel is missing, or into which another's probes
    came, is left out. So is one whose sentinel was sent too soon after the cushion, by a tester that was late with
    both: it may have overtaken the load in the tester itself.
    """
    rate_bps = station.rate_bps
    blocks = []
    trains = arrivals["train"].astype(np.int64)
    numbers = np.arange(len(arrivals))
    for index, load in enumerate(loads):
        at = numbers[trains == 4 * index + _SENTINEL]
        blocker = numbers[trains == 4 * index + _BLOCKER]
        train = numbers[trains == 4 * index + _LOAD]
        cushioned = arrivals["sent_ns"][trains == 4 * index + _CUSHION]
        if not len(at) or not len(blocker) or not len(cushioned):
            continue
        apart_s = (int(arrivals["sent_ns"][at[0]]) - int(cushioned.min())) / 1e9
        if apart_s < PUNCTUAL_SHARE * (block_s(station, load, cushion)[1] - LEAD_S):
            continue
        others = trains[blocker[0] : max(blocker[-1], train[-1] if len(train) else 0) + 1] // 4
        if (others != index).any():
            continue
        sentinel = arrivals[at[0]]
        delay_s = (int(sentinel["arrived_ns"]) - int(sentinel["sent_ns"])) / 1e9
        blocks.append(
            Block(
                load,
                arrivals["number"][train].astype(np.int64),
                arrivals["tos"][train].astype(np.int64),
                int((train < at[0]).sum()),
                max(0.0, delay_s * rate_bps / 8),
                int(arrivals["sent_ns"][train].min()) if len(train) else 0,
                int(arrivals["arrived_ns"][train].max()) if len(train) else 0,
            )
        )
    return blocks


def calm(blocks: Sequence[Block], most_bytes: float) -> list[Block]:
    """The blocks, those as not held in which the top queue came to hold more: a port that stood still for a moment
    fills up, and drops for want of room what a curve would be blamed for."""
    return [block if block.top_bytes <= most_bytes else replace(block, early=max(1, block.early)) for block in blocks]


@dataclass(frozen=True)
class Blocks:
    """Blocks of some tries. tried: how many blocks; lost: as of Shot. That the machine was busy does not matter here: a
    block that was disturbed shows it by itself."""

    blocks: list[Block]
    tried: int
    lost: str

    @property
    def held(self) -> list[Block]:
        """Those in which nothing leaked."""
        return [block for block in self.blocks if block.held]

    @property
    def doubt(self) -> str:
        """Why these blocks prove nothing; empty when they do."""
        if len(self.held) >= MIN_HOLD_SHARE * self.tried and self.held:
            return ""
        lost = self.tried - len(self.blocks)
        return f"the port could be kept busy in {len(self.held)} of {self.tried} blocks only ({lost} were disturbed)"


def shoot(
    prober: Prober,
    station: Station,
    loads: Callable[[], Sequence[Load]],
    cushion: int,
    *,
    wanted: int,
    most: int = 3,
    all_count: bool = False,
) -> Blocks:
    """Shoot loads() again, at most `most` times, until `wanted` blocks have held (with all_count: have been read)."""
    blocks: list[Block] = []
    tried, words = 0, ""
    for _ in range(most):
        batch = loads()
        trains, after_s = sends(station, batch, cushion)
        shot = prober.shoot(trains, after_s)
        tried += len(batch)
        words = shot.lost or words
        blocks += read(station, batch, cushion, shot.at(station.sink))
        if sum(all_count or block.held for block in blocks) >= wanted:
            break
    return Blocks(blocks, tried, words)
