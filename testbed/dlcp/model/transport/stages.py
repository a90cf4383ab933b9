"""Settings of all-reduces whose stages are bounded in time."""

from __future__ import annotations

from pydantic import Field

from dlcp.model.base import Frozen
from dlcp.model.units import Fraction


class TimeBounds(Frozen):
    """How long a stage of an all-reduce may take (UBT of OptiReduce, NSDI 2025); see
    transport/aggregation/optireduce_timeouts.py.

    warmup_iterations: so many iterations lose nothing and are measured. quantile: of their stages' times, the hard
    bound tB. tail_share: of a message's bytes; once they are there, the rest is waited for until wait_share beyond the
    expected time tC. loss_low, loss_high: the loss of a stage that lets wait_share shrink, and grow. repair: what the
    network lost is sent again while there is time.
    """

    warmup_iterations: int = Field(default=3, ge=1)
    quantile: Fraction = 0.95
    tail_share: Fraction = 0.99
    wait_share: Fraction = 0.1
    loss_low: Fraction = 0.0001
    loss_high: Fraction = 0.001
    repair: bool = False


class StageSettings(Frozen):
    """Settings of patterns that bound stages (Pattern.bounds_stages)."""

    at_once: int = Field(default=0, ge=0)
    """See TransposeAllReduce."""
    hadamard: bool = False
    """A code travels that spreads losses."""
    time_bounds: TimeBounds | None = None
    """Stages are closed in time."""
