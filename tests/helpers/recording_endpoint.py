"""An endpoint that notes every call of its rank, whatever the rank itself makes known of its messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dlcp.transport.contract.declarations import Declaration
from dlcp.transport.contract.endpoint import (
    RELIABLE,
    Bound,
    Completion,
    Counts,
    Deadline,
    Droppable,
    Dtype,
    Endpoint,
    MessageKey,
    Placement,
    Values,
)


@dataclass(frozen=True)
class Call:
    """One message that was sent, or for which a buffer was registered. placement: of a receive."""

    received: bool
    peer: int
    key: MessageKey
    size_bytes: int
    bound: Bound | None
    placement: Placement | None = None


class RecordingEndpoint:
    """An Endpoint over another one. declared, calls: in their order."""

    def __init__(self, below: Endpoint) -> None:
        self._below = below
        self.declared: list[Declaration] = []
        self.calls: list[Call] = []

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
        self.declared.append(
            Declaration(tensor, elements, queue, droppable, must_arrive, push_bound, pull_bound, dtype, variable)
        )
        self._below.declare(
            tensor,
            elements,
            queue=queue,
            droppable=droppable,
            must_arrive=must_arrive,
            push_bound=push_bound,
            pull_bound=pull_bound,
            dtype=dtype,
            variable=variable,
        )

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
        self.calls.append(Call(True, peer, key, buffer.nbytes, bound, placement))
        self._below.receive(
            peer, key, buffer, placement=placement, bound=bound, deadline=deadline, contributors=contributors
        )

    def send(
        self,
        peer: int,
        key: MessageKey,
        data: Values,
        *,
        bound: Bound | None = None,
        contributors: Counts | None = None,
    ) -> None:
        self.calls.append(Call(False, peer, key, data.nbytes, bound))
        self._below.send(peer, key, data, bound=bound, contributors=contributors)

    def wait(self, timeout_s: float) -> list[Completion]:
        return self._below.wait(timeout_s)

    def statistics(self) -> dict[str, Any]:
        return self._below.statistics()

    def close(self) -> None:
        self._below.close()
