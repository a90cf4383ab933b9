"""The face that every transport shows to the parameter server and to training code."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, IntEnum, IntFlag
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Values = npt.NDArray[Any]
"""Elements of a tensor's dtype; bfloat16, which numpy lacks, as uint16."""
Counts = npt.NDArray[np.uint16]
Dtype = Literal["float32", "float16", "bfloat16", "uint8"]
"""uint8: bytes that are no numbers: they have no energy, cannot be droppable, and are not added (Placement.ADD). They
are reliable unless a bound says otherwise, of which the share of bytes holds."""


class Leg(IntEnum):
    """Which way a tensor travels: worker → server, or server → worker; in a ring reduce-scatter, or all-gather."""

    PUSH = 0
    PULL = 1


class Placement(Enum):
    """What a receive buffer holds where nothing arrives, and what becomes of what arrives.

    ZERO: holes are zeros once the message is over. KEEP: holes keep what the buffer held. ADD: what arrives is added,
    in the tensor's dtype, to what the buffer holds; holes keep it.
    """

    ZERO = 0
    KEEP = 1
    ADD = 2


class Droppable(IntFlag):
    """Which packets of a tensor may be tagged as droppable on the push leg: those of small gradients, of large ones."""

    NONE = 0
    SMALL = 1
    LARGE = 2


@dataclass(frozen=True)
class Bound:
    """What may stay missing of a message. Both limits must hold; 1 is no limit.

    bytes_share: of its bytes (the papers' p); 0 delivers everything. energy_share: of its energy Σ g², as the
    magnitude codes of its packets tell it.
    """

    bytes_share: float
    energy_share: float = 1.0

    def __post_init__(self) -> None:
        if not (0 <= self.bytes_share <= 1 and 0 <= self.energy_share <= 1):
            raise ValueError(f"a bound is a share from 0 to 1, not {self}")


RELIABLE = Bound(0.0)


@dataclass(frozen=True)
class Deadline:
    """From when on a receiver closes a message whose bound is not met, with whatever came, if that is enough.

    at_s: an instant (CLOCK_MONOTONIC). after_first_s: so long after the message's first packet came. The earlier one;
    inf is never. share: of the bytes, that must be there even then; 0 asks for nothing. Before it, and while less
    is there, the bound rules. Packets and tensors that must arrive are waited for all the same: a push of a tensor
    that is declared with some stays open until the sender has told how many they are, even if nothing of it came.
    """

    share: float
    at_s: float = math.inf
    after_first_s: float = math.inf

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 or not self.at_s > 0 or not self.after_first_s > 0:
            raise ValueError(f"a deadline has a share from 0 to 1 and times above 0, not {self}")


@dataclass(frozen=True)
class MessageKey:
    """With the peer's rank, what names a message: one tensor's journey on one leg of one iteration.

    step: the hop, where one leg of a tensor takes several messages (a ring); 0 to 65535.
    """

    iteration: int
    tensor: int
    leg: Leg
    step: int = 0


@dataclass(frozen=True)
class Completion:
    """One message that is over at this end.

    received: True at the receiver (the buffer holds what arrived; see Placement), False at the sender (the
    buffer may be reused). Bytes are payload. start_s: at the sender when it was handed over, at the receiver
    when it was registered; end_s: when it was over. CLOCK_MONOTONIC seconds.
    lost_bytes, lost_energy_share: never delivered (only known at the receiver; 0 at the sender). resent_bytes and
    probes: known at the sender. first_s: at the receiver, when the first packet came; 0 if none did, or it is not known
    (TCP).
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
    lost_energy_share: float = 0.0
    first_s: float = 0.0


class TransportError(RuntimeError):
    """A peer is gone or a wait ran out. The text names the rank, the tensor and what was missing."""


class Endpoint(Protocol):
    """One rank's end. One thread waits; `declare`, `receive` and `send` may be called by any thread meanwhile.

    Every tensor's size, layer and bounds are agreed before they are used (`declare`), the same at every rank.
    """

    def declare(
        self,
        tensor: int,
        elements: int,
        *,
        queue: int,
        droppable: Droppable = Droppable.NONE,
        must_arrive: bool = False,
        push_bound: Bound = RELIABLE,
        pull_bound: Bound = RELIABLE,
        dtype: Dtype = "float32",
        variable: bool = False,
    ) -> None:
        """Agree a tensor: elements of dtype; the switch queue of its layer; which of its packets may be tagged as
        droppable on the push leg; must_arrive: nothing of it may be lost, whatever a bound says; variable: a message
        may carry fewer elements, but one at least (its completion tells its bytes), and nothing of it may be lost, as
        with must_arrive."""

    def receive(
        self,
        peer: int,
        key: MessageKey,
        buffer: Values,
        *,
        placement: Placement = Placement.ZERO,
        bound: Bound | None = None,
        deadline: Deadline | tuple[Deadline, ...] | None = None,
        contributors: Counts | None = None,
    ) -> None:
        """Register a 1-D contiguous buffer of the tensor's size before the peer may send into it; what a shorter
        message does not fill is left as it is.

        bound: for this message instead of the declared one (a schedule over training changes it by iteration).
        deadline: from when on less is enough (up to two: each closes it); the sender need not know. TCP, which delivers
        all, ignores it.
        contributors: (packets,) of the tensor; told how many ranks' values each packet of the buffer sums up: set
        to what the sender said of it, or 0 in a hole and behind the end of a shorter message; with Placement.ADD that
        is added to what it held.
        """

    def send(
        self,
        peer: int,
        key: MessageKey,
        data: Values,
        *,
        bound: Bound | None = None,
        contributors: Counts | None = None,
    ) -> None:
        """Hand a 1-D contiguous array over; it must not change until its completion.

        bound: as in receive; both ends of a message say the same. contributors: (packets,) how many ranks' values
        each packet sums up; 1 each if not given. Copied.
        """

    def wait(self, timeout_s: float) -> list[Completion]:
        """Completions since the last call; waits for at least one, up to timeout_s. Empty = time ran out.

        Raises TransportError when a peer is known to be gone.
        """

    def statistics(self) -> dict[str, Any]:
        """Counters since the start: packets, bytes sent and received, resent, losses, socket overflow, …

        "wire", alike for all transports: sent_packets, sent_bytes, received_packets, received_bytes (frames with all
        headers from Ethernet's on), resent_packets, resent_bytes (payload).
        """

    def close(self) -> None:
        """Free sockets and threads. Safe to call twice."""
