"""Settings of loss: what may stay missing of a message, when it is closed, and what a hole counts as."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dlcp.model.base import Frozen
from dlcp.model.units import Fraction


class EarlyClose(Frozen):
    """When a server closes a gradient that is not complete (LTP).

    fraction: of its bytes, that must be there. slack: times the moving average of how long that worker's gradients of
    that tensor took, from the first packet on; weight: of the newest in the average.
    """

    fraction: Fraction
    slack: float = Field(gt=0)
    weight: float = Field(gt=0, le=1)


class PhaseBound(Frozen):
    """A bound that depends on the phase of training (DBLP).

    critical, relaxed: bounds of the bytes. drop: the relative drop of the gradient's norm from one check to the next
    that makes the phase critical; so is everything before the second check. check_every: iterations between checks.
    """

    critical: Fraction
    relaxed: Fraction
    drop: Fraction
    check_every: int = Field(ge=1)


class LossSettings(Frozen):
    """Settings of which a pattern derives the bounds of messages (transport/contract/bounds.py)."""

    loss_bound: Fraction = 0.0
    """Share of its bytes that a gradient's push may lose; 1: no limit."""
    energy_bound: Fraction = 1.0
    """Share of its energy that it may lose; 1: no limit."""
    loss_bound_schedule: tuple[tuple[Fraction, Fraction], ...] = ()
    """(share of the training done, bound of the bytes from there on), in order."""
    pull_loss_bound: Fraction = 0.0
    """Share of the parameters that each worker may lose, but for every full_sync_every-th iteration."""
    full_sync_every: int = Field(default=1, ge=1)
    """Iterations."""
    holes: Literal["zero", "rescale", "last"] = "zero"
    """See schemes/dlcp.py."""
    stop: Literal["lazy", "eager"] = "lazy"
    """See schemes/dlcp.py."""
    must_arrive_below_packets: int = 8
    """Messages of fewer packets lose nothing."""
    must_arrive_largest: Fraction = 0.0
    """Share of a push's packets, those of the largest gradients, of which none may be lost."""
    early_close: EarlyClose | None = None
    phases: PhaseBound | None = None
