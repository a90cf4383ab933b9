"""Loss of a masked run: the packets of the workers' gradients to lose, and the rule that picks them."""

from __future__ import annotations

from typing import Literal

from dlcp.model.base import Frozen
from dlcp.model.units import Fraction

Order = Literal[
    "random",
    "small-first",
    "large-first",
    "front-layers",
    "back-layers",
    "tail-cut",
    "message-tail-cut",
    "recorded",
    "recorded-shuffled",
    "recorded-rate",
]
Spread = Literal["even", "in-turn", "one-worker", "same-packets"]
RECORDED: tuple[Order, ...] = ("recorded", "recorded-shuffled", "recorded-rate")
"""The orders that take their losses from a file of masks."""


class MaskSettings(Frozen):
    """See schemes/masked.py, whose knobs these are. recorded: name of a file in testbed/experiments/masks."""

    loss: Fraction = 0.0
    order: Order = "random"
    spread: Spread = "even"
    front_share: Fraction = 0.5
    recorded: str = ""
    damped: Fraction = 0.0
