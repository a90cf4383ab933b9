"""LTP's Early Close: a server does not wait for the last packets of a worker that takes longer than it used to."""

from __future__ import annotations

from dlcp.model.transport.loss import EarlyClose
from dlcp.transport.contract.endpoint import Completion, Deadline


class EarlyClosing:
    """When to close each worker's gradient of each tensor, from how long those before took: from a message's first
    packet to its end, which the deadline itself may have set. The first one has all the time it needs."""

    def __init__(self, rule: EarlyClose) -> None:
        self._rule = rule
        self._usual_s: dict[tuple[int, int], float] = {}

    def deadline(self, peer: int, tensor: int) -> Deadline | None:
        """Of the next message of a tensor from a worker; None while none was seen."""
        usual_s = self._usual_s.get((peer, tensor))
        if usual_s is None:
            return None
        return Deadline(self._rule.fraction, after_first_s=self._rule.slack * usual_s)

    def note(self, done: Completion) -> None:
        """A message is over at this end. Messages of which nothing came, and of transports that do not tell when the
        first packet came, teach nothing."""
        took_s = done.end_s - done.first_s
        if not done.first_s or took_s <= 0:
            return
        name = done.peer, done.key.tensor
        usual_s = self._usual_s.get(name, took_s)
        self._usual_s[name] = usual_s + self._rule.weight * (took_s - usual_s)
