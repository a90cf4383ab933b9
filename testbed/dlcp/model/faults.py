"""Faults of the fabric during a run, on a timeline that counts from the job's start, in emulated seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from dlcp.model.base import Frozen
from dlcp.model.topology import Graph
from dlcp.model.units import Duration, Fraction, Rate, show_duration, show_fraction, show_rate


class _Fault(Frozen):
    """at_s: when it begins. for_s: how long it lasts; None = to the end of the run."""

    at_s: Duration = Field(alias="at")
    for_s: Duration | None = Field(default=None, alias="for", gt=0)

    @property
    def end_s(self) -> float:
        """When it is over, to a nanosecond; infinite when it lasts to the end of the run."""
        return math.inf if self.for_s is None else round(self.at_s + self.for_s, 9)

    @property
    def when(self) -> str:
        """In words."""
        lasts = "to the end of the run" if self.for_s is None else f"for {show_duration(self.for_s)}"
        return f"from {show_duration(self.at_s)} of the job, {lasts}"


class LinkDown(_Fault):
    """A cable is cut: nothing crosses it in either direction, and what was on its way is lost.

    link: its two nodes. reroute_after_s: how long the switches take to choose other next hops, and to come back when
    the link is up again; None = they never notice.
    """

    kind: Literal["link-down"]
    link: tuple[str, str]
    reroute_after_s: Duration | None = Field(default=None, alias="reroute_after")

    @property
    def ends(self) -> tuple[str, str]:
        """The two nodes of the link that it happens to."""
        return self.link

    @property
    def what(self) -> str:
        """In words."""
        return f"cut of {' – '.join(self.link)}"


class GrayFailure(_Fault):
    """A random share of the packets that cross a link in one direction is lost, without any notice."""

    kind: Literal["gray-failure"]
    source: str = Field(alias="from")
    sink: str = Field(alias="to")
    loss: Fraction = Field(gt=0)

    @property
    def ends(self) -> tuple[str, str]:
        """Sender and receiver."""
        return self.source, self.sink

    @property
    def what(self) -> str:
        """In words."""
        return f"{show_fraction(self.loss)} loss from {self.source} → {self.sink}"


class RateDrop(_Fault):
    """A link runs at a lower rate in both directions, as after a bad negotiation. link: its two nodes."""

    kind: Literal["rate-drop"]
    link: tuple[str, str]
    rate_bps: Rate = Field(alias="rate")

    @property
    def ends(self) -> tuple[str, str]:
        """The two nodes of the link that it happens to."""
        return self.link

    @property
    def what(self) -> str:
        """In words."""
        return f"drop to {show_rate(self.rate_bps)} of {' – '.join(self.link)}"


class QueueFrozen(_Fault):
    """A switch port sends nothing from one queue, as under a storm of PFC pause frames. port: switch and neighbour."""

    kind: Literal["queue-frozen"]
    port: tuple[str, str]
    queue: int = Field(ge=0, le=7)

    @property
    def ends(self) -> tuple[str, str]:
        """The switch whose port it is, and the neighbour that it leads to."""
        return self.port

    @property
    def what(self) -> str:
        """In words."""
        return f"frozen queue {self.queue} of {' → '.join(self.port)}"


FaultKind = LinkDown | GrayFailure | RateDrop | QueueFrozen
Fault = Annotated[FaultKind, Field(discriminator="kind")]


def exclude(one: FaultKind, other: FaultKind) -> bool:
    """Return true if two faults cannot be in force at once: they happen to one link, but for losses in its two
    directions and freezes of different queues.
    """
    if set(one.ends) != set(other.ends):
        return False
    if isinstance(one, GrayFailure) and isinstance(other, GrayFailure):
        return one.ends == other.ends
    if isinstance(one, QueueFrozen) and isinstance(other, QueueFrozen):
        return (one.port, one.queue) == (other.port, other.queue)
    return True


def mean_rate_bps(faults: Sequence[FaultKind], graph: Graph, a: str, b: str, duration_s: float) -> float:
    """Rate that a link could carry over the job, its rate drops taken off."""
    rate_bps = graph.link_rate_bps(a, b)
    missing_bits = 0.0
    for fault in faults:
        if isinstance(fault, RateDrop) and set(fault.link) == {a, b}:
            lasts_s = max(0.0, min(duration_s, fault.end_s) - fault.at_s)
            missing_bits += (rate_bps - fault.rate_bps) * lasts_s
    return rate_bps - missing_bits / duration_s
