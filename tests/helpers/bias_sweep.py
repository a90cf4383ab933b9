"""A sweep over time dilations that is made again where it is in doubt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dlcp.runner.machine.invariance import Options, Trial, summary, sweep
from dlcp.runner.planning.check import Ready

ATTEMPTS = 2
"""Sweeps at most, each with seeds of its own; they are judged together. The mean of two repeats is off by 3 % in one of
some hundred cells, whatever the machine does; that of four is not."""


def judged(
    ready: Ready, options: Options, before_each: Callable[[], None] = lambda: None
) -> tuple[dict[str, Any], list[Trial]]:
    """Return the summary and the trials of one sweep, or of two where the first has a false verdict or a reference that
    is not believed. before_each: called before each sweep."""
    verdicts: dict[str, Any] = {}
    trials: list[Trial] = []
    for attempt in range(ATTEMPTS):
        before_each()
        more = replace(options, first=attempt * options.repeats)
        trials += sweep(ready, more, lambda share, text: None, lambda trial: None)
        verdicts = summary(ready, options, trials)
        if not (verdicts["untrusted"] or verdicts["false_ok"]):
            break
    return verdicts, trials
