"""QoS intent: what every switch port should do, in bytes and shares; no vendor's words.

`schemes` make one, or a file of testbed/intents says one; `switches` render it for a device. DSCP ⇄ (queue, precedence)
is fixed by native/codepoint.h for all; an intent says only which codepoints differ from it.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from dlcp.model.base import Frozen
from dlcp.model.units import Duration, Fraction, Size

QUEUES = 8
"""Strict-priority queues a port, 7 served first (the commodity figure; facts of codepoint.h)."""
PRECEDENCES = 3
"""Drop precedences a queue: 0 is dropped last."""
MOST_AVERAGING = 15
"""DLCP_AQM_LARGEST_AVERAGING of aqm.h."""

UNSAID_ALPHA = 1.0
"""The threshold of a queue of which neither the intent nor the queue says one."""

CODEPOINTS = 64
"""Values of the DSCP field (RFC 2474)."""
CONTROL_QUEUE = 7
"""Queue of control packets (codepoint.h), of DLCP and of the switches themselves."""
ROUTING_DSCP = 48
"""CS6: what routing protocols mark their packets with (RFC 4594, network control)."""

ControlPlane = Literal["queue-7", "accept-starvation"]
"""Use of queue 7: only for control packets, without early drops or PFC, or an experiment's data may starve them."""
OnUnsupported = Literal["error", "degrade"]
"""The choice where a switch cannot do all of an intent: refuse, or do as its system declares instead. An alpha
and a minimum of all queues are no reason to refuse: a system that lacks them keeps its own, and results say so."""

LoadBalancing = Literal["flow-hash", "per-packet", "round-robin", "flowlet"]
"""How a switch chooses among equal-cost next hops: by a hash of the flow; at random, or in turn, for each packet; at
random for each burst of a flow that a pause parts from the one before."""
FLOWLET_GAP_S = 0.0005
"""The pause, unless an intent says otherwise: the 500 µs of CONGA (Alizadeh et al., SIGCOMM 2014)."""


def _existing_dscp(dscp: int) -> int:
    if not 0 <= dscp < CODEPOINTS:
        raise ValueError(f"DSCP {dscp} does not exist: codepoints are 0 to {CODEPOINTS - 1}")
    return dscp


def _existing_queue(number: int) -> int:
    if not 0 <= number < QUEUES:
        raise ValueError(f"queue {number} does not exist: queues are 0 to {QUEUES - 1}")
    return number


Dscp = Annotated[int, AfterValidator(_existing_dscp)]
QueueNumber = Annotated[int, AfterValidator(_existing_queue)]


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

    limit_bytes: the most that the queue holds; None = what the port and the shared buffer leave it.
    profiles: by drop precedence 0, 1, 2; None = tail drop only.
    averaging: profiles look at the backlog averaged with weight 2^-averaging a packet (RED, Floyd and Jacobson 1993);
    0 = at the instantaneous backlog.
    alpha: the queue may hold alpha times what is free of the switch's shared buffer (dynamic thresholds, Choudhury and
    Hahne 1998); None = as the intent says of all queues. Without a shared buffer it means nothing.
    weight: None = strict priority; else the queue shares what the strict ones leave with the other weighted queues, by
    weight (deficit round robin, in bytes).
    """

    reserved_bytes: Size = Field(default=0, alias="reserved")
    limit_bytes: Size | None = Field(default=None, alias="limit")
    profiles: tuple[DropProfile | None, DropProfile | None, DropProfile | None] = (None, None, None)
    averaging: int = Field(default=0, ge=0, le=MOST_AVERAGING)
    alpha: float | None = Field(default=None, gt=0, le=128)
    weight: int | None = Field(default=None, ge=1, le=64)


class Codepoint(Frozen):
    """Where a DSCP leads: a queue, and a drop precedence in it."""

    queue: int = Field(ge=0, lt=QUEUES)
    precedence: int = Field(default=0, ge=0, lt=PRECEDENCES)


def codepoint_of(dscp: int) -> Codepoint:
    """Codepoint of a DSCP (0 to 63) as in native/codepoint.h, for modules that may not call the C core: a test holds
    the two together for every value.
    """
    queue, precedence, odd = dscp >> 3, dscp >> 1 & 3, dscp & 1
    return Codepoint(queue=0) if odd or precedence >= PRECEDENCES else Codepoint(queue=queue, precedence=precedence)


class Pfc(Frozen):
    """Priority flow control: a switch whose port received more than xoff of a queue makes the sender of that link pause
    the queue until less than xon is left. queues: those that it holds for (lossless).

    headroom_bytes: room beyond xoff for what is under way when the pause is sent; None = as the switch works it out.
    watchdog_s: a queue that has been paused for so long drops what waits, until the pause is over; None = no watchdog.
    """

    queues: tuple[int, ...] = Field(min_length=1)
    xoff_bytes: Size = Field(alias="xoff")
    xon_bytes: Size = Field(alias="xon")
    headroom_bytes: Size | None = Field(default=None, alias="headroom")
    watchdog_s: Duration | None = Field(default=None, alias="watchdog", gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.xon_bytes > self.xoff_bytes:
            raise ValueError(f"xon {self.xon_bytes} B is above xoff {self.xoff_bytes} B")
        return self


class QosIntent(Frozen):
    """All of a port. A queue that is not named is a plain tail-drop queue.

    port_buffer_bytes: what all queues of a port hold together; a packet that would exceed it is dropped, unless
    its own queue is within its reserved bytes. shared_buffer_bytes: what all ports of a switch hold together beyond the
    reserved bytes of their queues, shared by dynamic thresholds; None = every port has its own buffer alone.
    alpha: of every queue without its own; None = as the system has it, 1 where that is ours. minimum_bytes: what every
    queue has reserved at the least. Both are of queues that may lose packets: chips keep lossless ones in another pool.
    load_balancing: of every switch; of one that switch_load_balancing names, what it says there. flowlet_gap_s: the
    pause that parts two flowlets. dscp: codepoints that lead elsewhere than codepoint.h says. control_plane and
    on_unsupported: of switches in a lab, see ControlPlane and OnUnsupported.
    """

    name: str
    port_buffer_bytes: Size = Field(alias="port_buffer")
    shared_buffer_bytes: Size | None = Field(default=None, alias="shared_buffer")
    alpha: float | None = Field(default=None, gt=0, le=128)
    minimum_bytes: Size = Field(default=0, alias="minimum")
    queues: dict[QueueNumber, QueueIntent] = Field(default_factory=dict)
    load_balancing: LoadBalancing = "flow-hash"
    switch_load_balancing: dict[str, LoadBalancing] = Field(default_factory=dict)
    flowlet_gap_s: Duration = Field(default=FLOWLET_GAP_S, alias="flowlet_gap", gt=0)
    pfc: Pfc | None = None
    dscp: dict[Dscp, Codepoint] = Field(default_factory=dict)
    control_plane: ControlPlane = "queue-7"
    on_unsupported: OnUnsupported = "error"

    @model_validator(mode="after")
    def _lossless_queues_exist(self) -> Self:
        queues = self.pfc.queues if self.pfc else ()
        for number in queues:
            _existing_queue(number)
        if len(set(queues)) < len(queues):
            raise ValueError(f"pfc names a queue twice: {', '.join(map(str, queues))}")
        return self

    @model_validator(mode="after")
    def _weighted_below_strict(self) -> Self:
        weighted = {number for number, queue in self.queues.items() if queue.weight is not None}
        if weighted != set(range(len(weighted))):
            raise ValueError(
                f"weighted queues are {sorted(weighted)}: they must be the lowest ones, from 0 on, without a gap"
            )
        return self

    @model_validator(mode="after")
    def _within_the_port(self) -> Self:
        for number, queue in self.queues.items():
            if queue.reserved_bytes > self.port_buffer_bytes:
                raise ValueError(f"queue {number} reserves more than the port's {self.port_buffer_bytes} B")
        return self

    def queue(self, number: int) -> QueueIntent:
        """The intent of a queue, named or not."""
        return self.queues.get(number, QueueIntent())

    def alpha_of(self, number: int) -> float:
        """Return a queue's threshold: times what is free of the shared buffer."""
        return self.alpha_said(number) or UNSAID_ALPHA

    def alpha_said(self, number: int) -> float | None:
        """Return the threshold that the queue, or else the intent, asks for; None = as the system has it."""
        return self.queue(number).alpha or (None if self.lossless(number) else self.alpha)

    def reserved_of(self, number: int) -> int:
        """Return the bytes of the buffer that are a queue's own: what it reserves, at the least the
        minimum of all queues, but no more than its limit."""
        queue_intent = self.queue(number)
        minimum_bytes = 0 if self.lossless(number) else self.minimum_bytes
        most_bytes = minimum_bytes if queue_intent.limit_bytes is None else queue_intent.limit_bytes
        return max(queue_intent.reserved_bytes, min(minimum_bytes, most_bytes))

    def lossless(self, number: int) -> bool:
        """Return whether PFC holds for a queue."""
        return self.pfc is not None and number in self.pfc.queues

    @property
    def reserved_bytes(self) -> int:
        """Bytes that all queues of a port have reserved."""
        return sum(self.reserved_of(number) for number in range(QUEUES))

    def codepoint(self, dscp: int) -> Codepoint:
        """Where a DSCP (0 to 63) leads."""
        return self.dscp.get(dscp) or codepoint_of(dscp)
