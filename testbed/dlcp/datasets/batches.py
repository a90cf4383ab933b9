"""Which samples a worker sees in an iteration."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt


def order(seed: int, worker: int, workers: int, batch: int, count: int, iteration: int) -> npt.NDArray[np.int64]:
    """Numbers of the samples, of `count`: a new shuffle every epoch, workers take turns in it."""
    together = workers * batch
    epoch, step = divmod(iteration, count // together)
    start = step * together + worker * batch
    return shuffle(seed, epoch, count)[start : start + batch]


@lru_cache(maxsize=2)
def shuffle(seed: int, epoch: int, count: int) -> npt.NDArray[np.int64]:
    """A permutation of all samples, the same at every worker."""
    return np.random.default_rng([seed, 6, epoch]).permutation(count)
