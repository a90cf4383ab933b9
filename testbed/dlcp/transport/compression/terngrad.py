"""TernGrad: every value becomes -s, 0 or +s at random, so that its mean is the value.

Wen et al., NeurIPS 2017: gradients are clipped at 2.5 σ of their layer (§3.3; σ about zero, for a small tensor's own
mean may be far from it), s is the largest magnitude of all
workers (scaler sharing, §3.2: a first round of one number each), and as all workers share s, the server's sum has
2·workers + 1 levels, which is what they pull. Layer-wise in the paper; here tensor by tensor, as they travel.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from dlcp.transport.compression._packing import MOST_BITS, pack, packed_bytes, unpack
from dlcp.transport.compression.base import Code, Compressor, Exchange, Knobs, Share
from dlcp.transport.contract.endpoint import Floats, Values

TERNARY_BITS = 2
MOST_WORKERS = (1 << MOST_BITS - 1) - 1


class TernGradKnobs(Knobs):
    """Settings of TernGrad."""

    clip_sigmas: float = Field(
        default=2.5, gt=0, description="gradients are clipped at so many standard deviations of their tensor"
    )


class TernGrad(Compressor[TernGradKnobs]):
    """2 bits a value to the server (the paper's 16 ×; log2 3 would need arithmetic coding), ⌈log2(2·workers + 1)⌉ bits
    a value back, and 4 bytes each way before."""

    title = "TernGrad"
    paper = "Wen et al., TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep Learning, NeurIPS 2017"
    mechanism = (
        "Each value becomes -s, 0 or +s at random (2 bits), unbiased but for clipping; all workers share s, so the sum "
        "has 2·workers + 1 levels, which is what they pull. s takes a round of its own, of one number a worker."
    )
    knobs_class = TernGradKnobs

    def __init__(self, knobs: TernGradKnobs, share: Share) -> None:
        super().__init__(knobs, share)
        self._clipped = np.zeros(0, np.float32)
        self._scale = np.float32(0)

    @classmethod
    def plan(cls, knobs: TernGradKnobs, share: Share) -> tuple[Exchange, ...]:
        if share.workers > MOST_WORKERS:
            raise ValueError(f"terngrad packs the sum of at most {MOST_WORKERS} workers, not of {share.workers}")
        one = Code(1, "float32")
        push = Code(packed_bytes(share.elements, TERNARY_BITS), "uint8")
        pull = Code(packed_bytes(share.elements, _sum_bits(share.workers)), "uint8")
        return Exchange(one, one), Exchange(push, pull)

    def first(self, iteration: int, gradient: Floats) -> Values:
        clip = np.float32(self.knobs.clip_sigmas) * np.sqrt(np.mean(np.square(gradient)))
        self._clipped = np.clip(gradient, -clip, clip)
        largest: Values = np.abs(self._clipped).max(keepdims=True)
        return largest

    def next(self, iteration: int, number: int, answer: Values) -> Values:
        self._scale = answer[0]
        if not self._scale > 0:
            return pack(np.ones(self.share.elements, np.uint8), TERNARY_BITS)
        thresholds = self.share.own_random(iteration).random(self.share.elements, np.float32) * self._scale
        kept = np.abs(self._clipped) > thresholds
        ternary = np.where(kept, np.where(self._clipped > 0, np.uint8(2), np.uint8(0)), np.uint8(1))
        return pack(ternary, TERNARY_BITS)

    def decode(self, iteration: int, answer: Values) -> Floats:
        share = self.share
        levels = unpack(answer, share.elements, _sum_bits(share.workers)).astype(np.float32)
        return (levels - np.float32(share.workers)) * (self._scale / np.float32(share.workers))

    def merge(self, iteration: int, number: int, codes: list[Values]) -> Values:
        if number == 0:
            largest: Values = np.max(codes, axis=0)
            return largest
        # Each worker's 0, 1, 2 stand for -1, 0, +1: their sum is the level, counted from -workers.
        total = np.zeros(self.share.elements, np.uint8)
        for code in codes:
            total += unpack(code, self.share.elements, TERNARY_BITS)
        return pack(total, _sum_bits(self.share.workers))


def _sum_bits(workers: int) -> int:
    return (2 * workers).bit_length()


COMPRESSOR = TernGrad
