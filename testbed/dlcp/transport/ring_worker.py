"""Synchronous data-parallel training round a ring: every worker applies the same update to the same averages.

A tensor's gradient is all-reduced as soon as it is ready, in a thread of its own, so that hops of others move on while
this worker computes. Each rank holds the same bits after the all-reduce, so all parameters stay identical.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from dlcp.model.workload import TransportSettings
from dlcp.transport.bounds import Bounds
from dlcp.transport.endpoint import Bound, Completion, Endpoint, Floats
from dlcp.transport.optimizer import Optimizer
from dlcp.transport.ring import AllReduced, RingAllReduce, chunk_cuts
from dlcp.transport.tagging import Tensor
from dlcp.transport.values import packets
from dlcp.transport.waiting import STALL_TIMEOUT_S, Patience

_SLICE_S = 0.2
"""How soon the thread sees that it is to end."""


class RingWorker:
    """One worker of a ring, with the face of parameter_server.Worker.

    rank, size: its place in the ring; the endpoint knows its neighbours. parameters: the whole flat vector, updated in
    place. bounds: by iteration; without them the settings' own. patience: how long it waits.
    Declares the tensors; all ranks do so before any pushes.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        tensors: list[Tensor],
        rank: int,
        size: int,
        parameters: Floats,
        optimizer: Optimizer,
        settings: TransportSettings,
        *,
        bounds: Bounds | None = None,
        stall_timeout_s: float = STALL_TIMEOUT_S,
    ) -> None:
        self.parameters = parameters
        self.gradient = np.zeros_like(parameters)
        self.patience = Patience(stall_timeout_s)
        self._tensors = tensors
        self._optimizer = optimizer
        self._state = [optimizer.state(t, parameters[one.start : one.stop]) for t, one in enumerate(tensors)]
        if settings.holes == "last":
            raise ValueError("a ring sums on the way: it has no worker's last gradient to put into a hole")
        self._bounds = bounds
        self._ring = RingAllReduce(
            endpoint, rank, size, bound=Bound(settings.loss_bound, settings.energy_bound), holes=settings.holes,
            average=True, note_completions=True,
        )  # fmt: skip
        for number, tensor in enumerate(tensors):
            self._ring.declare(
                number, tensor.elements, queue=tensor.queue,
                droppable=tensor.droppable,
                must_arrive=chunks_must_arrive(tensor, size, settings),
            )  # fmt: skip
        self._arrived_s = [-math.inf] * len(tensors)
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._ending = False
        self._thread = threading.Thread(target=self._move, daemon=True, name=f"ring-rank-{rank}")
        self._thread.start()

    @property
    def completions(self) -> list[Completion]:
        """Of every hop at this rank so far."""
        return self._ring.completions

    def gradient_slot(self, tensor: int) -> Floats:
        """Where this tensor's gradient goes; waits until the all-reduce before is over and the slot may be written."""
        self.await_parameters([tensor])
        found = self._tensors[tensor]
        return self.gradient[found.start : found.stop]

    def push(self, iteration: int, tensor: int) -> float:
        """All-reduce the gradient in this tensor's slot and update the parameters with it; no time is spent on coding.

        From here until await_parameters returns, the tensor's parameters are being overwritten.
        """
        found = self._tensors[tensor]
        with self._changed:
            self._arrived_s[tensor] = math.inf
        bound = self._bounds.push(iteration) if self._bounds else None
        self._ring.start(tensor, iteration, self.gradient[found.start : found.stop], bound=bound)
        return 0.0

    def await_parameters(self, tensors: Iterable[int]) -> float:
        """Wait until these tensors hold their newest parameters; returns when the last of them was complete
        (CLOCK_MONOTONIC seconds, -inf for tensors that were never pushed)."""
        wanted = list(tensors)
        with self._changed:
            self.patience.wait_until(
                lambda: all(self._arrived_s[tensor] < math.inf for tensor in wanted), self._news, self._ring.missing
            )
        return max((self._arrived_s[tensor] for tensor in wanted), default=-math.inf)

    def finish(self) -> float:
        """Wait for everything that is under way; returns when the last parameters were complete."""
        return self.await_parameters(range(len(self._tensors)))

    def close(self) -> None:
        """End the thread; call it before the endpoint is closed."""
        self._ending = True
        self._thread.join()

    def _news(self, timeout_s: float) -> bool:
        """Wait for the thread to report; the lock is held. Raises what ended the thread."""
        found = self._failure is not None or self._changed.wait(timeout_s)
        if self._failure is not None:
            raise self._failure
        return found

    def _move(self) -> None:
        """The thread: move all hops on, update what has been reduced."""
        try:
            while not self._ending:
                for done in self._ring.wait(_SLICE_S):
                    self._update(done)
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _update(self, done: AllReduced) -> None:
        found = self._tensors[done.tensor]
        parameters, mean = self.parameters[found.start : found.stop], self.gradient[found.start : found.stop]
        self._optimizer.step(done.iteration, parameters, self._state[done.tensor], mean)
        with self._changed:
            self._arrived_s[done.tensor] = done.end_s
            self._changed.notify_all()


def chunks_must_arrive(tensor: Tensor, size: int, settings: TransportSettings) -> bool:
    """Whether a tensor's chunks are too small to lose anything, as a tensor of their size would be."""
    cuts = chunk_cuts(tensor.elements, size)
    largest = max(packets(stop - start) for start, stop in pairwise(cuts))
    return tensor.must_arrive or largest < settings.must_arrive_below_packets
