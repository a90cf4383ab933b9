"""Intervals that mean what they say, and refusals in words where the data cannot carry one.

Which interval was chosen and why: over 5 repeats a 95 % percentile bootstrap covers 84 %, Student's t 95 %, so
everything that is one number a run gets a t-interval. A tail quantile is a property of thousands of samples, and
gets a bootstrap over them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from dlcp.model.samples import too_few_for

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

CONFIDENCE = 0.95
MIN_REPEATS = 5
"""Fewer values than this get no interval: t at 2 to 4 values is so wide that any claim hangs on one run."""
MIN_BLOCKS_BEYOND = 10
"""Different iterations that those samples must come from: one burst delays many messages at once."""
RESAMPLES = 1000


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
        """Whether both ends are known."""
        return self.low is not None and self.high is not None


def mean_interval(values: Floats) -> Estimate:
    """The mean of one value a repeat, with Student's t-interval."""
    n = len(values)
    if n == 0:
        return Estimate(None, None, None, 0, "t", "no trusted run has it")
    mean = float(np.mean(values))
    if n < MIN_REPEATS:
        return Estimate(mean, None, None, n, "t", f"an interval needs {MIN_REPEATS} repeats, there are {n}")
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1) * np.std(values, ddof=1) / math.sqrt(n))
    return Estimate(mean, mean - half, mean + half, n, "t")


def paired_difference(ours: Floats, theirs: Floats) -> Estimate:
    """Mean of ours − theirs over pairs of the same seed, with the t-interval of the differences."""
    _same_length(ours, theirs)
    return _paired(mean_interval(ours - theirs))


def paired_ratio(ours: Floats, theirs: Floats) -> Estimate:
    """Geometric mean of ours / theirs over pairs of the same seed; a t-interval on the logarithm, mapped back.

    The logarithm makes "twice as fast" and "twice as slow" equally far from 1. Raises ValueError on values ≤ 0.
    """
    _same_length(ours, theirs)
    if np.any(ours <= 0) or np.any(theirs <= 0):
        raise ValueError("a ratio needs values above 0")
    log = _paired(mean_interval(np.log(ours / theirs)))
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
        beyond = round((1 - q) * len(samples), 6)
        slowest = blocks[np.argpartition(samples, len(samples) - int(beyond))[-int(beyond) :]]
        sources = len(np.unique(slowest))
        if sources < MIN_BLOCKS_BEYOND:
            return f"the {int(beyond)} samples beyond p{100 * q:g} come from only {sources} iterations"
    return ""


def quantile(samples: Floats, q: float) -> float:
    """The smallest sample that at least a share q of the samples does not exceed (a value that did occur)."""
    return float(np.quantile(samples, q, method="inverted_cdf"))


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
    ours: tuple[Floats, Integers], theirs: tuple[Floats, Integers], q: float, *, seed: int
) -> Estimate:
    """The ratio of two pooled quantiles, both resampled by blocks, independently of each other.

    For quantiles that single runs cannot carry. Pairing is not used, so the interval is rather too wide.
    """
    n = min(len(ours[0]), len(theirs[0]))
    why = refuse_quantile(*ours, q) or refuse_quantile(*theirs, q)
    if why:
        return Estimate(None, None, None, n, "bootstrap", why)
    draws = _resampled_quantiles(*ours, q, seed) / _resampled_quantiles(*theirs, q, seed + 1)
    low, high = np.quantile(draws, [0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2])
    return Estimate(quantile(ours[0], q) / quantile(theirs[0], q), float(low), float(high), n, "bootstrap")


def _resampled_quantiles(samples: Floats, blocks: Integers, q: float, seed: int) -> Floats:
    """The quantile of RESAMPLES draws of blocks with replacement.

    A draw gives each block a weight; only the slowest samples are walked, from the top down, until their weight
    exceeds the share 1 − q. Twice as many are taken when a draw needs more.
    """
    names, block_of = np.unique(blocks, return_inverse=True)
    sizes = np.bincount(block_of)
    generator = np.random.default_rng(seed)
    weights = generator.multinomial(len(names), np.full(len(names), 1 / len(names)), size=RESAMPLES)
    beyond = (1 - q) * (weights @ sizes) + 1e-9
    order = np.argsort(samples)[::-1]
    walked = math.ceil(3 * (1 - q) * len(samples))
    while True:
        top = order[:walked]
        found = np.empty(RESAMPLES)
        enough = len(top) == len(samples)
        for start in range(0, RESAMPLES, 100):
            part = slice(start, start + 100)
            reached = np.cumsum(weights[part][:, block_of[top]], axis=1) > beyond[part, None]
            found[part] = samples[top[np.argmax(reached, axis=1)]]
            if not (enough or reached[:, -1].all()):
                break
        else:
            return found
        walked *= 2
