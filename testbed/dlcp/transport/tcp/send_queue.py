"""What a TCP sender has in hand: in which order messages to one peer leave, and how much may be under way to all."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dlcp.transport.contract.endpoint import MessageKey


@dataclass
class Outgoing:
    """A message on its way out: what of it is left to send. size_bytes: of its elements. acknowledges: it is no message
    of its own, but tells the peer that the one of this name has come."""

    key: MessageKey
    parts: list[memoryview]
    size_bytes: int
    start_s: float
    acknowledges: bool = False
    begun: bool = field(default=False, init=False)


Order = Callable[[Outgoing], Any]
"""The smaller goes first; of equals, the one that was handed over first."""


def first_in_first_out(message: Outgoing) -> Any:
    """All are equal."""
    return 0


def front_first(message: Outgoing) -> Any:
    """Acknowledgements, then the oldest iteration, then the tensor nearest to the input: what the next forward pass
    waits for first. By iteration first, or what a ring's last hops hold would wait behind the next iteration."""
    return not message.acknowledges, message.key.iteration, message.key.tensor, message.key.step


class Outbox:
    """Messages to one peer that the kernel has not taken whole. What it has begun to take goes on to its end."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._messages: list[Outgoing] = []

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Outgoing]:
        return iter(self._messages)

    def add(self, message: Outgoing) -> None:
        """Put a message in its place."""
        begun = 1 if self._messages and self._messages[0].begun else 0
        insort(self._messages, message, lo=begun, key=self._order)

    def parts(self, most: int) -> list[memoryview]:
        """What is to be sent next, in order."""
        found: list[memoryview] = []
        for message in self._messages:
            found += message.parts
            if len(found) >= most:
                break
        return found[:most]

    def sent(self, count: int) -> list[Outgoing]:
        """The kernel took so many bytes of them; returns the messages that it has now taken whole."""
        whole = 0
        while whole < len(self._messages) and (count or not self._messages[whole].parts):
            message = self._messages[whole]
            message.begun = True
            count = _advance(message.parts, count)
            whole += not message.parts
        done, self._messages = self._messages[:whole], self._messages[whole:]
        return done


class CreditWindow:
    """ByteScheduler's credit: how many bytes of messages to all peers together may have been given to their outboxes
    and not yet be said to have come. What waits does so in order; nothing overtakes a message that does not fit.

    A message of more than the whole credit goes alone.
    """

    def __init__(self, limit_bytes: int, order: Order) -> None:
        self._limit_bytes = limit_bytes
        self._order = order
        self._waiting: list[tuple[int, Outgoing]] = []
        self._under_way: dict[tuple[int, MessageKey], int] = {}
        self._under_way_bytes = 0
        self.most_under_way_bytes = 0

    def add(self, peer: int, message: Outgoing) -> list[tuple[int, Outgoing]]:
        """A message to a peer; returns those that may go now, and to whom."""
        insort(self._waiting, (peer, message), key=lambda entry: self._order(entry[1]))
        return self._release()

    def came(self, peer: int, key: MessageKey) -> list[tuple[int, Outgoing]]:
        """A message has come, says the peer: as `add`. KeyError when none of this name was under way to it."""
        self._under_way_bytes -= self._under_way.pop((peer, key))
        return self._release()

    def waiting_for(self, peer: int) -> list[MessageKey]:
        """What is held back, of one peer."""
        return [message.key for to, message in self._waiting if to == peer]

    def _release(self) -> list[tuple[int, Outgoing]]:
        free: list[tuple[int, Outgoing]] = []
        while self._waiting:
            peer, message = self._waiting[0]
            if self._under_way and self._under_way_bytes + message.size_bytes > self._limit_bytes:
                break
            free.append(self._waiting.pop(0))
            self._under_way[peer, message.key] = message.size_bytes
            self._under_way_bytes += message.size_bytes
        self.most_under_way_bytes = max(self.most_under_way_bytes, self._under_way_bytes)
        return free


def _advance(parts: list[memoryview], sent: int) -> int:
    """Take sent bytes off the front of parts; returns what of them belongs to the next message."""
    while parts and sent >= len(parts[0]):
        sent -= len(parts.pop(0))
    if parts and sent:
        parts[0] = parts[0][sent:]
        sent = 0
    return sent
