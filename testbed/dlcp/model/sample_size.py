"""How many samples a quantile needs before it is quoted: one rule for reports and benches."""

from __future__ import annotations

import math

MIN_BEYOND = 10
"""Samples that must lie beyond a quantile before it is quoted: 1000 samples for p99, 10000 for p99.9."""


def too_few_for(q: float, samples: int) -> str:
    """Why so many samples cannot carry the quantile q; empty when they can."""
    if round((1 - q) * samples, 6) >= MIN_BEYOND:
        return ""
    return f"p{100 * q:g} needs {math.ceil(round(MIN_BEYOND / (1 - q), 6))} samples, there are {samples}"
