"""Half precision: every value in 16 bits, both ways.

As torch's fp16_compress_hook: a worker rounds its gradient ÷ workers, so that the sum does not overflow. The sum is
kept in float32 and rounded once; the hook's all-reduce rounds at every hop.
"""

from __future__ import annotations

import numpy as np

from dlcp.transport.compression.base import Code, Compressor, Exchange, Knobs, Share, total_of
from dlcp.transport.contract.endpoint import Floats, Values

SMALLEST_NORMAL = np.float32(2.0**-14)
LAST_BIT_2_24 = np.float32(0.75)
"""With anything small added, a float32 from 1/2 to 1: its last bit is 2^-24."""


class Fp16(Compressor[Knobs]):
    """2 bytes a value. What is beyond 65504 becomes infinite, as in the hook."""

    title = "Half-precision gradients"
    paper = "Micikevicius et al., Mixed Precision Training, ICLR 2018; as torch's fp16_compress_hook"
    mechanism = (
        "Every gradient value travels in 16 bits, divided by the number of workers before it is rounded. Deviation: "
        "the server sums in 32 bits and rounds once, where an all-reduce rounds at every hop."
    )
    tolerates_loss = True

    @classmethod
    def plan(cls, knobs: Knobs, share: Share) -> tuple[Exchange, ...]:
        half = Code(share.elements, "float16")
        return (Exchange(half, half),)

    def first(self, iteration: int, gradient: Floats) -> Values:
        return to_half(gradient / np.float32(self.share.workers))

    def decode(self, iteration: int, answer: Values) -> Floats:
        return answer.astype(np.float32)

    def merge(self, iteration: int, number: int, codes: list[Values]) -> Values:
        return to_half(total_of(codes))


def to_half(values: Floats) -> Values:
    """Rounded to the nearest float16, ties to even.

    Values below float16's normal ones are rounded beforehand, to the multiples of 2^-24 that it has there, by a sum
    whose last bit that is: numpy takes 60 ns for each of them that it has to round itself, 5 ns for any other.
    """
    small = np.abs(values) < SMALLEST_NORMAL
    with np.errstate(over="ignore"):
        return np.where(small, (values + LAST_BIT_2_24) - LAST_BIT_2_24, values).astype(np.float16)


COMPRESSOR = Fp16
