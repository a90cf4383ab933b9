"""A rank that fails, ends or leaves is noticed by the others: they stop at once and name the first cause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from dlcp.frameworks.pytorch.failure.failure_ring import Notice, Place, WatchRing
from dlcp.transport.contract.endpoint import Completion, TransportError
from dlcp.transport.dlcp_endpoint import DlcpEndpoint

LISTEN_EVERY_S = 0.1
"""How often a rank for which nothing happens looks whether another has failed."""


class Alarm:
    """Failures and departures in a group, as one rank knows them and tells the others.

    progress: what ranks count, in words: all_reduces, or iterations. wanted: how far this rank has to get with the
    help of all others; one that left before is missed.
    """

    def __init__(self, rank: int, size: int, address: str, progress: str = "all_reduce") -> None:
        self.wanted: Callable[[], int] = lambda: 0
        self._rank = rank
        self._progress = progress
        self._cause: str | None = None
        self._left: dict[int, int] = {}
        self._lock = threading.Lock()
        self._ring = WatchRing(rank, size, address) if size > 1 else None

    @property
    def place(self) -> Place | None:
        """Where the other ranks connect; None in a group of one."""
        return self._ring.place if self._ring else None

    def join(self, cookie: int, places: list[Place]) -> None:
        """Begin to hear of the others. places: of all ranks."""
        if self._ring:
            self._ring.join(cookie, places, self._hear, self._note_end)

    def sound(self, why: str) -> str:
        """Tell all ranks why this one failed. Returns the first cause that this rank knows: this or another."""
        return self._set_cause(f"rank {self._rank} failed: {why.removeprefix(f'rank {self._rank}: ')}")

    def leave(self, done: int) -> None:
        """Tell all ranks that this one leaves, and how far it has come with them."""
        if self._ring and self._cause is None:
            self._ring.say({"rank": self._rank, "left": done})

    def heard(self) -> str | None:
        """Why this rank cannot go on: what failed first, or who left too early; None when nothing is known."""
        wanted = self.wanted()  # takes a lock of its own
        with self._lock:
            if self._cause is not None:
                return self._cause
            missed = [(done, rank) for rank, done in self._left.items() if done < wanted]
        if not missed:
            return None
        done, rank = min(missed)
        return f"rank {rank} left the group after {self._progress} {done}"

    def close(self) -> None:
        """Give thread and connections back. Safe to call twice."""
        if self._ring:
            self._ring.close()

    def _set_cause(self, text: str) -> str:
        with self._lock:
            is_first = self._cause is None
            self._cause = self._cause or text
            cause = self._cause
        if is_first and self._ring:
            self._ring.say({"rank": self._rank, "cause": text})
        return cause

    def _hear(self, notice: Notice) -> bool:
        rank = int(notice["rank"])
        with self._lock:
            if "left" in notice:
                is_news = rank not in self._left and rank != self._rank
                self._left.setdefault(rank, int(notice["left"]))
                return is_news
            is_news = self._cause is None
            self._cause = self._cause or str(notice["cause"])
            return is_news

    def _note_end(self, rank: int) -> bool:
        with self._lock:
            has_left = rank in self._left
        if not has_left:
            self._set_cause(f"rank {rank} is gone: its process ended without leaving the group")
        return not has_left


class WatchedEndpoint:
    """A DlcpEndpoint whose wait also ends when another rank has failed, and tells the others when this one fails.

    name: how an error calls the endpoint of a number, where these are not the ranks.
    """

    def __init__(self, endpoint: DlcpEndpoint, alarm: Alarm, name: Callable[[str], str] = lambda text: text) -> None:
        self.inner = endpoint
        self.alarm = alarm
        self._name = name
        self.declare = endpoint.declare
        self.receive = endpoint.receive
        self.send = endpoint.send
        self._last: dict[str, Any] | None = None
        self._closing = threading.Lock()

    def statistics(self) -> dict[str, Any]:
        """See Endpoint; once it is closed, as of then."""
        with self._closing:
            return self.inner.statistics() if self._last is None else self._last

    def close(self) -> None:
        """See Endpoint. Once the group has failed, at once."""
        with self._closing:
            if self._last is None:
                self._last = self.inner.statistics()
                self.inner.close(linger=self.alarm.heard() is None)

    def wait(self, timeout_s: float) -> list[Completion]:
        """See Endpoint."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            left_s = deadline_s - time.monotonic()
            try:
                found = self.inner.wait(min(LISTEN_EVERY_S, max(0.0, left_s)))
            except TransportError as error:
                raise TransportError(self.alarm.sound(self._name(str(error)))) from None
            if found:
                return found
            if (cause := self.alarm.heard()) is not None:
                raise TransportError(cause)
            if left_s <= 0:
                return found
