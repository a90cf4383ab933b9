"""No compression: what a method does with a tensor that it would only make larger."""

from __future__ import annotations

import numpy as np

from dlcp.transport.compression.base import Code, Compressor, Exchange, Knobs, Share, total_of
from dlcp.transport.contract.endpoint import Floats, Values


class Dense(Compressor[Knobs]):
    """Float32 both ways."""

    @classmethod
    def plan(cls, knobs: Knobs, share: Share) -> tuple[Exchange, ...]:
        vector = Code(share.elements, "float32")
        return (Exchange(vector, vector),)

    def first(self, iteration: int, gradient: Floats) -> Values:
        return gradient.copy()

    def decode(self, iteration: int, answer: Values) -> Floats:
        return answer.copy()

    def merge(self, iteration: int, number: int, codes: list[Values]) -> Values:
        return total_of(codes) / np.float32(self.share.workers)
