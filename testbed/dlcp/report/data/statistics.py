"""Intervals that mean what they say, and refusals in words where the data cannot carry one.

Which interval was chosen and why: over 5 repeats a 95 % percentile bootstrap covers 84 %, Student's t 95 %, so
everything that is one number a run gets a t-interval. A tail quantile is a property of thousands of samples, and
gets a bootstrap over them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from dlcp.model.metrics import Metric
from dlcp.model.sample_size import too_few_for

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[Any]

CONFIDENCE = 0.95
MIN_REPEATS = 5
"""Fewer values than this get no interval: t at 2 to 4 values is so wide that any claim hangs on one run."""
MIN_BLOCKS_BEYOND = 10
"""Different iterations that those samples must come from: one burst delays many messages at once."""
RESAMPLES = 1000
RANKING_CHANCE = 0.8
"""With which so many more repeats would rank two schemes."""
MOST_REPEATS = 1000
"""Beyond these, two schemes are as good as equal."""


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % interval. What is missing is None, and `why` says it in words.

    n: repeats (t-intervals), pairs (paired ones) or samples (quantiles).
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    method: str
    why: str = ""

    @property
    def has_interval(self) -> bool:
        """True if both ends are known."""
        return self.low is not None and self.high is not None


@dataclass(frozen=True)
class Gain:
    """The subject scheme against another. The estimate is a ratio or a difference, as the metric says.

    verdict: "better", "worse" or "no clear difference" (the interval holds 1, or 0), "n/a" without an interval,
    "not judged" where no direction is good. repeats: how many in all would probably rank the two
    (repeats_to_rank); None: not known, or more than are worth their time.
    """

    metric: Metric
    subject: str
    against: str
    estimate: Estimate
    verdict: str
    repeats: int | None = None


def mean_interval(values: Floats, confidence: float = CONFIDENCE, fewest: int = MIN_REPEATS) -> Estimate:
    """The mean of one value a repeat, with Student's t-interval where there are `fewest` (at least 2) of them."""
    n = len(values)
    if n == 0:
        return Estimate(None, None, None, 0, "t", "no trusted run has it")
    mean = float(np.mean(values))
    if n < fewest:
        return Estimate(mean, None, None, n, "t", f"an interval needs {fewest} repeats, there are {n}")
    half = float(stats.t.ppf(0.5 + confidence / 2, n - 1) * np.std(values, ddof=1) / math.sqrt(n))
    return Estimate(mean, mean - half, mean + half, n, "t")


def paired_difference(
    ours: Floats, theirs: Floats, confidence: float = CONFIDENCE, fewest: int = MIN_REPEATS
) -> Estimate:
    """Mean of ours − theirs over pairs of the same seed, with the t-interval of the differences."""
    _same_length(ours, theirs)
    return _paired(mean_interval(ours - theirs, confidence, fewest))


def paired_ratio(ours: Floats, theirs: Floats, confidence: float = CONFIDENCE, fewest: int = MIN_REPEATS) -> Estimate:
    """Geometric mean of ours / theirs over pairs of the same seed; a t-interval on the logarithm, mapped back.

    The logarithm makes "twice as fast" and "twice as slow" equally far from 1. Raises ValueError on values ≤ 0.
    """
    _same_length(ours, theirs)
    _above_0(ours, theirs)
    return _exponential(_paired(mean_interval(np.log(ours / theirs), confidence, fewest)))


def unpaired_difference(ours: Floats, theirs: Floats, confidence: float = CONFIDENCE) -> Estimate:
    """Mean of ours − mean of theirs, with Welch's t-interval: for runs that share no seeds."""
    n = min(len(ours), len(theirs))
    if n == 0:
        return Estimate(None, None, None, 0, "Welch t", "no trusted run on one side")
    value = float(np.mean(ours) - np.mean(theirs))
    if n < MIN_REPEATS:
        return Estimate(value, None, None, n, "Welch t", f"an interval needs {MIN_REPEATS} repeats, there are {n}")
    interval = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(confidence)
    low, high = (float(end) if math.isfinite(end) else value for end in (interval.low, interval.high))
    return Estimate(value, low, high, n, "Welch t")


def unpaired_ratio(ours: Floats, theirs: Floats, confidence: float = CONFIDENCE) -> Estimate:
    """Ratio of the geometric means, with Welch's t-interval on the logarithms. Raises ValueError on values ≤ 0."""
    _above_0(ours, theirs)
    return _exponential(unpaired_difference(np.log(ours), np.log(theirs), confidence))


def repeats_to_rank(differences: Floats) -> int | None:
    """How many pairs would tell the two apart with a chance of RANKING_CHANCE, if mean and spread of the differences
    are as measured; None: more than MOST_REPEATS, or unknown (fewer than two, or no difference at all).

    The t-approximation of a paired test's power: |mean| ≥ (t(0.975, n−1) + t(0.8, n−1)) · s / √n.
    """
    if len(differences) < 2:
        return None
    mean, spread = abs(float(np.mean(differences))), float(np.std(differences, ddof=1))
    n = np.arange(MIN_REPEATS, MOST_REPEATS + 1)
    needed = (stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1) + stats.t.ppf(RANKING_CHANCE, n - 1)) * spread / np.sqrt(n)
    enough = n[mean >= needed]
    return int(enough[0]) if mean > 0 and len(enough) else None


def _above_0(ours: Floats, theirs: Floats) -> None:
    if np.any(ours <= 0) or np.any(theirs <= 0):
        raise ValueError("a ratio needs values above 0")


def _exponential(log: Estimate) -> Estimate:
    value, low, high = (None if end is None else math.exp(end) for end in (log.value, log.low, log.high))
    return Estimate(value, low, high, log.n, log.method, log.why)


def _paired(estimate: Estimate) -> Estimate:
    why = estimate.why.replace("repeats", "pairs").replace("no trusted run has it", "no pair of trusted runs has it")
    return Estimate(estimate.value, estimate.low, estimate.high, estimate.n, "paired t", why)


def _same_length(ours: Floats, theirs: Floats) -> None:
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} and {len(theirs)} values are not pairs")


def refuse_quantile(samples: Floats, blocks: Integers, q: float) -> str:
    """Why these samples cannot carry the quantile q; empty when they can.

    Rule: at least MIN_BEYOND samples beyond it, from at least MIN_BLOCKS_BEYOND iterations. `blocks` names each
    sample's iteration.
    """
    if why := too_few_for(q, len(samples)):
        return why
    if q > 0.9:
        beyond = int(round((1 - q) * len(samples), 6))
        sources = len(np.unique(blocks[_largest(samples, beyond)]))
        if sources < MIN_BLOCKS_BEYOND:
            return f"the {beyond} samples beyond p{100 * q:g} come from only {sources} iterations"
    return ""


def _largest(samples: Floats, count: int) -> npt.NDArray[np.intp]:
    """Indices of the `count` largest samples, the largest first. Ascending samples cost nothing."""
    n = len(samples)
    count = min(count, n)
    if _ascending(samples):
        return np.arange(n - 1, n - 1 - count, -1)
    indices = np.argpartition(samples, n - count)[n - count :]
    order: npt.NDArray[np.intp] = indices[np.argsort(-samples[indices], kind="stable")]
    return order


def _ascending(samples: Floats) -> bool:
    return bool(np.all(samples[1:] >= samples[:-1]))


def quantile(samples: Floats, q: float) -> float:
    """The smallest sample that at least a share q of the samples does not exceed (a value that did occur)."""
    return float(quantiles(samples, np.array([q]))[0])


def quantiles(samples: Floats, levels: Floats) -> Floats:
    """Such a quantile at each level."""
    ordered = samples if _ascending(samples) else np.sort(samples)
    at = np.maximum(np.ceil(len(ordered) * levels - 1), 0).astype(np.int64)
    return ordered[at]


def quantile_interval(samples: Floats, blocks: Integers, q: float, *, seed: int) -> Estimate:
    """A quantile of the pooled samples, with a 95 % percentile interval from a block bootstrap.

    blocks: for each sample the number of the (run, iteration) it belongs to. Whole iterations are drawn again,
    not single samples: one incast burst delays many messages of an iteration, and treating those as independent
    gives intervals several times too narrow (measured: 33 % coverage). Whole runs would be right too, but five of them
    are too few. Measured coverage on log-normal bursts: 91 % when the slow samples come from 38 iterations, 88 %
    from 23, 82 % from 15, 72 % from 5, hence MIN_BLOCKS_BEYOND; a claim that hangs on the last per cent needs more.
    """
    why = refuse_quantile(samples, blocks, q)
    if why:
        return Estimate(None, None, None, len(samples), "bootstrap", why)
    draws = _resampled_quantiles(samples, blocks, q, seed)
    low, high = np.quantile(draws, [0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2])
    return Estimate(quantile(samples, q), float(low), float(high), len(samples), "bootstrap")


def quantile_ratio_interval(
    ours: tuple[Floats, Integers],
    theirs: tuple[Floats, Integers],
    q: float,
    *,
    seed: int,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The ratio of two pooled quantiles, both resampled by blocks, independently of each other.

    For quantiles that single runs cannot carry. Pairing is not used, so the interval is rather too wide.
    """
    n = min(len(ours[0]), len(theirs[0]))
    why = refuse_quantile(*ours, q) or refuse_quantile(*theirs, q)
    if why:
        return Estimate(None, None, None, n, "bootstrap", why)
    draws = _resampled_quantiles(*ours, q, seed) / _resampled_quantiles(*theirs, q, seed + 1)
    low, high = np.quantile(draws, [0.5 - confidence / 2, 0.5 + confidence / 2])
    return Estimate(quantile(ours[0], q) / quantile(theirs[0], q), float(low), float(high), n, "bootstrap")


def _resampled_quantiles(samples: Floats, blocks: Integers, q: float, seed: int) -> Floats:
    """The quantile of RESAMPLES draws of blocks with replacement.

    A draw gives each block a weight; only the slowest samples are walked, from the top down, until their weight
    exceeds the share 1 − q. Twice as many are taken when a draw needs more.
    """
    names, block_of = _numbered(blocks)
    sizes = np.bincount(block_of, minlength=names)
    weights = _weights(names, seed)
    beyond = (1 - q) * (weights @ sizes) + 1e-9
    walked = math.ceil(3 * (1 - q) * len(samples))
    while True:
        top = _largest(samples, walked)
        positions = _walk(weights, block_of[top], beyond)
        if positions is not None:
            return samples[top[positions]]
        walked *= 2


def _numbered(blocks: Integers) -> tuple[int, Integers]:
    """How many blocks there are, and each sample's as 0, 1, …"""
    last = int(blocks.max())
    if int(blocks.min()) >= 0 and last < 10 * len(blocks) + 1000 and np.bincount(blocks).all():
        return last + 1, blocks
    names, numbered = np.unique(blocks, return_inverse=True)
    return len(names), numbered.astype(np.int64)


@lru_cache(maxsize=4)
def _weights(blocks: int, seed: int) -> Floats:
    """How often each draw takes each block, a row a draw. The same for the same number of blocks: reports repeat."""
    drawn = np.random.default_rng(seed).multinomial(blocks, np.full(blocks, 1 / blocks), size=RESAMPLES)
    return drawn.astype(np.float64)


def _walk(weights: Floats, block_of: Integers, beyond: Floats) -> npt.NDArray[np.intp] | None:
    """For each draw the first sample, from the top, at which the weights so far exceed `beyond`; None if one does not.

    In two steps, because draws × samples would be a matrix of millions: the stretch of samples that holds it, by how
    many samples of each block every stretch has, then the sample within.
    """
    draws, blocks = weights.shape
    length = max(64, math.isqrt(len(block_of)))
    stretches = -(-len(block_of) // length)
    cell = np.arange(len(block_of)) // length * blocks + block_of
    counts = np.bincount(cell, minlength=stretches * blocks).reshape(stretches, blocks)
    reached = np.cumsum(weights @ counts.T, axis=1)
    if not (reached[:, -1] > beyond).all():
        return None
    stretch = np.argmax(reached > beyond[:, None], axis=1)
    before = np.where(stretch > 0, reached[np.arange(draws), stretch - 1], 0.0)
    at = stretch[:, None] * length + np.arange(length)
    inside = at < len(block_of)
    taken = weights[np.arange(draws)[:, None], block_of[np.minimum(at, len(block_of) - 1)]] * inside
    within = np.argmax(before[:, None] + np.cumsum(taken, axis=1) > beyond[:, None], axis=1)
    positions: npt.NDArray[np.intp] = stretch * length + within
    return positions
