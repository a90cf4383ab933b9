"""QoS intent: what every switch port should do, in bytes and shares; no vendor's words.

`schemes` make one, `switches` render it for a device. DSCP ⇄ (queue, precedence) is not said here: it is fixed
by native/codepoint.h for all.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from dlcp.model.base import Frozen
from dlcp.model.units import Fraction, Size

QUEUES = 8
"""Strict-priority queues a port, 7 served first (the commodity figure; facts of codepoint.h)."""
PRECEDENCES = 3
"""Drop precedences a queue: 0 is dropped last."""

LoadBalancing = Literal["flow-hash", "per-packet"]


class DropProfile(Frozen):
    """WRED: no drop below minimum, a line up to `probability` at maximum, certain above it.

    `mark`: ECN-capable packets are marked (CE) where others would be dropped.
    """

    minimum_bytes: Size = Field(alias="minimum")
    maximum_bytes: Size = Field(alias="maximum")
    probability: Fraction = 1.0
    mark: bool = False

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.minimum_bytes > self.maximum_bytes:
            raise ValueError(f"minimum {self.minimum_bytes} B is above maximum {self.maximum_bytes} B")
        return self


class QueueIntent(Frozen):
    """One queue: its share of the buffer that nobody else can take, and a drop profile for each precedence.

    profiles: by drop precedence 0, 1, 2; None = tail drop only.
    """

    reserved_bytes: Size = Field(default=0, alias="reserved")
    profiles: tuple[DropProfile | None, DropProfile | None, DropProfile | None] = (None, None, None)


class QosIntent(Frozen):
    """All of a port. A queue that is not named is a plain tail-drop queue.

    port_buffer_bytes: what all queues of a port hold together; a packet that would exceed it is dropped, unless
    its own queue is within its reserved bytes.
    """

    name: str
    port_buffer_bytes: Size = Field(alias="port_buffer")
    queues: dict[int, QueueIntent] = Field(default_factory=dict)
    load_balancing: LoadBalancing = "flow-hash"

    @model_validator(mode="after")
    def _within_the_port(self) -> Self:
        for number, queue in self.queues.items():
            if not 0 <= number < QUEUES:
                raise ValueError(f"queue {number} does not exist: queues are 0 to {QUEUES - 1}")
            if queue.reserved_bytes > self.port_buffer_bytes:
                raise ValueError(f"queue {number} reserves more than the port's {self.port_buffer_bytes} B")
        return self

    def queue(self, number: int) -> QueueIntent:
        """The intent of a queue, named or not."""
        return self.queues.get(number, QueueIntent())
