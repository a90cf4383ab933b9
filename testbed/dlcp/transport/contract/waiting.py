"""Bounded waits: whoever waits for messages gives up in the end, and says what was missing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dlcp.transport.contract.clock import HOST_CLOCK, Clock
from dlcp.transport.contract.endpoint import TransportError

STALL_TIMEOUT_S = 60.0
"""A rank that sees nothing complete for this long in lab time, while it waits, gives up and says what is missing."""
_NAMED = 4
"""How many missing messages an error names."""


@dataclass
class Patience:
    """How long a rank waits: stall_timeout_s without anything new, and not beyond the instant give_up_at_s
    of the clock."""

    stall_timeout_s: float = STALL_TIMEOUT_S
    give_up_at_s: float = math.inf
    clock: Clock = HOST_CLOCK

    def wait_until(
        self, done: Callable[[], bool], progress: Callable[[float], bool], missing: Callable[[], list[str]]
    ) -> None:
        """Call progress until done() holds.

        progress: waits for something new for at most so many seconds, takes it, and returns whether there was any.
        missing: the messages that are waited for, in words. TransportError when patience is over.
        """
        while not done():
            left_s = self.give_up_at_s - self.clock.now_s()
            found = progress(max(0.0, min(self.stall_timeout_s, left_s)))
            if (not found or left_s <= 0) and not done():
                timely = left_s > self.stall_timeout_s
                why = f"nothing completed for {self.stall_timeout_s:g} s" if timely else "out of time"
                raise TransportError(f"{why}; waiting for {some_of(missing())}")


def some_of(missing: list[str]) -> str:
    """The first few of what is missing, and how many more there are."""
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    return f"{', '.join(missing[:_NAMED])}{more}"
