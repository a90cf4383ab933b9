"""The faces of a rank, whatever sums the gradients: what agents and training code may ask of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from dlcp.transport.contract.endpoint import Completion, Floats
from dlcp.transport.contract.waiting import Patience


class Rank(Protocol):
    """One rank of a job. patience: how long it waits; completions: of every message at this rank so far."""

    patience: Patience

    @property
    def completions(self) -> list[Completion]:
        """In the order in which they were taken."""

    def extra(self) -> dict[str, Any]:
        """Return what it can tell of its scheme beyond counters, by topic (RunResult.extra); pure JSON."""

    def close(self) -> None:
        """End what runs by itself; call it before the endpoint is closed."""


class GradientWorker(Rank, Protocol):
    """A rank that computes gradients. Over an iteration, for every tensor: await_parameters (forward), gradient_slot
    and push (backward). parameters: the whole flat vector, overwritten in place."""

    parameters: Floats

    def gradient_slot(self, tensor: int) -> Floats:
        """Where this tensor's gradient goes; waits until the slot may be written."""

    def push(self, iteration: int, tensor: int) -> float:
        """Hand over the gradient in this tensor's slot; returns the CPU seconds for which coding it kept the device
        that computes. Until await_parameters returns, the tensor's parameters are being overwritten."""

    def await_parameters(self, tensors: Iterable[int]) -> float:
        """Wait until these tensors hold their newest parameters; returns when the last of them was complete
        (CLOCK_MONOTONIC seconds, -inf for tensors that were never pushed). TransportError when patience is over."""

    def finish(self) -> float:
        """Wait for everything that is under way; returns when the last parameters were complete."""


class GradientServer(Rank, Protocol):
    """A rank that only sums what workers push."""

    def expect_first(self) -> None:
        """Register the receives of iteration 0; call it before any worker may push."""

    def run(self) -> None:
        """Serve until the job is over. TransportError when patience is over."""
