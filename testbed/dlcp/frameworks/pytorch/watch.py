"""A rank that fails tells the others, over the store: they stop at once and name the first cause."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

from torch._C._distributed_c10d import Store

from dlcp.transport.endpoint import Completion, TransportError
from dlcp.transport.engine import DlcpEndpoint

LISTEN_EVERY_S = 1.0
"""How often a rank for which nothing happens asks whether another has failed."""
_KEY = "alarm"


class Alarm:
    """One rank's side of it. store: of this group alone; its own connection, so that no one else's wait blocks it."""

    def __init__(self, store: Store, rank: int) -> None:
        self._store: Store | None = store.clone()  # type: ignore[attr-defined]
        self._rank = rank

    def sound(self, text: str) -> None:
        """Tell all ranks why this one failed; the first to do so is the one that is heard."""
        with contextlib.suppress(RuntimeError):  # the store went with the rank that is gone
            if self._store is not None:
                self._store.compare_set(_KEY, "", f"rank {self._rank}: {text}")

    def heard(self) -> str | None:
        """Why a rank failed; None when none has, or nobody can know because the store is gone."""
        with contextlib.suppress(RuntimeError):
            if self._store is not None and self._store.check([_KEY]):
                return str(self._store.get(_KEY).decode())
        return None

    def close(self) -> None:
        """Give the connection to the store back."""
        self._store = None


class WatchedEndpoint:
    """A DlcpEndpoint whose wait also ends when another rank has failed, and tells the others when this one fails."""

    def __init__(self, endpoint: DlcpEndpoint, alarm: Alarm) -> None:
        self.inner = endpoint
        self._alarm = alarm
        self._listen_at_s = 0.0
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
        """See Endpoint."""
        with self._closing:
            if self._last is None:
                self._last = self.inner.statistics()
                self.inner.close()

    def wait(self, timeout_s: float) -> list[Completion]:
        """See Endpoint."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            left_s = deadline_s - time.monotonic()
            try:
                found = self.inner.wait(min(LISTEN_EVERY_S, max(0.0, left_s)))
            except TransportError as error:
                self._alarm.sound(str(error))
                raise
            if found or left_s <= 0:
                return found
            if time.monotonic() >= self._listen_at_s:
                self._listen_at_s = time.monotonic() + LISTEN_EVERY_S
                if (text := self._alarm.heard()) is not None:
                    raise TransportError(f"another rank has failed: {text}")
