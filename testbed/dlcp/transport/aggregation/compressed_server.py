"""Synchronous data-parallel training by parameter servers, with compressed gradients.

A worker pushes each tensor's code; the server merges the workers' codes, in rank order, into one that all of them pull
and decode alike. Every worker applies the same update to its own parameters, so they stay identical bit for bit; the
server holds none. A method may take several such rounds for a tensor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlcp.transport.aggregation.all_reduce_worker import AllReduceWorker
from dlcp.transport.aggregation.coded_tensors import CodedJob
from dlcp.transport.aggregation.parameter_server import ServedRank
from dlcp.transport.aggregation.ring import AllReduced
from dlcp.transport.compression.base import Code, Compressor
from dlcp.transport.contract.endpoint import Completion, Floats, Leg, MessageKey, Values
from dlcp.transport.contract.mailbox import Mailbox
from dlcp.transport.contract.optimizer import Optimizer
from dlcp.transport.contract.values import held_as
from dlcp.transport.contract.waiting import STALL_TIMEOUT_S


class CompressedWorker(AllReduceWorker):
    """A worker's side. Gradients are coded by the thread that pushes them, as on a device that computes one thing at a
    time; later rounds, decoding and updates are the other thread's.

    servers: their ranks, as Tensor.server counts them. parameters: the whole flat vector, updated in place.
    optimizer: without momentum where the compressors have their own. The codes are agreed with the endpoint.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        job: CodedJob,
        compressors: list[Compressor[Any]],
        servers: list[int],
        parameters: Floats,
        optimizer: Optimizer,
        *,
        stall_timeout_s: float = STALL_TIMEOUT_S,
    ) -> None:
        super().__init__(job.tensors, parameters, optimizer, stall_timeout_s, mailbox.clock)
        self._completions: list[Completion] = []
        self._mailbox = mailbox
        self._job = job
        self._compressors = compressors
        self._servers = servers
        self._answers = {
            job.number(tensor, round_, Leg.PULL): _room(exchange.pull)
            for tensor, compressor in enumerate(compressors)
            for round_, exchange in enumerate(compressor.exchanges)
        }
        self._means: dict[int, Floats] = {}
        self._pushing = [0] * len(job.tensors)
        self._thread.start()

    @property
    def completions(self) -> list[Completion]:
        """Of every message at this rank so far."""
        return self._completions

    def _start(self, tensor: int, iteration: int, gradient: Floats) -> float:
        before_s = self._clock.thread_s()
        code = self._compressors[tensor].first(iteration, gradient)
        took_s = self._coded(iteration, before_s)
        self._exchange(iteration, tensor, 0, code)
        return took_s

    def _poll(self, timeout_s: float) -> list[AllReduced]:
        found = []
        for completion in self._mailbox.take(timeout_s):
            self._completions.append(completion)
            if not completion.received:
                with self._changed:
                    self._pushing[self._job.place(completion.key.tensor)[0]] -= 1
                    self._changed.notify_all()
            elif reduced := self._take(completion):
                found.append(reduced)
        return found

    def _take(self, completion: Completion) -> AllReduced | None:
        """A round's answer is there: begin the next; after the last, the tensor's mean is whole."""
        iteration, number = completion.key.iteration, completion.key.tensor
        tensor, round_ = self._job.place(number)
        compressor, answer = self._compressors[tensor], _arrived(self._answers[number], completion)
        before_s = self._clock.thread_s()
        if round_ + 1 < len(compressor.exchanges):
            code = compressor.next(iteration, round_ + 1, answer)
            self._coded(iteration, before_s)
            self._exchange(iteration, tensor, round_ + 1, code)
            return None
        self._means[tensor] = compressor.decode(iteration, answer)
        self._coded(iteration, before_s)
        return AllReduced(tensor, iteration, 0, 0.0, 0, completion.start_s, self._clock.now_s())

    def _exchange(self, iteration: int, tensor: int, round_: int, code: Values) -> None:
        """Expect a round's answer, and send its code."""
        peer = self._servers[self._job.tensors[tensor].server]
        pushed, pulled = (self._job.number(tensor, round_, leg) for leg in (Leg.PUSH, Leg.PULL))
        with self._changed:
            self._pushing[tensor] += 1
        self._mailbox.expect(peer, MessageKey(iteration, pulled, Leg.PULL), self._answers[pulled])
        self._mailbox.send(peer, MessageKey(iteration, pushed, Leg.PUSH), code)

    def _mean(self, done: AllReduced) -> Floats:
        return self._means.pop(done.tensor)

    def _is_free(self, tensor: int) -> bool:
        return not self._pushing[tensor]

    def _missing(self) -> list[str]:
        waiting = [t for t, arrived_s in enumerate(self._arrived_s) if arrived_s == math.inf]
        found = [f"the mean of tensor {t} from rank {self._servers[self._tensors[t].server]}" for t in waiting]
        return found + [f"the end of the push of tensor {t}" for t, count in enumerate(self._pushing) if count]


@dataclass
class _Progress:
    """Of one tensor at its server: which codes it waits for, and who still has to send one or to take the answer."""

    iteration: int
    round: int
    missing: set[int]
    pulls: int


class CompressedServer(ServedRank):
    """A server's side: it merges the codes of the tensors whose `server` is its index.

    workers: ranks, in the order in which their codes are merged. codec_s: CPU seconds of merging so far. The codes are
    agreed with the endpoint.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        job: CodedJob,
        compressors: list[Compressor[Any]],
        index: int,
        workers: list[int],
        *,
        stall_timeout_s: float = STALL_TIMEOUT_S,
    ) -> None:
        super().__init__(mailbox, job.tensors, stall_timeout_s)
        self.codec_s = 0.0
        self._job = job
        self._compressors = compressors
        self._workers = workers
        own = [number for number, tensor in enumerate(job.tensors) if tensor.server == index]
        self._progress = {tensor: _Progress(0, 0, set(workers), 0) for tensor in own}
        self._inbox = {
            job.number(tensor, round_, Leg.PUSH): [_room(exchange.push) for _ in workers]
            for tensor in own
            for round_, exchange in enumerate(compressors[tensor].exchanges)
        }
        self._codes: dict[int, dict[int, Values]] = {tensor: {} for tensor in own}

    def expect_first(self) -> None:
        """Register the receives of iteration 0; call it before any worker may push."""
        for tensor in self._progress:
            self._expect(tensor)

    def run(self) -> None:
        """Serve until every own tensor has done all iterations and every pull is over.

        TransportError when nothing completes for the stall timeout, or when patience is over.
        """
        self._wait_until(self._done, self._waited_for)

    def _done(self) -> bool:
        return not any(at.pulls or at.iteration < self._job.iterations for at in self._progress.values())

    def _waited_for(self) -> list[str]:
        waiting = {tensor: at for tensor, at in self._progress.items() if at.iteration < self._job.iterations}
        pushes = [
            f"the push of tensor {tensor} (iteration {at.iteration}, round {at.round}) from rank {worker}"
            for tensor, at in waiting.items()
            for worker in sorted(at.missing)
        ]
        return pushes + [f"the end of {at.pulls} pulls of tensor {t}" for t, at in self._progress.items() if at.pulls]

    def _note(self, completion: Completion) -> None:
        tensor, _ = self._job.place(completion.key.tensor)
        at = self._progress[tensor]
        if not completion.received:
            at.pulls -= 1
            return
        row = self._workers.index(completion.peer)
        self._codes[tensor][completion.peer] = _arrived(self._inbox[completion.key.tensor][row], completion)
        at.missing.discard(completion.peer)
        if not at.missing:
            self._answer(tensor)

    def _answer(self, tensor: int) -> None:
        """Merge a round's codes, expect the next ones, send the answer to all."""
        at, compressor = self._progress[tensor], self._compressors[tensor]
        iteration, round_ = at.iteration, at.round
        before_s = self._clock.thread_s()
        merged = compressor.merge(iteration, round_, [self._codes[tensor][worker] for worker in self._workers])
        self.codec_s += self._clock.thread_s() - before_s
        last = round_ + 1 == len(compressor.exchanges)
        at.iteration, at.round = (iteration + 1, 0) if last else (iteration, round_ + 1)
        at.missing = set(self._workers)
        at.pulls += len(self._workers)
        if at.iteration < self._job.iterations:
            self._expect(tensor)
        first = (iteration + tensor) % len(self._workers)  # nobody is always served first
        key = MessageKey(iteration, self._job.number(tensor, round_, Leg.PULL), Leg.PULL)
        for worker in self._workers[first:] + self._workers[:first]:
            self._mailbox.send(worker, key, merged)

    def _expect(self, tensor: int) -> None:
        at = self._progress[tensor]
        key = MessageKey(at.iteration, self._job.number(tensor, at.round, Leg.PUSH), Leg.PUSH)
        for worker, buffer in zip(self._workers, self._inbox[key.tensor], strict=True):
            self._mailbox.expect(worker, key, buffer)


def _room(code: Code) -> Values:
    return np.zeros(code.elements, held_as(code.dtype))


def _arrived(buffer: Values, completion: Completion) -> Values:
    """What of a buffer a message filled."""
    return buffer[: completion.bytes // buffer.itemsize]
