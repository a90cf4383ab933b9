"""What each message of an iteration may lose: pure functions of the settings, so both its ends say the same."""

from __future__ import annotations

from dataclasses import dataclass

from dlcp.model.transport.settings import TransportSettings
from dlcp.transport.contract.endpoint import RELIABLE, Bound

ANYTHING = Bound(1.0)


@dataclass(frozen=True)
class Bounds:
    """The bounds of a job of so many iterations, counted from 0."""

    settings: TransportSettings
    iterations: int

    def push(self, iteration: int) -> Bound:
        """Of a gradient's way to its server, or all round a ring: the newest entry of the schedule."""
        if self.settings.time_bounds is not None:
            return self._in_time(iteration)
        share = self.settings.loss_bound
        for done, bound in self.settings.loss_bound_schedule:
            if iteration >= done * self.iterations:
                share = bound
        return Bound(share, self.settings.energy_bound)

    def closed(self, bound: Bound) -> Bound:
        """Return what may be missing of a gradient of this bound, which its server may close early."""
        early = self.settings.early_close
        return bound if early is None else Bound(max(bound.bytes_share, round(1 - early.fraction, 9)))

    def pull(self, iteration: int) -> Bound:
        """Of the parameters' way back. Every full_sync_every iterations, and in the last, nothing may be lost."""
        if self.settings.time_bounds is not None:
            return self._in_time(iteration)
        every = self.settings.full_sync_every
        if (iteration + 1) % every == 0 or iteration + 1 == self.iterations:
            return RELIABLE
        return Bound(self.settings.pull_loss_bound)

    def _in_time(self, iteration: int) -> Bound:
        """Where only time is bounded: nothing while times are measured, then anything."""
        assert self.settings.time_bounds is not None
        return RELIABLE if iteration < self.settings.time_bounds.warmup_iterations else ANYTHING
