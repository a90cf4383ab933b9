"""Synchronous data-parallel training by parameter servers, with compressed gradients.

A worker pushes each tensor's code; the server merges the workers' codes, in rank order, into one that all of them pull
and decode alike. Every worker applies the same update to its own parameters, so they stay identical bit for bit; the
server holds none. A method may take several such rounds for a tensor.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dlcp.transport.bounds import Bounds
from dlcp.transport.coding import CodedJob
from dlcp.transport.compression.base import Compressor
from dlcp.transport.endpoint import Completion, Endpoint, Floats, Leg, MessageKey, Values
from dlcp.transport.optimizer import Optimizer
from dlcp.transport.parameter_server import ServedRank
from dlcp.transport.values import held_as
from dlcp.transport.waiting import STALL_TIMEOUT_S, Patience

_SLICE_S = 0.2
"""How soon the thread sees that it is to end."""


class CompressedWorker:
    """A worker's side, with the face of roles.GradientWorker. Gradients are coded by the thread that pushes them, as on
    a device that computes one thing at a time; later rounds, decoding and updates are done by a thread of its own.

    servers: their ranks, as Tensor.server counts them. parameters: the whole flat vector, updated in place.
    optimizer: without momentum where the compressors have their own. codec_s: iteration → CPU seconds of encoding and
    decoding here so far. Declares the codes.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        job: CodedJob,
        compressors: list[Compressor],
        servers: list[int],
        parameters: Floats,
        optimizer: Optimizer,
        *,
        bounds: Bounds | None = None,
        stall_timeout_s: float = STALL_TIMEOUT_S,
    ) -> None:
        self.parameters = parameters
        self.gradient = np.zeros_like(parameters)
        self.patience = Patience(stall_timeout_s)
        self.completions: list[Completion] = []
        self.codec_s: dict[int, float] = {}
        self._endpoint = endpoint
        self._job = job
        self._compressors = compressors
        self._servers = servers
        self._optimizer = optimizer
        self._state = [optimizer.state(t, parameters[one.start : one.stop]) for t, one in enumerate(job.tensors)]
        self._bounds = bounds
        self._answers = {
            job.number(tensor, round_, Leg.PULL): _room(exchange.pull.elements, held_as(exchange.pull.dtype))
            for tensor, compressor in enumerate(compressors)
            for round_, exchange in enumerate(compressor.exchanges)
        }
        job.declare(endpoint)
        self._arrived_s = [-math.inf] * len(job.tensors)
        self._sending = 0
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._ending = False
        self._thread = threading.Thread(target=self._move, daemon=True, name="compressed-worker")
        self._thread.start()

    def gradient_slot(self, tensor: int) -> Floats:
        """Where this tensor's gradient goes; waits until the exchange before is over."""
        self.await_parameters([tensor])
        found = self._job.tensors[tensor]
        return self.gradient[found.start : found.stop]

    def push(self, iteration: int, tensor: int) -> float:
        """Code the gradient in this tensor's slot, send it, and expect what comes of it; returns the CPU seconds that
        coding took.

        From here until await_parameters returns, the tensor's parameters are being overwritten.
        """
        found = self._job.tensors[tensor]
        with self._changed:
            self._arrived_s[tensor] = math.inf
        before_s = time.thread_time()
        code = self._compressors[tensor].first(iteration, self.gradient[found.start : found.stop])
        took_s = self._coded(iteration, before_s)
        self._exchange(iteration, tensor, 0, code)
        return took_s

    def await_parameters(self, tensors: Iterable[int]) -> float:
        """Wait until these tensors hold their newest parameters; returns when the last of them was complete
        (CLOCK_MONOTONIC seconds, -inf for tensors that were never pushed)."""
        wanted = list(tensors)
        with self._changed:
            self.patience.wait_until(
                lambda: all(self._arrived_s[tensor] < math.inf for tensor in wanted),
                self._news,
                lambda: [
                    f"the update of tensor {t} ({self._peer(t)})" for t in wanted if self._arrived_s[t] == math.inf
                ],
            )
        return max((self._arrived_s[tensor] for tensor in wanted), default=-math.inf)

    def finish(self) -> float:
        """Wait for everything that is under way; returns when the last parameters were complete."""
        last_s = self.await_parameters(range(len(self._job.tensors)))
        with self._changed:
            self.patience.wait_until(
                lambda: not self._sending, self._news, lambda: [f"the end of {self._sending} pushes"]
            )
        return last_s

    def close(self) -> None:
        """End the thread; call it before the endpoint is closed."""
        self._ending = True
        self._thread.join()

    def _peer(self, tensor: int) -> int:
        return self._servers[self._job.tensors[tensor].server]

    def _exchange(self, iteration: int, tensor: int, round_: int, code: Values) -> None:
        """Expect a round's answer, and send its code."""
        peer = self._peer(tensor)
        pushed, pulled = (self._job.number(tensor, round_, leg) for leg in (Leg.PUSH, Leg.PULL))
        bound = self._bounds.push(iteration) if self._bounds else None
        with self._changed:
            self._sending += 1
        self._endpoint.receive(peer, MessageKey(iteration, pulled, Leg.PULL), self._answers[pulled])
        self._endpoint.send(peer, MessageKey(iteration, pushed, Leg.PUSH), code, bound=bound)

    def _news(self, timeout_s: float) -> bool:
        """Wait for the thread to report; the lock is held. Raises what ended the thread."""
        found = self._failure is not None or self._changed.wait(timeout_s)
        if self._failure is not None:
            raise self._failure
        return found

    def _move(self) -> None:
        """The thread: take what arrives."""
        try:
            while not self._ending:
                for completion in self._endpoint.wait(_SLICE_S):
                    self.completions.append(completion)
                    if completion.received:
                        self._take(completion)
                    else:
                        with self._changed:
                            self._sending -= 1
                            self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _take(self, completion: Completion) -> None:
        """A round's answer is there: begin the next, or update the parameters."""
        iteration, number = completion.key.iteration, completion.key.tensor
        tensor, round_ = self._job.place(number)
        compressor, answer = self._compressors[tensor], _arrived(self._answers[number], completion)
        before_s = time.thread_time()
        if round_ + 1 < len(compressor.exchanges):
            code = compressor.next(iteration, round_ + 1, answer)
            self._coded(iteration, before_s)
            self._exchange(iteration, tensor, round_ + 1, code)
            return
        mean = compressor.decode(iteration, answer)
        self._coded(iteration, before_s)
        found = self._job.tensors[tensor]
        self._optimizer.step(iteration, self.parameters[found.start : found.stop], self._state[tensor], mean)
        with self._changed:
            self._arrived_s[tensor] = time.monotonic()
            self._changed.notify_all()

    def _coded(self, iteration: int, before_s: float) -> float:
        """Note what this thread spent on coding since an instant of its own clock."""
        took_s = time.thread_time() - before_s
        with self._changed:
            self.codec_s[iteration] = self.codec_s.get(iteration, 0.0) + took_s
        return took_s


@dataclass
class _Progress:
    """Of one tensor at its server: which codes it waits for, and who still has to send one or to take the answer."""

    iteration: int
    round: int
    missing: set[int]
    pulls: int


class CompressedServer(ServedRank):
    """A server's side: it merges the codes of the tensors whose `server` is its index.

    workers: ranks, in the order in which their codes are merged. codec_s: CPU seconds of merging so far. Declares the
    codes.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        job: CodedJob,
        compressors: list[Compressor],
        index: int,
        workers: list[int],
        *,
        bounds: Bounds | None = None,
        stall_timeout_s: float = STALL_TIMEOUT_S,
    ) -> None:
        super().__init__(endpoint, job.tensors, stall_timeout_s)
        self.codec_s = 0.0
        self._job = job
        self._compressors = compressors
        self._workers = workers
        self._bounds = bounds
        own = [number for number, tensor in enumerate(job.tensors) if tensor.server == index]
        self._progress = {tensor: _Progress(0, 0, set(workers), 0) for tensor in own}
        self._inbox = {
            job.number(tensor, round_, Leg.PUSH): [
                _room(exchange.push.elements, held_as(exchange.push.dtype)) for _ in workers
            ]
            for tensor in own
            for round_, exchange in enumerate(compressors[tensor].exchanges)
        }
        self._codes: dict[int, dict[int, Values]] = {tensor: {} for tensor in own}
        job.declare(endpoint)

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
        before_s = time.thread_time()
        merged = compressor.merge(iteration, round_, [self._codes[tensor][worker] for worker in self._workers])
        self.codec_s += time.thread_time() - before_s
        last = round_ + 1 == len(compressor.exchanges)
        at.iteration, at.round = (iteration + 1, 0) if last else (iteration, round_ + 1)
        at.missing = set(self._workers)
        at.pulls += len(self._workers)
        if at.iteration < self._job.iterations:
            self._expect(tensor)
        first = (iteration + tensor) % len(self._workers)  # nobody is always served first
        key = MessageKey(iteration, self._job.number(tensor, round_, Leg.PULL), Leg.PULL)
        for worker in self._workers[first:] + self._workers[:first]:
            self._endpoint.send(worker, key, merged)

    def _expect(self, tensor: int) -> None:
        at = self._progress[tensor]
        key = MessageKey(at.iteration, self._job.number(tensor, at.round, Leg.PUSH), Leg.PUSH)
        bound = self._bounds.push(at.iteration) if self._bounds else None
        for worker, buffer in zip(self._workers, self._inbox[key.tensor], strict=True):
            self._endpoint.receive(worker, key, buffer, bound=bound)


def _room(elements: int, dtype: np.dtype[np.generic]) -> Values:
    return np.zeros(elements, dtype)


def _arrived(buffer: Values, completion: Completion) -> Values:
    """What of a buffer a message filled."""
    return buffer[: completion.bytes // buffer.itemsize]
