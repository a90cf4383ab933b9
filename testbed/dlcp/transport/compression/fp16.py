"""Half precision: every value in 16 bits, both ways.

As torch's fp16_compress_hook: a worker rounds its gradient ÷ workers, so that the sum does not overflow. The sum is
kept in float32 and rounded once; the hook's all-reduce rounds at every hop.
"""

from __future__ import annotations

import numpy as np

from dlcp.model.workload import Compression
from dlcp.transport.compression.base import Code, Compressor, Exchange, Share, total_of
from dlcp.transport.endpoint import Floats, Values


class Fp16(Compressor):
    """2 bytes a value. What is beyond 65504 becomes infinite, as in the hook."""

    @classmethod
    def plan(cls, knobs: Compression, share: Share) -> tuple[Exchange, ...]:
        half = Code(share.elements, "float16")
        return (Exchange(half, half),)

    def first(self, iteration: int, gradient: Floats) -> Values:
        with np.errstate(over="ignore"):
            return (gradient / np.float32(self.share.workers)).astype(np.float16)

    def decode(self, iteration: int, answer: Values) -> Floats:
        return answer.astype(np.float32)

    def merge(self, iteration: int, number: int, codes: list[Values]) -> Values:
        with np.errstate(over="ignore"):
            return total_of(codes).astype(np.float16)


COMPRESSOR = Fp16
