"""Exact bands of a share (Clopper and Pearson 1934), without scipy: switches are verified where no reports are made."""

from __future__ import annotations

import math

import numpy as np

FALSE_ALARM = 0.01
"""How often, at most, any band of a QoS intent that is done exactly misses by chance alone: shared out evenly over all
bands of its verification (Bonferroni). A row deviates only when it does so in two of again.TRIES."""
_HALVINGS = 40


def band(hits: int, trials: int, alpha: float) -> tuple[float, float]:
    """The shares that `hits` of `trials` are compatible with; each end is wrong with probability alpha / 2 at most."""
    if trials == 0:
        return 0.0, 1.0
    return _low(hits, trials, alpha), 1 - _low(trials - hits, trials, alpha)


def _low(hits: int, trials: int, alpha: float) -> float:
    """The share of which so many hits or more have the probability alpha / 2."""
    if hits == 0:
        return 0.0
    k = np.arange(hits)
    logs = np.concatenate(([0.0], np.cumsum(np.log((trials - k[1:] + 1) / k[1:]))))  # of the binomial coefficients
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        fewer = float(np.exp(logs + k * math.log(middle) + (trials - k) * math.log1p(-middle)).sum())
        low, high = (middle, high) if 1 - fewer < alpha / 2 else (low, middle)
    return (low + high) / 2
