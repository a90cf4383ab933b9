"""The clock of a rank: where a pattern's workers and servers read the time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Instants and CPU time, in seconds."""

    def now_s(self) -> float:
        """Return the instant, on the clock that the transport's completions give."""

    def thread_s(self) -> float:
        """Return the CPU time that the calling thread has used."""


class HostClock:
    """This host's clocks: CLOCK_MONOTONIC, and the kernel's account of the thread."""

    def now_s(self) -> float:
        """See Clock."""
        return time.monotonic()

    def thread_s(self) -> float:
        """See Clock."""
        return time.thread_time()


HOST_CLOCK = HostClock()
