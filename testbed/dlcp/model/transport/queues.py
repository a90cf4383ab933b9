"""Settings of queues: in which a packet travels, and whether switches may drop it first."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dlcp.model.base import Frozen
from dlcp.model.units import Fraction

Magnitude = Literal["small", "large"]
"""Magnitude of a packet's gradients, against the median of its layer."""
MOST_DEMOTIONS = 6
"""DLCP_DEMOTIONS of protocol.h: seven queues carry data."""


class QueueSettings(Frozen):
    """Settings that kind "dlcp" uses, and the plan of tensors (transport/contract/tensors.py)."""

    priority_queues: int = Field(default=1, ge=1, le=7)
    """Into how many classes layers are sorted, front layers in the highest queue."""
    layer_map: Literal["equal-bytes", "equal-count"] = "equal-bytes"
    """Each class has as many bytes, or as many buckets."""
    selective_drop: Literal["wred", "ect", "off"] = "wred"
    """How switches learn which packets to drop first."""
    magnitude_metric: Literal["mean", "l2", "max"] = "mean"
    """The measure of a packet's gradients that is compared with the median of its layer."""
    protected_tail_share: Fraction = 0.2
    """Share of the layers, output side, that droppable_back is about."""
    droppable_front: tuple[Magnitude, ...] = ("small",)
    """Packets of the other layers that may be dropped first."""
    droppable_back: tuple[Magnitude, ...] = ()
    """Packets of the protected layers that may be dropped first."""
    tag_all: bool = False
    """Messages of which nothing may be lost are measured and tagged like bounded ones."""
    demote_after_bytes: tuple[int, ...] = Field(default=(), max_length=MOST_DEMOTIONS)
    """Each time that a message has sent so many, it travels one queue lower."""
