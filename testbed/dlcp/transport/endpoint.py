"""The face that every transport shows to the parameter server and to training code."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


class Leg(IntEnum):
    """Which way a tensor travels: worker → server, or server → worker."""

    PUSH = 0
    PULL = 1


@dataclass(frozen=True)
class MessageKey:
    """With the peer's rank, what names a message: one tensor's journey on one leg of one iteration."""

    iteration: int
    tensor: int
    leg: Leg


@dataclass(frozen=True)
class Completion:
    """One message that is over at this end.

    received: True at the receiver (the buffer holds what arrived; holes are zero), False at the sender (the
    buffer may be reused). Bytes are payload. start_s: at the sender when it was handed over, at the receiver
    when it was registered; end_s: when it was over. CLOCK_MONOTONIC seconds.
    lost_bytes: never delivered (only known at the receiver; 0 at the sender). resent_bytes and probes: known
    at the sender.
    """

    peer: int
    key: MessageKey
    received: bool
    bytes: int
    delivered_bytes: int
    lost_bytes: int
    resent_bytes: int
    probes: int
    start_s: float
    end_s: float


class TransportError(RuntimeError):
    """A peer is gone or a wait ran out. The text names the rank, the tensor and what was missing."""


class Endpoint(Protocol):
    """One rank's end. Thread-safe calls are not required: one thread drives an endpoint.

    Every tensor's size, layer and bound are agreed before training (`declare`), the same at every rank.
    """

    def declare(self, tensor: int, elements: int, *, queue: int, droppable: bool, must_arrive: bool) -> None:
        """Agree a tensor: float32 elements; the switch queue of its layer; whether its small-gradient packets
        may be tagged as droppable on the push leg; must_arrive: bound 0 on every leg."""

    def receive(self, peer: int, key: MessageKey, buffer: Floats) -> None:
        """Register a buffer (1-D, contiguous, zeroed by the callee) before the peer may send into it."""

    def send(self, peer: int, key: MessageKey, data: Floats) -> None:
        """Hand a 1-D contiguous array over; it must not change until its completion."""

    def wait(self, timeout_s: float) -> list[Completion]:
        """Completions since the last call; waits for at least one, up to timeout_s. Empty = time ran out.

        Raises TransportError when a peer is known to be gone.
        """

    def statistics(self) -> dict[str, Any]:
        """Counters since the start: packets, bytes sent and received, resent, losses, socket overflow, …"""

    def close(self) -> None:
        """Free sockets and threads. Safe to call twice."""
