"""PowerSGD: a tensor as a near-square matrix M ≈ P·Qᵀ of low rank, by one step of power iteration from the last Q.

Vogels et al., NeurIPS 2019, with error feedback and warm start; the tensor as one matrix of ⌈√d⌉ columns and rows,
padded, as torch's batched_powerSGD_hook has it. Two rounds: the mean of P = M·Q, made orthonormal by every worker
alike, then the mean of Q = Mᵀ·P. Tensors for which that would be more than they are travel as they are.
"""

from __future__ import annotations

from math import isqrt

import numpy as np
from pydantic import Field

from dlcp.transport.compression._dense import Dense
from dlcp.transport.compression.base import Code, Compressor, Exchange, Knobs, Memory, Share, total_of
from dlcp.transport.contract.endpoint import Floats, Values

TINY = np.float32(1e-8)
"""Added to a column's length before it is divided by it, as in torch's hook where a gradient may be zero."""


class PowerSgdKnobs(Knobs):
    """Settings of PowerSgd."""

    rank: int = Field(default=2, ge=1, description="columns of the factors")
    error_feedback: bool = Field(
        default=True, description="add what the factors left out to the next gradient; off loses it for good"
    )


class PowerSgd(Compressor[PowerSgdKnobs]):
    """2 · rank · ⌈√d⌉ float32, both ways. Its step: rank 2 with momentum 0.9 diverges at fashion-mnist-mlp's whole
    learning rate, and converges at 0.3 of it."""

    title = "PowerSGD"
    paper = (
        "Vogels et al., PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization, NeurIPS 2019"
    )
    mechanism = (
        "A tensor, as a near-square matrix, is approximated by two factors of low rank; two rounds, each pushed and "
        "pulled; the error is fed back, the factor kept from iteration to iteration. Tensors that would grow travel as "
        "they are. Deviation: one matrix a bucket, as torch's batched hook, not one a layer."
    )
    knobs_class = PowerSgdKnobs
    step_share = 0.3

    def __init__(self, knobs: PowerSgdKnobs, share: Share) -> None:
        super().__init__(knobs, share)
        self._dense = Dense(knobs, share) if len(self.exchanges) == 1 else None
        self._side, self._rank = _side(share), knobs.rank
        self._memory = Memory(self._side**2 if share.worker >= 0 else 0, knobs.error_feedback)
        self._matrix = np.zeros((0, 0), np.float32)
        self._p = np.zeros((0, 0), np.float32)
        self._q = share.shared_random(0).standard_normal((self._side, self._rank), np.float32)

    @classmethod
    def plan(cls, knobs: PowerSgdKnobs, share: Share) -> tuple[Exchange, ...]:
        factor = Code(_side(share) * knobs.rank, "float32")
        if 2 * factor.elements >= share.elements:
            return Dense.plan(knobs, share)
        return Exchange(factor, factor), Exchange(factor, factor)

    def first(self, iteration: int, gradient: Floats) -> Values:
        if self._dense:
            return self._dense.first(iteration, gradient)
        padded = np.zeros(self._side**2, np.float32)
        padded[: gradient.size] = gradient
        self._matrix = self._memory.add_to(padded).reshape(self._side, self._side)
        return (self._matrix @ orthonormal(self._q)).reshape(-1)

    def next(self, iteration: int, number: int, answer: Values) -> Values:
        self._p = orthonormal(answer.reshape(self._side, self._rank))
        return np.ascontiguousarray(self._matrix.T @ self._p).reshape(-1)

    def decode(self, iteration: int, answer: Values) -> Floats:
        if self._dense:
            return self._dense.decode(iteration, answer)
        self._q = answer.reshape(self._side, self._rank).copy()
        approximated: Floats = self._p @ self._q.T
        self._memory.keep((self._matrix - approximated).reshape(-1))
        return approximated.reshape(-1)[: self.share.elements]

    def merge(self, iteration: int, number: int, codes: list[Values]) -> Values:
        return total_of(codes) / np.float32(self.share.workers)


def orthonormal(matrix: Floats) -> Floats:
    """Its columns made orthonormal one after the other (modified Gram-Schmidt); a fresh array."""
    found = matrix.copy()
    for column in range(found.shape[1]):
        own = found[:, column]
        own /= np.sqrt(own @ own) + TINY
        for other in range(column + 1, found.shape[1]):
            found[:, other] -= (own @ found[:, other]) * own
    return found


def _side(share: Share) -> int:
    return isqrt(share.elements - 1) + 1


COMPRESSOR = PowerSgd
