"""The mailbox of a rank: its messages over any endpoint, each of which may lose what its pattern has planned.

A worker or server is written against it alone, so that the same classes run over TCP, over DLCP, in one process
(transport/in_process.py), and on any clock.
"""

from __future__ import annotations

from typing import Protocol

from dlcp.transport.contract.clock import HOST_CLOCK, Clock
from dlcp.transport.contract.endpoint import (
    Bound,
    Completion,
    Counts,
    Deadline,
    Endpoint,
    Leg,
    MessageKey,
    Placement,
    Values,
)


class Terms(Protocol):
    """The bounds of a job's messages: the same at every rank."""

    def bound(self, number: int, leg: Leg, iteration: int) -> Bound:
        """Return what a message of this number may lose in an iteration."""


class Mailbox:
    """One rank's messages. endpoint: where they travel. terms: what each may lose; None: what was declared. clock:
    where the rank reads the time. Any thread may send and expect; one thread takes."""

    def __init__(self, endpoint: Endpoint, terms: Terms | None = None, clock: Clock = HOST_CLOCK) -> None:
        self.clock = clock
        self._endpoint = endpoint
        self._terms = terms

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint, to agree tensors that no pattern has planned."""
        return self._endpoint

    def send(
        self,
        peer: int,
        key: MessageKey,
        data: Values,
        *,
        bound: Bound | None = None,
        contributors: Counts | None = None,
    ) -> None:
        """Send a message as Endpoint.send does. bound: in place of the one that the terms say."""
        self._endpoint.send(
            peer, key, data, bound=self.bound_of(key) if bound is None else bound, contributors=contributors
        )

    def expect(
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
        """Register where a message goes as Endpoint.receive does. bound: in place of the one that the terms say."""
        self._endpoint.receive(
            peer,
            key,
            buffer,
            placement=placement,
            bound=self.bound_of(key) if bound is None else bound,
            deadline=deadline,
            contributors=contributors,
        )

    def take(self, timeout_s: float) -> list[Completion]:
        """Return what is over at this end since the last call, as Endpoint.wait does."""
        return self._endpoint.wait(timeout_s)

    def bound_of(self, key: MessageKey) -> Bound | None:
        """Return what the terms let a message lose; None where there are no terms."""
        return None if self._terms is None else self._terms.bound(key.tensor, key.leg, key.iteration)
