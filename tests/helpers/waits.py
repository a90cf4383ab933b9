"""Waits of tests, each with a limit: `time.sleep` is left to delays that are what a test plants."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
WITHIN_S = 20.0
"""The usual limit: far more than anything takes on a busy machine."""
EVERY_S = 0.01


def in_time(ask: Callable[[], T], within_s: float = WITHIN_S, every_s: float = EVERY_S) -> T:
    """Ask until the answer is true or the time is over; return the last answer."""
    deadline_s = time.monotonic() + within_s
    while not (answer := ask()) and time.monotonic() < deadline_s:
        time.sleep(every_s)
    return answer


def wait_until(ask: Callable[[], T], what: str, within_s: float = WITHIN_S, every_s: float = EVERY_S) -> T:
    """Ask until the answer is true, and return it. AssertionError, which names what was waited for, when it is late."""
    answer = in_time(ask, within_s, every_s)
    assert answer, f"not within {within_s:g} s: {what}"
    return answer


def settled(ask: Callable[[], T], for_s: float = 0.1, within_s: float = WITHIN_S) -> T:
    """Return the answer once it has been the same for a time: the kernel's list of threads, a moment after they end."""
    deadline_s = time.monotonic() + within_s
    answer, since_s = ask(), time.monotonic()
    while time.monotonic() < since_s + for_s:
        time.sleep(EVERY_S)
        if (now := ask()) != answer:
            answer, since_s = now, time.monotonic()
        assert time.monotonic() < deadline_s, f"not the same for {for_s:g} s within {within_s:g} s: {answer}"
    return answer
