"""QSGD: every value becomes one of 2·levels + 1 levels of its chunk's norm, at random, so that its mean is the value.

Alistarh et al., NeurIPS 2017. norm: the largest magnitude of the chunk, which the paper's experiments use (§4), or its
length, as in its theory. Levels are packed at a fixed number of bits; the paper's Elias coding pays only where most
levels are 0. In the paper every worker gets every other's code; here the server quantises the mean again in the same
way (unbiased too, and of the same size), as QSGD over parameter servers must.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from dlcp.transport.compression._packing import pack, packed_bytes, unpack
from dlcp.transport.compression.base import Code, Compressor, Exchange, Knobs, Share, total_of
from dlcp.transport.contract.endpoint import Floats, Values

NORM_BYTES = 4


class QsgdKnobs(Knobs):
    """Settings of Qsgd."""

    levels: int = Field(default=7, ge=1, le=127, description="levels on either side of 0: 7 take 4 bits a value")
    chunk: int = Field(default=512, ge=1, description="values that share a norm")
    norm: Literal["max", "l2"] = Field(
        default="max", description="what levels are shares of: the chunk's largest magnitude, or its length"
    )


class Qsgd(Compressor[QsgdKnobs]):
    """⌈log2(2·levels + 1)⌉ bits a value and 4 bytes a chunk, both ways."""

    title = "QSGD"
    paper = "Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding, NeurIPS 2017"
    mechanism = (
        "Each value becomes one of 2·levels + 1 levels of its chunk's norm at random, unbiased; packed without gaps. "
        "Deviations: a fixed number of bits for Elias codes; the server quantises the mean again, where the paper's "
        "workers broadcast their codes."
    )
    knobs_class = QsgdKnobs

    def __init__(self, knobs: QsgdKnobs, share: Share) -> None:
        super().__init__(knobs, share)
        self._chunks = -(-share.elements // knobs.chunk)
        self._bits = (2 * knobs.levels).bit_length()

    @classmethod
    def plan(cls, knobs: QsgdKnobs, share: Share) -> tuple[Exchange, ...]:
        size = NORM_BYTES * -(-share.elements // knobs.chunk)
        whole = Code(size + packed_bytes(share.elements, (2 * knobs.levels).bit_length()), "uint8")
        return (Exchange(whole, whole),)

    def first(self, iteration: int, gradient: Floats) -> Values:
        return self._quantised(gradient, iteration)

    def decode(self, iteration: int, answer: Values) -> Floats:
        return self._values(answer)

    def merge(self, iteration: int, number: int, codes: list[Values]) -> Values:
        mean = total_of([self._values(code) for code in codes]) / np.float32(self.share.workers)
        return self._quantised(mean, iteration)

    def _quantised(self, values: Floats, iteration: int) -> Values:
        levels = np.float32(self.knobs.levels)
        chunked = np.zeros((self._chunks, self.knobs.chunk), np.float32)
        chunked.reshape(-1)[: values.size] = values
        if self.knobs.norm == "max":
            norms = np.abs(chunked).max(axis=1)
        else:
            norms = np.sqrt(np.einsum("ij,ij->i", chunked, chunked))
        steps = np.divide(levels, norms, out=np.zeros_like(norms), where=norms > 0)
        scaled = chunked * steps[:, None]
        scaled += self.share.own_random(iteration).random(scaled.shape, np.float32)
        # floor(x + u) is ⌈x⌉ with the probability of x's fraction, for either sign.
        found = np.clip(np.floor(scaled), -levels, levels) + levels
        codes = found.astype(np.uint8).reshape(-1)[: values.size]
        return np.concatenate([norms.view(np.uint8), pack(codes, self._bits)])

    def _values(self, code: Values) -> Floats:
        split = NORM_BYTES * self._chunks
        steps = code[:split].view(np.float32) / np.float32(self.knobs.levels)
        levels = unpack(code[split:], self.share.elements, self._bits).astype(np.float32)
        levels -= np.float32(self.knobs.levels)
        return levels * np.repeat(steps, self.knobs.chunk)[: levels.size]


COMPRESSOR = Qsgd
