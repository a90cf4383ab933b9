"""Transpose all-reduce (TAR of OptiReduce, NSDI 2025): every rank is the server of one piece of every tensor.

A tensor is cut into one chunk a rank. All ranks send chunk c to its owner c, which takes the mean in rank order and
sends it to all: two legs, every message from its origin to where it is used, so that a loss harms one pair of ranks
only. A hole in a rank's piece counts as the rule of `holes` says; where a result has a hole, a rank keeps its own value
of before, and ranks then drift apart. Without losses all ranks end with the same bits, whoever came first.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from dlcp.transport.aggregation.optireduce_timeouts import StageTimes
from dlcp.transport.aggregation.ring import AllReduced, chunk_cuts
from dlcp.transport.contract.endpoint import (
    RELIABLE,
    Bound,
    Completion,
    Floats,
    Leg,
    MessageKey,
    Placement,
)
from dlcp.transport.contract.mailbox import Mailbox
from dlcp.transport.contract.values import packets, rescale

ROUND = {Leg.PUSH: "piece", Leg.PULL: "result"}


@dataclass
class _Stage:
    """What one leg of one all-reduce brought to this rank. missing: ranks whose message is not over."""

    start_s: float
    missing: set[int]
    end_s: float = 0.0
    bytes: int = 0
    lost_bytes: int = 0
    lost_energy: float = 0.0

    def take(self, found: Completion) -> None:
        self.missing.discard(found.peer)
        self.end_s = max(self.end_s, found.end_s)
        self.bytes += found.bytes
        self.lost_bytes += found.lost_bytes
        self.lost_energy += found.lost_energy_share * found.bytes


@dataclass
class _Run:
    """One all-reduce under way. to_send: messages that wait for others of the tensor to be over."""

    iteration: int
    sent: Floats
    stages: dict[Leg, _Stage]
    to_send: deque[tuple[Leg, int]] = field(default_factory=deque)
    sending: set[tuple[Leg, int]] = field(default_factory=set)
    resent_bytes: int = 0
    whole: bool = False

    @property
    def is_over(self) -> bool:
        return self.whole and not self.to_send and not self.sending


class _Shape:
    """A declared tensor and the memory of its all-reduces; chunk c is elements [cuts[c], cuts[c + 1])."""

    def __init__(self, elements: int, rank: int, size: int) -> None:
        self.cuts = chunk_cuts(elements, size)
        own = self.cuts[rank + 1] - self.cuts[rank]
        self.inbox = np.zeros((size, own), np.float32)
        self.arrived = np.zeros((size, packets(own)), np.uint16)
        self.mean = np.zeros(own, np.float32)
        self.result = np.zeros(elements, np.float32)

    def chunk(self, data: Floats, number: int) -> Floats:
        return data[self.cuts[number] : self.cuts[number + 1]]

    def holds(self, chunk: int) -> bool:
        return self.cuts[chunk] < self.cuts[chunk + 1]


class TransposeAllReduce:
    """One rank's part in the all-reduces (means) of a job. Several tensors may be under way at once.

    mailbox: its endpoint knows all other ranks.
    holes: a hole in a piece counts as `zero`; or the mean is over those that arrived (`rescale`); or it holds that
    rank's value of the iteration before (`last`). at_once: how many messages of a tensor a rank sends at a time, to the
    ranks after it in turn; 0: all. times: closes what takes too long.

    `add` and `start` may be called by any thread, `wait` by one thread, which moves everything on.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        rank: int,
        size: int,
        *,
        holes: Literal["zero", "rescale", "last"] = "zero",
        at_once: int = 0,
        times: StageTimes | None = None,
    ) -> None:
        if not 0 <= rank < size or size < 2:
            raise ValueError(f"a transpose all-reduce of {size} has no rank {rank}, or nobody to talk to")
        self.rank = rank
        self.size = size
        self.completions: list[Completion] = []
        self._mailbox = mailbox
        self._clock = mailbox.clock
        self._holes = holes
        self._at_once = at_once or 2 * size
        self._times = times
        self._others = [(rank + step) % size for step in range(1, size)]
        self._shapes: dict[int, _Shape] = {}
        self._runs: dict[int, _Run] = {}
        self._changed = threading.Lock()

    def add(self, tensor: int, elements: int) -> None:
        """Learn a tensor, the same at every rank before any starts it. Its chunks are agreed with the endpoint by the
        caller: they are the endpoint's tensors tensor * size to tensor * size + size - 1, but for those that are empty.
        """
        if elements < 1:
            raise ValueError(f"tensor {tensor} has {elements} elements: nothing to reduce")
        shape = _Shape(elements, self.rank, self.size)
        with self._changed:
            self._shapes[tensor] = shape

    def start(self, tensor: int, iteration: int, data: Floats) -> None:
        """Begin to reduce data, which must not change until the tensor `is_free`. Iterations of a tensor come in order,
        one at a time, the same at every rank. ValueError for a tensor that is unknown or under way, or other data."""
        with self._changed:
            shape, now_s = self._fitting(tensor, data), self._clock.now_s()
            pieces = set(self._others) if shape.holds(self.rank) else set()
            results = {owner for owner in self._others if shape.holds(owner)}
            stages = {Leg.PUSH: _Stage(now_s, pieces), Leg.PULL: _Stage(now_s, results)}
            run = self._runs[tensor] = _Run(iteration, data, stages)
            if any(self._may_have_holes(tensor, run, owner) for owner in results):
                shape.result[:] = data
            for rank in self._others:
                if rank in pieces:
                    self._expect(tensor, run, Leg.PUSH, rank)
            if not (pieces and self._is_timed(iteration)):  # else the time of the second leg begins after the first
                self._expect_results(tensor, run)
            run.to_send.extend((Leg.PUSH, owner) for owner in self._others if owner in results)
            self._send_more(tensor, run)

    def wait(self, timeout_s: float) -> list[AllReduced]:
        """All-reduces whose result is whole since the last call. Returns when anything is new, or timeout_s is over.

        TransportError when a rank is gone.
        """
        completions = self._mailbox.take(timeout_s)
        with self._changed:
            self.completions += completions
            return [done for completion in completions if (done := self._note(completion))]

    def result(self, tensor: int) -> Floats:
        """The mean that the newest all-reduce of a tensor left; whoever asks may use it up."""
        return self._shapes[tensor].result

    def is_free(self, tensor: int) -> bool:
        """Whether nothing of a tensor is under way."""
        return tensor not in self._runs

    def missing(self) -> list[str]:
        """What is under way at this rank, in words: for the error of whoever waited too long."""
        with self._changed:
            return [
                text
                for tensor, run in self._runs.items()
                for text in [
                    *(
                        f"the {ROUND[leg]} of tensor {tensor} (iteration {run.iteration}) from rank {rank}"
                        for leg, stage in run.stages.items()
                        for rank in sorted(stage.missing)
                    ),
                    *(
                        f"the end of the {ROUND[leg]} of tensor {tensor} (iteration {run.iteration}) to rank {rank}"
                        for leg, rank in sorted(run.sending)
                    ),
                ]
            ]

    def _fitting(self, tensor: int, data: Floats) -> _Shape:
        shape = self._shapes.get(tensor)
        if shape is None:
            raise ValueError(f"tensor {tensor} was not declared")
        if tensor in self._runs:
            raise ValueError(f"tensor {tensor} is under way: iteration {self._runs[tensor].iteration} is not over")
        if data.shape != shape.result.shape or data.dtype != np.float32 or not data.flags.c_contiguous:
            elements = shape.cuts[-1]
            raise ValueError(f"tensor {tensor} has {elements} contiguous float32, not {data.shape} {data.dtype}")
        return shape

    def _is_timed(self, iteration: int) -> bool:
        return self._times is not None and self._times.bounds(iteration)

    def _may_have_holes(self, tensor: int, run: _Run, owner: int) -> bool:
        """Whether anything of an owner's result may be missing."""
        return self._mailbox.bound_of(self._key(tensor, run, Leg.PULL, owner)) != RELIABLE

    def _bound(self) -> Bound | None:
        """What a message may lose that is not closed; None: as the terms say. Where lost packets are sent again, only
        time takes anything."""
        return RELIABLE if self._times is not None and self._times.repairs else None

    def _expect(self, tensor: int, run: _Run, leg: Leg, peer: int) -> None:
        """Register one message into this rank: a piece into the inbox, a result over this rank's own values."""
        shape = self._shapes[tensor]
        key = self._key(tensor, run, leg, self.rank if leg is Leg.PUSH else peer)
        bound, deadline = self._bound(), None
        if self._times is not None:
            deadline = self._times.deadline(leg, run.iteration, self._begins_s(run, leg))
        if leg is Leg.PULL:
            result = shape.chunk(shape.result, peer)
            self._mailbox.expect(peer, key, result, placement=Placement.KEEP, bound=bound, deadline=deadline)
            return
        self._mailbox.expect(
            peer,
            key,
            shape.inbox[peer],
            placement=Placement.KEEP if self._holes == "last" else Placement.ZERO,
            bound=bound,
            deadline=deadline,
            contributors=shape.arrived[peer] if self._holes == "rescale" else None,
        )

    def _begins_s(self, run: _Run, leg: Leg) -> float:
        """When a leg's time begins at this rank: of the second when the first is over. Who owns no chunk sees only the
        second: it allows for the first."""
        own_s = run.stages[leg].start_s
        if leg is Leg.PULL and self._times is not None and not run.stages[Leg.PUSH].bytes:
            own_s += self._times.hard_s(Leg.PUSH)
        return own_s

    def _expect_results(self, tensor: int, run: _Run) -> None:
        for owner in self._others:
            if owner in run.stages[Leg.PULL].missing:
                self._expect(tensor, run, Leg.PULL, owner)

    def _send_more(self, tensor: int, run: _Run) -> None:
        shape = self._shapes[tensor]
        while run.to_send and len(run.sending) < self._at_once:
            leg, peer = run.to_send.popleft()
            run.sending.add((leg, peer))
            data = shape.chunk(run.sent, peer) if leg is Leg.PUSH else shape.mean
            owner = peer if leg is Leg.PUSH else self.rank
            self._mailbox.send(peer, self._key(tensor, run, leg, owner), data, bound=self._bound())

    def _key(self, tensor: int, run: _Run, leg: Leg, owner: int) -> MessageKey:
        """A chunk is named by its owner."""
        return MessageKey(run.iteration, tensor * self.size + owner, leg)

    def _note(self, completion: Completion) -> AllReduced | None:
        """What one completion means; the all-reduce that it made whole, if any."""
        tensor, leg = completion.key.tensor // self.size, completion.key.leg
        run, done = self._runs[tensor], None
        if completion.received:
            stage = run.stages[leg]
            stage.take(completion)
            if not stage.missing:
                self._end_stage(tensor, run, leg)
        else:
            run.sending.discard((leg, completion.peer))
            run.resent_bytes += completion.resent_bytes
        self._send_more(tensor, run)
        if not run.whole and not any(stage.missing for stage in run.stages.values()):
            run.whole, done = True, self._finished(tensor, run)
        if run.is_over:
            del self._runs[tensor]
        return done

    def _end_stage(self, tensor: int, run: _Run, leg: Leg) -> None:
        """All messages of a leg into this rank are over."""
        stage = run.stages[leg]
        if self._times is not None:
            began_s = math.inf if leg is Leg.PULL and run.stages[Leg.PUSH].missing else self._begins_s(run, leg)
            self._times.over(leg, run.iteration, max(0.0, stage.end_s - began_s), 1 - stage.lost_bytes / stage.bytes)
        if leg is Leg.PULL:
            return
        self._reduce(tensor, run)
        run.to_send.extend((Leg.PULL, peer) for peer in self._others)
        run.stages[Leg.PULL].start_s = self._clock.now_s()
        if self._is_timed(run.iteration):
            self._expect_results(tensor, run)

    def _reduce(self, tensor: int, run: _Run) -> None:
        """The mean of this rank's chunk, summed in rank order."""
        shape = self._shapes[tensor]
        shape.inbox[self.rank] = shape.chunk(run.sent, self.rank)
        np.copyto(shape.mean, shape.inbox[0])
        for piece in shape.inbox[1:]:
            shape.mean += piece
        shape.mean /= np.float32(self.size)
        if self._holes == "rescale":
            shape.arrived[self.rank] = 1
            rescale(shape.mean, shape.arrived.sum(axis=0, dtype=np.uint16), self.size, "float32")
        shape.chunk(shape.result, self.rank)[:] = shape.mean

    def _finished(self, tensor: int, run: _Run) -> AllReduced:
        stages = run.stages.values()
        received = sum(stage.bytes for stage in stages)
        return AllReduced(
            tensor,
            run.iteration,
            sum(stage.lost_bytes for stage in stages),
            sum(stage.lost_energy for stage in stages) / received if received else 0.0,
            run.resent_bytes,
            run.stages[Leg.PUSH].start_s,
            max(stage.end_s for stage in stages),
        )


def others(rank: int, size: int) -> tuple[int, ...]:
    """The ranks that a rank of a transpose all-reduce talks to: all but itself."""
    return tuple(other for other in range(size) if other != rank)


def connects_to(rank: int, size: int) -> tuple[int, ...]:
    """Those of them to which it opens the connection, for a transport with connections: the ranks above it."""
    return tuple(range(rank + 1, size))
