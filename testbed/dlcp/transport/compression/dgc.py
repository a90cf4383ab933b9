"""Deep Gradient Compression: top-k of what has accumulated, momentum corrected, threshold sampled, sparsity warmed up.

Lin et al., ICLR 2018. A worker keeps u ← m·u + g and v ← v + u, sends v above a threshold, and clears both there
(momentum correction §3.1, factor masking §3.3); the optimizer applies no momentum. The threshold is the top-k of a
sample of 1 %, lowered up to 10 times by 0.7 while it keeps less than 0.7 of the target (as GRACE codes it); where it
keeps more than 1.3 of it, the target's largest of those (the paper's hierarchical selection; GRACE raises the
threshold, which falls into a loop once the values just below the last threshold have piled up). The share that is kept
falls from ratio^(1/5) in steps to ratio over the first part of training (75 %, 93.75 %, 98.4 %, 99.6 %, 99.9 % sparse
at the paper's ratio). Not here: clipping of local gradients, which the paper uses for its recurrent models.
"""

from __future__ import annotations

from math import ceil

import numpy as np
from pydantic import Field

from dlcp.model.units import Fraction
from dlcp.transport.compression import _pairs as pairs
from dlcp.transport.compression.base import Code, Exchange, Share, SparseKnobs
from dlcp.transport.contract.endpoint import Floats, Values

STAGES = 5
"""Of the sparsity, the last of which holds after the warm-up (paper §3.3: four epochs of warm-up)."""
SAMPLED = 0.01
FEWEST_SAMPLED = 256
"""Below, a sample's top-k says little: smaller tensors are looked at whole."""
CORRECTIONS = 10
FEWEST, MOST = 0.7, 1.3
"""Of the target, what a threshold may keep."""
LOWERED = 0.7
"""What a threshold that keeps too few is multiplied with."""


class DgcKnobs(SparseKnobs):
    """Settings of Dgc."""

    ratio: Fraction = Field(
        default=0.001, gt=0, lt=0.5, description="share of a tensor's values that is sent after the warm-up"
    )
    warmup: Fraction = Field(
        default=0.1,
        description="share of the training over which the share sent falls in four steps from its fifth root "
        "(the paper: 4 epochs, 25 % to 0.1 %)",
    )


class Dgc(pairs.PairsCompressor[DgcKnobs]):
    """8 bytes for each value that is sent; at most 1.3 times the target of them."""

    title = "Deep Gradient Compression"
    paper = "Lin et al., Deep Gradient Compression, ICLR 2018"
    mechanism = (
        "Workers accumulate gradients with momentum, send what exceeds a sampled threshold and clear it there; "
        "sparsity grows over a warm-up. Deviations: the server sums the pairs and workers pull the union; local "
        "gradients are not clipped."
    )
    knobs_class = DgcKnobs
    own_momentum = True

    def __init__(self, knobs: DgcKnobs, share: Share) -> None:
        super().__init__(knobs, share)
        held = share.elements if share.worker >= 0 else 0
        self._velocity = np.zeros(held, np.float32)
        self._accumulated = np.zeros(held, np.float32)

    @classmethod
    def plan(cls, knobs: DgcKnobs, share: Share) -> tuple[Exchange, ...]:
        most = max(_most(cls._target(knobs, share, iteration)) for iteration in (0, share.iterations))
        most = min(most, share.elements)
        union = pairs.union_code(most * share.workers, share.elements, share.fixed)
        return (Exchange(Code(2 * most, "float32", variable=True), union),)

    def first(self, iteration: int, gradient: Floats) -> Values:
        self._velocity *= np.float32(self.share.momentum)
        self._velocity += gradient
        self._accumulated += self._velocity
        sent = self._largest(iteration)
        code = pairs.put(self._accumulated[sent], sent)
        self._accumulated[sent] = 0
        self._velocity[sent] = 0
        return code

    def _largest(self, iteration: int) -> pairs.Indices:
        """About the target of largest magnitudes: never more than the code has room for."""
        magnitudes = np.abs(self._accumulated)
        target = self._target(self.knobs, self.share, iteration)
        sample = magnitudes
        if magnitudes.size * SAMPLED >= FEWEST_SAMPLED:
            positions = self.share.own_random(iteration).integers(magnitudes.size, size=int(SAMPLED * magnitudes.size))
            sample = magnitudes[positions]
        wanted = max(1, round(target * sample.size / magnitudes.size))
        threshold = np.partition(sample, sample.size - wanted)[sample.size - wanted]
        found = np.flatnonzero(magnitudes >= threshold)
        for _ in range(CORRECTIONS):
            if len(found) >= FEWEST * target:
                break
            threshold *= np.float32(LOWERED)
            found = np.flatnonzero(magnitudes >= threshold)
        if len(found) > _most(target):
            order = np.argpartition(magnitudes[found], len(found) - target)
            found = np.sort(found[order[len(found) - target :]])
        return found

    @staticmethod
    def _target(knobs: DgcKnobs, share: Share, iteration: int) -> int:
        """How many values an iteration should send."""
        warm = knobs.warmup * share.iterations
        stage = STAGES if iteration >= warm else 1 + int(iteration / warm * (STAGES - 1))
        return max(1, int(knobs.ratio ** (stage / STAGES) * share.elements))


def _most(target: int) -> int:
    return ceil(MOST * target)


COMPRESSOR = Dgc
