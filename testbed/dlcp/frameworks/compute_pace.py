"""The declared compute of a real training job: a layer takes as long as declared, whatever this machine needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence


class Pace:
    """A worker's compute on a timeline of its own, of absolute instants, so that late wake-ups do not add up.

    forward_s, backward_s: what each layer takes, input side first, seconds of this host. sleep_until: waits for an
    instant (CLOCK_MONOTONIC), and returns at once when it has passed.

    A layer's compute is over at its instant: what is done earlier waits. What is done later goes on at once, and the
    timeline stays, so that the next layer may catch up; the iteration counts as one that overran, whether its computing
    took too long, a call into the transport, or the wait for a core that others had.
    """

    def __init__(
        self, forward_s: Sequence[float], backward_s: Sequence[float], sleep_until: Callable[[float], None]
    ) -> None:
        self.iteration_s = sum(forward_s) + sum(backward_s)
        self.due_s = 0.0
        """When the compute so far is over."""
        self._forward_s = tuple(forward_s)
        self._backward_s = tuple(backward_s)
        self._sleep_until = sleep_until
        self._worst_s = 0.0
        self._iterations = self._overran = 0
        self._over = False
        self._late_s = self._late_sum_s = 0.0

    @property
    def late(self) -> float:
        """By how much iterations' real compute ended after the declared one, in the mean, as a share of it: so much
        longer is the job for the machine's sake."""
        declared_s = self._iterations * self.iteration_s
        return (self._late_sum_s + self._late_s) / declared_s if declared_s else 0.0

    @property
    def over_s(self) -> float:
        """By how much a layer's real compute was over too late, at worst; seconds of this host."""
        return self._worst_s

    @property
    def over_share(self) -> float:
        """Share of iterations in which a layer's real compute was over too late."""
        return (self._overran + self._over) / self._iterations if self._iterations else 0.0

    def begin(self, instant_s: float) -> float:
        """An iteration's first layer may compute from an instant on, if the compute before is over; returns when it
        begins."""
        self._overran += self._over
        self._over = False
        self._late_sum_s += self._late_s
        self._late_s = 0.0
        self._iterations += 1
        return self.wait(instant_s)

    def wait(self, instant_s: float) -> float:
        """Return when the next layer begins whose parameters came at an instant."""
        self.due_s = max(self.due_s, instant_s)
        return self.due_s

    def spend(self, seconds: float) -> None:
        """The worker's thread was kept from computing for so long: gradients were coded, or had no place to go."""
        self.due_s += seconds

    def forward(self, layer: int) -> None:
        """A layer's real compute is done: return when the declared one is over."""
        self._end(self._forward_s[layer])

    def backward(self, layer: int) -> None:
        """Return when the declared backward pass of a layer is over, its real one being done."""
        self._end(self._backward_s[layer])

    def _end(self, takes_s: float) -> None:
        self.due_s += takes_s
        self._late_s = max(0.0, time.monotonic() - self.due_s)
        if self._late_s > 0:
            self._worst_s = max(self._worst_s, self._late_s)
            self._over = True
        self._sleep_until(self.due_s)
