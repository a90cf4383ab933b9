"""Synchronous data-parallel training whose workers hold the parameters: each applies the same update to the means that
it was given.

A tensor's gradient is all-reduced as soon as it is ready, in a thread of its own, so that other tensors move on while
this worker computes.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np

from dlcp.transport.aggregation.ring import AllReduced
from dlcp.transport.contract.clock import HOST_CLOCK, Clock
from dlcp.transport.contract.endpoint import Completion, Floats
from dlcp.transport.contract.optimizer import Optimizer
from dlcp.transport.contract.tensors import Tensor
from dlcp.transport.contract.waiting import STALL_TIMEOUT_S, Patience

_SLICE_S = 0.2
"""How soon the thread sees that it is to end."""


class AllReduceWorker(ABC):
    """One worker among equals: see GradientWorker. What sums the gradients is its subclass's.

    parameters: the whole flat vector, updated in place. gradient: where the gradients of all tensors are put before
    they are pushed. patience: how long it waits. codec_s: iteration → CPU seconds of coding.
    """

    def __init__(
        self,
        tensors: list[Tensor],
        parameters: Floats,
        optimizer: Optimizer,
        stall_timeout_s: float = STALL_TIMEOUT_S,
        clock: Clock = HOST_CLOCK,
    ) -> None:
        self.parameters = parameters
        self.gradient = np.zeros_like(parameters)
        self.patience = Patience(stall_timeout_s, clock=clock)
        self._clock = clock
        self.codec_s: dict[int, float] = {}
        self._tensors = tensors
        self._optimizer = optimizer
        self._state = [optimizer.state(t, parameters[one.start : one.stop]) for t, one in enumerate(tensors)]
        self._arrived_s = [-math.inf] * len(tensors)
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._ending = False
        self._thread = threading.Thread(target=self._move, daemon=True, name=type(self).__name__)

    @property
    @abstractmethod
    def completions(self) -> list[Completion]:
        """Of every message at this rank so far."""

    def gradient_slot(self, tensor: int) -> Floats:
        """Where this tensor's gradient goes; waits until the all-reduce before is over and the slot may be written."""
        self._wait_for([tensor], free=True)
        found = self._tensors[tensor]
        return self.gradient[found.start : found.stop]

    def push(self, iteration: int, tensor: int) -> float:
        """All-reduce the gradient in this tensor's slot and update the parameters with it; the CPU seconds of coding.

        From here until await_parameters returns, the tensor's parameters are being overwritten.
        """
        found = self._tensors[tensor]
        with self._changed:
            self._arrived_s[tensor] = math.inf
        return self._start(tensor, iteration, self.gradient[found.start : found.stop])

    def await_parameters(self, tensors: Iterable[int]) -> float:
        """Wait until these tensors hold their newest parameters; returns when the last of them was complete
        (CLOCK_MONOTONIC seconds, -inf for tensors that were never pushed)."""
        return self._wait_for(list(tensors), free=False)

    def finish(self) -> float:
        """Wait for everything that is under way; returns when the last parameters were complete."""
        return self._wait_for(list(range(len(self._tensors))), free=True)

    def extra(self) -> dict[str, Any]:
        """See Rank: nothing."""
        return {}

    def close(self) -> None:
        """End the thread; call it before the endpoint is closed."""
        self._ending = True
        self._thread.join()

    @abstractmethod
    def _start(self, tensor: int, iteration: int, gradient: Floats) -> float:
        """Begin to reduce a gradient; the CPU seconds for which coding it kept the device that computes."""

    @abstractmethod
    def _poll(self, timeout_s: float) -> list[AllReduced]:
        """Move all-reduces on; those whose mean is whole. Returns after timeout_s, or when anything is new."""

    @abstractmethod
    def _mean(self, done: AllReduced) -> Floats:
        """The mean that a finished all-reduce left; it may be used up as scratch space."""

    @abstractmethod
    def _missing(self) -> list[str]:
        """What is under way at this rank, in words."""

    def _is_free(self, tensor: int) -> bool:
        """Whether nothing reads the tensor's gradient any more, once its mean is whole."""
        return True

    def _coded(self, iteration: int, before_s: float) -> float:
        """Note what this thread spent on coding since an instant of its own clock."""
        took_s = self._clock.thread_s() - before_s
        with self._changed:
            self.codec_s[iteration] = self.codec_s.get(iteration, 0.0) + took_s
        return took_s

    def _wait_for(self, tensors: list[int], *, free: bool) -> float:
        """Wait until tensors hold their newest parameters (and are free); when the last of them was complete."""

        def done() -> bool:
            return all(self._arrived_s[t] < math.inf and (not free or self._is_free(t)) for t in tensors)

        with self._changed:
            self.patience.wait_until(done, self._news, self._missing)
        return max((self._arrived_s[tensor] for tensor in tensors), default=-math.inf)

    def _news(self, timeout_s: float) -> bool:
        """Wait for the thread to report; the lock is held. Raises what ended the thread."""
        found = self._failure is not None or self._changed.wait(timeout_s)
        if self._failure is not None:
            raise self._failure
        return found

    def _move(self) -> None:
        """The thread: move all messages on, update what has been reduced."""
        try:
            while not self._ending:
                for done in self._poll(_SLICE_S):
                    self._update(done)
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _update(self, done: AllReduced) -> None:
        found = self._tensors[done.tensor]
        parameters, mean = self.parameters[found.start : found.stop], self._mean(done)
        self._optimizer.step(done.iteration, parameters, self._state[done.tensor], mean)
        with self._changed:
            self._arrived_s[done.tensor] = done.end_s
            self._changed.notify_all()
