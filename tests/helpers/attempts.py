"""Tests that compare times, which others' work on the machine makes late."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")
ATTEMPTS = 5


def several_attempts(test: Callable[P, None]) -> Callable[P, None]:
    """Let a test fail only if its assertions fail ATTEMPTS times in a row: a thread that a busy machine makes late is
    late once, a rule that is broken is broken each time."""

    @functools.wraps(test)
    def attempted(*args: P.args, **kwargs: P.kwargs) -> None:
        for _ in range(ATTEMPTS - 1):
            try:
                return test(*args, **kwargs)
            except AssertionError:
                continue
        return test(*args, **kwargs)

    return attempted
