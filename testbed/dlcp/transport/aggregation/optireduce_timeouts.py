"""How long a stage may take (UBT of OptiReduce, NSDI 2025): learned from reliable iterations, then adapted.

A stage is one leg of the all-reduce of one tensor at one rank. tB, the hard bound, is a high quantile of what stages
took while nothing could be lost. tC, what a stage is expected to take, is a moving average. Once the tail of a message
is there, the rest is waited for until x beyond tC: x is doubled when a stage lost too much, and made smaller step by
step while stages lose next to nothing. How x moves is from memory of the paper, of which only notes were at hand.

Deviations from the paper: its ranks tell each other their tC and take the median, ours go by their own; its x begins
when all senders' last packets are there, ours ends at (1 + x) tC of the stage, message by message; it measures tB with
its largest bucket, ours is of the stages of all tensors together, which are of about one size.
"""

from __future__ import annotations

import numpy as np

from dlcp.model.transport.stages import TimeBounds
from dlcp.transport.contract.endpoint import Deadline, Leg

NEWEST = 0.125
"""Weight of the newest stage in tC, as of the newest round trip in RFC 6298; the paper says: a moving average."""
WAIT_STEP, LEAST_WAIT, MOST_WAIT = 0.01, 0.01, 0.5
"""Of x; the limits are ours."""
AT_BOUND = 0.99
"""A stage with losses that took this share of tB, or more, was ended by it."""


class StageTimes:
    """Of one rank, each leg by itself."""

    def __init__(self, settings: TimeBounds) -> None:
        self._settings = settings
        self._legs = {leg: _Leg(settings) for leg in Leg}

    @property
    def repairs(self) -> bool:
        """Whether what was lost is sent again while there is time."""
        return self._settings.repair

    def bounds(self, iteration: int) -> bool:
        """Whether an iteration's stages are bounded in time; before that they are measured."""
        return iteration >= self._settings.warmup_iterations

    def hard_s(self, leg: Leg) -> float:
        """tB; 0 before anything was measured."""
        return self._legs[leg].hard_s

    def expected_s(self, leg: Leg) -> float:
        """tC; 0 before anything was measured."""
        return self._legs[leg].expected_s

    def wait_share(self, leg: Leg) -> float:
        """x."""
        return self._legs[leg].wait_share

    def told(self) -> dict[str, dict[str, float]]:
        """Leg → tB and tC, seconds, and x, as they are."""
        return {
            leg.name.lower(): {"hard_s": one.hard_s, "expected_s": one.expected_s, "wait_share": one.wait_share}
            for leg, one in self._legs.items()
        }

    def deadline(self, leg: Leg, iteration: int, start_s: float) -> tuple[Deadline, ...] | None:
        """When to close messages of a stage that begins at start_s (CLOCK_MONOTONIC); None while times are measured,
        and at a rank that measured none."""
        one = self._legs[leg]
        if not self.bounds(iteration) or not one.hard_s:
            return None
        early_s = min(one.hard_s, (1 + one.wait_share) * one.expected_s)
        return Deadline(self._settings.tail_share, start_s + early_s), Deadline(0.0, start_s + one.hard_s)

    def over(self, leg: Leg, iteration: int, took_s: float, delivered_share: float) -> None:
        """A stage is over."""
        if self.bounds(iteration):
            self._legs[leg].adapt(took_s, delivered_share)
        else:
            self._legs[leg].measure(took_s)


class _Leg:
    def __init__(self, settings: TimeBounds) -> None:
        self._settings = settings
        self._measured: list[float] = []
        self.hard_s = 0.0
        self.expected_s = 0.0
        self.wait_share = settings.wait_share

    def measure(self, took_s: float) -> None:
        self._measured.append(took_s)
        self.hard_s = float(np.quantile(self._measured, self._settings.quantile, method="higher"))
        self._expect(took_s)

    def adapt(self, took_s: float, delivered_share: float) -> None:
        """What the stage would have taken: the time it took; tB if that ended it; else as if the rest came as fast."""
        if delivered_share < 1:
            ended_by_bound = took_s >= AT_BOUND * self.hard_s or not delivered_share
            took_s = self.hard_s if ended_by_bound else min(self.hard_s, took_s / delivered_share)
        self._expect(took_s)
        lost = 1 - delivered_share
        if lost > self._settings.loss_high:
            self.wait_share = min(MOST_WAIT, 2 * self.wait_share)
        elif lost < self._settings.loss_low:
            self.wait_share = max(LEAST_WAIT, self.wait_share - WAIT_STEP)

    def _expect(self, took_s: float) -> None:
        self.expected_s = took_s if not self.expected_s else (1 - NEWEST) * self.expected_s + NEWEST * took_s
