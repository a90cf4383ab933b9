"""Ring all-reduce over any transport: a reduce-scatter that may lose a bounded share, a reliable all-gather.

A tensor is cut into one chunk a rank. Chunk c is handed from rank to rank, from c + 1 round to its owner c, each adding
its own values where they lie; the owner decides once what becomes of holes, and the result is handed round again, from
c to c - 1, without loss. So all ranks end with the same bits, whatever was lost on the way. All chunks travel at once:
every link carries one of them at any time, and a hop is sent on the moment it is complete.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from dlcp.transport.contract.declarations import declaration, declare_all
from dlcp.transport.contract.endpoint import (
    RELIABLE,
    Bound,
    Completion,
    Counts,
    Droppable,
    Dtype,
    Leg,
    MessageKey,
    Placement,
    Values,
)
from dlcp.transport.contract.loss_class import LossClass
from dlcp.transport.contract.mailbox import Mailbox
from dlcp.transport.contract.values import divide, held_as, packet_elements, packets, rescale

Holes = Literal["zero", "rescale"]
SEGMENT_HOP_BYTES = 4 << 20
"""A hop of about this size takes 3 ms at 10 Gbit/s, ten times the turn from one hop to the next. Smaller ones cost CPU:
25 MiB over 4 ranks on 2 cores took 1.0, 1.07, 1.3 and 1.4 times as long (median of 22, in turn) in 1, 2, 3 and 6
segments; there the CPU is the limit and nothing is gained by overlap."""
CHUNK_SIZES_MOST = 3
"""Chunks differ by one packet at most, and the last packet of a tensor may be short."""
_TO_SEND, _TO_RECEIVE = False, True


@dataclass(frozen=True)
class AllReduced:
    """One all-reduce that is over at this rank: its array holds the result, and may be used again.

    lost_bytes: what hops into this rank never delivered. lost_energy_share: the mean of these hops' shares, weighted
    by their bytes. resent_bytes: of what this rank sent. start_s: when it was started here; end_s: when the result was
    whole. CLOCK_MONOTONIC seconds.
    """

    tensor: int
    iteration: int
    lost_bytes: int
    lost_energy_share: float
    resent_bytes: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class _Shape:
    """A declared tensor: chunk c is elements [cuts[c], cuts[c + 1]), and endpoint tensor numbers[c]."""

    dtype: Dtype
    cuts: tuple[int, ...]
    numbers: tuple[int, ...]

    def chunk(self, data: Values, number: int) -> Values:
        return data[self.cuts[number] : self.cuts[number + 1]]

    def holds(self, chunk: int) -> bool:
        return self.cuts[chunk] < self.cuts[chunk + 1]

    @property
    def chunk_sizes(self) -> dict[int, int]:
        """Endpoint tensor → elements of the chunks that travel under its number; chunks that are empty do not."""
        sizes = (stop - start for start, stop in pairwise(self.cuts))
        return {number: size for number, size in zip(self.numbers, sizes, strict=True) if size}


@dataclass
class _Run:
    """One all-reduce under way. pending: (receive or send, leg, chunk) of this rank's messages that are not over."""

    shape: _Shape
    iteration: int
    data: Values
    bound: Bound | None
    start_s: float
    pending: set[tuple[bool, Leg, int]]
    contributors: dict[int, Counts]
    end_s: float = 0.0
    lost_bytes: int = 0
    resent_bytes: int = 0
    received_bytes: int = 0
    lost_energy: float = 0.0


class RingAllReduce:
    """One rank's part in the all-reduces of a job. Several tensors may be under way at once.

    mailbox: its endpoint knows the neighbours, ranks rank ± 1 round the ring of `size` (see neighbours). bound: what a
    whole all-reduce may lose; each hop of the reduce-scatter gets 1 / (2 (size - 1)) of it; None: hops may lose what
    the mailbox's terms say. holes: what the owner of a chunk makes of packets that lack contributions: `zero` leaves
    the sum of those that arrived, `rescale` multiplies it by size / contributors. average: the sum is divided by size,
    by the owner. shared_numbers: chunks of the same size are one endpoint tensor, told apart by their step, so that a
    tensor takes at most 3 of the endpoint's numbers in a ring of any size, instead of one a chunk.

    `add`, `declare` and `start` may be called by any thread, `wait` by one thread, which moves everything on.
    completions: of every hop at this end, if noted; their keys name endpoint tensors (tensor * size + chunk, unless
    numbers are shared).
    numbers_each: how many endpoint tensors a tensor takes.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        rank: int,
        size: int,
        *,
        bound: Bound | None = RELIABLE,
        holes: Holes = "zero",
        average: bool = False,
        note_completions: bool = False,
        shared_numbers: bool = False,
    ) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"a ring of {size} has no rank {rank}")
        self.rank = rank
        self.size = size
        self.numbers_each = min(size, CHUNK_SIZES_MOST) if shared_numbers else size
        self.completions: list[Completion] = []
        self._note_completions = note_completions
        self._mailbox = mailbox
        self._clock = mailbox.clock
        self._bound = bound
        self._holes = holes
        self._average = average
        self._right, self._left = (rank + 1) % size, (rank - 1) % size
        self._shapes: dict[int, _Shape] = {}
        self._runs: dict[int, _Run] = {}
        self._over: list[AllReduced] = []
        self._changed = threading.Condition()

    def add(self, tensor: int, elements: int, dtype: Dtype = "float32") -> None:
        """Learn a tensor, the same at every rank before any starts it. Its chunks are agreed with the endpoint by the
        caller: they are the endpoint's tensors from tensor * numbers_each, up to one for each that is not empty."""
        shape = self._cut(tensor, elements, dtype)
        with self._changed:
            self._shapes[tensor] = shape

    def declare(
        self,
        tensor: int,
        elements: int,
        *,
        dtype: Dtype = "float32",
        queue: int = 3,
        droppable: Droppable = Droppable.NONE,
        loss: LossClass = LossClass.BOUNDED,
    ) -> None:
        """Learn a tensor that no pattern has planned, and agree its chunks with the endpoint; see `add`.

        loss: the class of the reduce-scatter's hops, whose bound is the ring's. The all-gather loses nothing.
        """
        shape = self._cut(tensor, elements, dtype)
        results = loss if loss is LossClass.MUST_ARRIVE else LossClass.RELIABLE
        legs = {Leg.PUSH: (loss, hop_bound(self._bound or RELIABLE, self.size)), Leg.PULL: (results, RELIABLE)}
        chunks = shape.chunk_sizes.items() if self.size > 1 else ()
        declare_all(
            self._mailbox.endpoint,
            [declaration(number, size, queue, droppable, legs, dtype=dtype) for number, size in chunks],
        )
        with self._changed:
            self._shapes[tensor] = shape

    def _cut(self, tensor: int, elements: int, dtype: Dtype) -> _Shape:
        if elements < 1:
            raise ValueError(f"tensor {tensor} has {elements} elements: nothing to reduce")
        cuts = chunk_cuts(elements, self.size, dtype)
        sizes = [stop - start for start, stop in pairwise(cuts)]
        return _Shape(dtype, cuts, tuple(self._numbers(tensor, sizes)))

    def start(self, tensor: int, iteration: int, data: Values, *, bound: Bound | None = None) -> None:
        """Begin to reduce data, in place. Iterations of a tensor come in order, one at a time, the same at every rank.

        data: (elements,) of the tensor's dtype, contiguous; it must not be touched until the all-reduce is over.
        bound: for this one instead of the ring's. ValueError for a tensor that is unknown or under way, or data that do
        not fit it.
        """
        with self._changed:
            shape = self._fitting(tensor, data)
            whole = self._bound if bound is None else bound
            per_hop = None if whole is None else hop_bound(whole, self.size)
            run = _Run(shape, iteration, data, per_hop, self._clock.now_s(), self._all_messages(shape), {})
            self._runs[tensor] = run
            if self.size == 1:
                run.end_s = run.start_s
                self._finish(tensor, run)
                return
            if self._holes == "rescale":
                run.contributors = {
                    chunk: np.ones(packets(shape.cuts[chunk + 1] - shape.cuts[chunk], shape.dtype), np.uint16)
                    for chunk in range(self.size)
                }
            self._expect(tensor, run)
            if (_TO_SEND, Leg.PUSH, self._left) in run.pending:
                self._send(tensor, run, Leg.PUSH, self._left)

    def wait(self, timeout_s: float) -> list[AllReduced]:
        """All-reduces that are over since the last call; waits for at least one, up to timeout_s. Empty = time ran out.

        TransportError when a neighbour is gone.
        """
        deadline_s = self._clock.now_s() + timeout_s
        while True:
            with self._changed:
                if self.size == 1:
                    self._changed.wait_for(lambda: self._over, timeout_s)
                found, self._over = self._over, []
            left_s = deadline_s - self._clock.now_s()
            if found or left_s < 0 or self.size == 1:
                return found
            self._take(self._mailbox.take(left_s))

    def missing(self) -> list[str]:
        """What is under way at this rank, in words: for the error of whoever waited too long."""
        with self._changed:
            return [
                f"{_ROUND[leg]} of tensor {tensor} (iteration {run.iteration}), chunk {chunk}, "
                + (f"from rank {self._left}" if received else f"to rank {self._right}")
                for tensor, run in self._runs.items()
                for received, leg, chunk in sorted(run.pending, reverse=True)
            ]

    def _numbers(self, tensor: int, sizes: list[int]) -> list[int]:
        """The endpoint tensor of each chunk."""
        first = tensor * self.numbers_each
        if self.numbers_each == self.size:
            return [first + chunk for chunk in range(self.size)]
        distinct = sorted({size for size in sizes if size})
        return [first + distinct.index(size) if size else first for size in sizes]

    def _fitting(self, tensor: int, data: Values) -> _Shape:
        shape = self._shapes.get(tensor)
        if shape is None:
            raise ValueError(f"tensor {tensor} was not declared")
        if tensor in self._runs:
            raise ValueError(f"tensor {tensor} is under way: iteration {self._runs[tensor].iteration} is not over")
        elements = shape.cuts[-1]
        if data.shape != (elements,) or data.dtype != held_as(shape.dtype) or not data.flags.c_contiguous:
            raise ValueError(f"tensor {tensor} has {elements} contiguous {shape.dtype}, not {data.shape} {data.dtype}")
        return shape

    def _all_messages(self, shape: _Shape) -> set[tuple[bool, Leg, int]]:
        """Of one all-reduce at this rank. Nobody hands a chunk on to where it came from."""
        if self.size == 1:
            return set()
        chunks = [chunk for chunk in range(self.size) if shape.holds(chunk)]
        found = {(_TO_RECEIVE, Leg.PUSH, chunk) for chunk in chunks if chunk != self._left}
        found |= {(_TO_SEND, Leg.PUSH, chunk) for chunk in chunks if chunk != self.rank}
        found |= {(_TO_RECEIVE, Leg.PULL, chunk) for chunk in chunks if chunk != self.rank}
        return found | {(_TO_SEND, Leg.PULL, chunk) for chunk in chunks if chunk != self._right}

    def _expect(self, tensor: int, run: _Run) -> None:
        """Register every hop into this rank. A chunk's final values cannot come before its sum has left this rank and
        arrived, so both may be registered into the same place; what a sender still resends by then is not read."""
        keys = {
            (leg, chunk): self._key(run, leg, chunk, self._left) for received, leg, chunk in run.pending if received
        }
        for (leg, chunk), key in sorted(keys.items(), key=lambda item: item[1].step):  # as the endpoint wants steps
            into = run.shape.chunk(run.data, chunk)
            if leg is Leg.PUSH:
                self._mailbox.expect(
                    self._left,
                    key,
                    into,
                    placement=Placement.ADD,
                    bound=run.bound,
                    contributors=run.contributors.get(chunk),
                )
            else:
                self._mailbox.expect(self._left, key, into, placement=Placement.KEEP, bound=RELIABLE)

    def _send(self, tensor: int, run: _Run, leg: Leg, chunk: int) -> None:
        key = self._key(run, leg, chunk, self.rank)
        bound = run.bound if leg is Leg.PUSH else RELIABLE
        contributors = run.contributors.get(chunk) if leg is Leg.PUSH else None
        self._mailbox.send(self._right, key, run.shape.chunk(run.data, chunk), bound=bound, contributors=contributors)

    def _key(self, run: _Run, leg: Leg, chunk: int, sender: int) -> MessageKey:
        """A hop's step counts from the first sender of its leg: chunk + 1, or chunk."""
        first = chunk + 1 if leg is Leg.PUSH else chunk
        return MessageKey(run.iteration, run.shape.numbers[chunk], leg, (sender - first) % self.size)

    def _chunk(self, completion: Completion) -> int:
        """The chunk of a hop, from its step: the reverse of _key."""
        sender = self._left if completion.received else self.rank
        first = sender - completion.key.step
        return (first - 1 if completion.key.leg is Leg.PUSH else first) % self.size

    def _take(self, completions: list[Completion]) -> None:
        with self._changed:
            if self._note_completions:
                self.completions += completions
            for completion in completions:
                tensor = completion.key.tensor // self.numbers_each
                self._note(tensor, self._runs[tensor], self._chunk(completion), completion)

    def _note(self, tensor: int, run: _Run, chunk: int, completion: Completion) -> None:
        leg = completion.key.leg
        run.pending.discard((completion.received, leg, chunk))
        if completion.received:
            run.end_s = max(run.end_s, completion.end_s)
            run.lost_bytes += completion.lost_bytes
            run.received_bytes += completion.bytes
            run.lost_energy += completion.lost_energy_share * completion.bytes
            if leg is Leg.PUSH and chunk == self.rank:
                self._decide(run)
                leg = Leg.PULL
            if (_TO_SEND, leg, chunk) in run.pending:
                self._send(tensor, run, leg, chunk)
        else:
            run.resent_bytes += completion.resent_bytes
        if not run.pending:
            self._finish(tensor, run)

    def _decide(self, run: _Run) -> None:
        """This rank owns the chunk that bears its number: what it makes of the sum is what all ranks get."""
        total = run.shape.chunk(run.data, self.rank)
        if self._average:
            divide(total, self.size, run.shape.dtype)
        if self._holes == "rescale":
            rescale(total, run.contributors[self.rank], self.size, run.shape.dtype)

    def _finish(self, tensor: int, run: _Run) -> None:
        del self._runs[tensor]
        share = run.lost_energy / run.received_bytes if run.received_bytes else 0.0
        self._over.append(
            AllReduced(tensor, run.iteration, run.lost_bytes, share, run.resent_bytes, run.start_s, run.end_s)
        )
        self._changed.notify_all()


_ROUND = {Leg.PUSH: "the reduce-scatter", Leg.PULL: "the all-gather"}


def neighbours(rank: int, size: int) -> tuple[int, ...]:
    """The ranks that a rank of a ring talks to; none in a ring of one."""
    return tuple(sorted({(rank - 1) % size, (rank + 1) % size} - {rank}))


def connects_to(rank: int, size: int) -> tuple[int, ...]:
    """The neighbours to which a rank opens the connection, for a transport with connections: the one to the right."""
    if size == 1 or (size == 2 and rank == 1):
        return ()
    return ((rank + 1) % size,)


def hop_bound(bound: Bound, size: int) -> Bound:
    """What one hop of the reduce-scatter may lose so that the whole all-reduce keeps its bound (1 = no limit)."""
    hops = 2 * max(1, size - 1)
    return Bound(*(share if share == 1 else share / hops for share in (bound.bytes_share, bound.energy_share)))


def chunk_cuts(elements: int, size: int, dtype: Dtype = "float32") -> tuple[int, ...]:
    """size + 1 places that cut a tensor at packet boundaries; chunks differ by one packet at most, the last may be
    empty. Only the last packet of the tensor is short."""
    count, width = packets(elements, dtype), packet_elements(dtype)
    return tuple(min(elements, count * chunk // size * width) for chunk in range(size + 1))


def segment_cuts(elements: int, size: int, dtype: Dtype = "float32", hop_bytes: int = SEGMENT_HOP_BYTES) -> list[int]:
    """Where to cut a big array into tensors of its own, so that a hop is about hop_bytes and hops of different
    tensors overlap: n + 1 places for n near-equal tensors."""
    width = packet_elements(dtype)
    count = max(1, round(elements * held_as(dtype).itemsize / (size * hop_bytes)))
    step = -(-elements // (count * width)) * width
    return [*range(0, elements, step), elements]
