"""Samples that a worker sees in an iteration."""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt


def order(seed: int, worker: int, workers: int, batch: int, count: int, iteration: int) -> npt.NDArray[np.int64]:
    """Numbers of the samples, of `count`: a new shuffle every epoch, workers take turns in it."""
    together = workers * batch
    epoch, step = divmod(iteration, count // together)
    start = step * together + worker * batch
    return shuffle(seed, epoch, count)[start : start + batch]


class Turn(Protocol):
    """Worker of a job that asks: see dlcp.agents.scripts.JobOptions."""

    @property
    def seed(self) -> int: ...

    @property
    def worker(self) -> int: ...

    @property
    def workers(self) -> int: ...

    @property
    def batch(self) -> int: ...

    @property
    def shards(self) -> str: ...


class Batches:
    """One worker's batches of samples that have classes: its turns among all samples, or among those of its classes."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._own: npt.NDArray[np.int64] | None = None

    def __call__(self, classes: npt.NDArray[np.int64], iteration: int) -> npt.NDArray[np.int64]:
        """Numbers of the samples of an iteration. classes: of every sample, the same in every call."""
        turn = self._turn
        if turn.shards != "by-class":
            return order(turn.seed, turn.worker, turn.workers, turn.batch, len(classes), iteration)
        if self._own is None:
            self._own = np.array_split(np.argsort(classes, kind="stable"), turn.workers)[turn.worker]
        # every worker goes through its own samples by itself, in an order of its own
        chosen = order(turn.seed + turn.worker, 0, 1, turn.batch, len(self._own), iteration)
        return self._own[chosen]


@lru_cache(maxsize=16)
def shuffle(seed: int, epoch: int, count: int) -> npt.NDArray[np.int64]:
    """A permutation of all samples, the same at every worker."""
    return np.random.default_rng([seed, 6, epoch]).permutation(count)
