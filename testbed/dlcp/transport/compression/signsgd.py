"""signSGD with majority vote: a worker sends the sign of each value, the server the sign that most of them have.

Bernstein et al., ICML 2018; majority vote and momentum: signSGD with Majority Vote, ICLR 2019. With momentum the sign
is that of u ← m·u + (1 - m)·g (the papers' Signum), and the optimizer applies none. The step is the vote times the
learning rate, whatever the gradient's size, so its learning rate is another one: the job's times step_share. A tie,
which an even number of workers can have, falls to either side at random, as one bit has no zero.
"""

from __future__ import annotations

import numpy as np

from dlcp.transport.compression._packing import pack, packed_bytes, unpack
from dlcp.transport.compression.base import Code, Compressor, Exchange, Knobs, Share
from dlcp.transport.contract.endpoint import Floats, Values


class SignSgd(Compressor[Knobs]):
    """1 bit a value, both ways."""

    title = "signSGD with majority vote"
    paper = (
        "Bernstein et al., signSGD: Compressed Optimisation for Non-Convex Problems, ICML 2018; signSGD with Majority "
        "Vote is Communication Efficient and Fault Tolerant, ICLR 2019"
    )
    mechanism = (
        "A worker sends the sign of each value's momentum, 1 bit; the server answers with the majority's, 1 bit. No "
        "error feedback, as in the papers. A tie falls to either side at random."
    )
    own_momentum = True
    step_share = 0.01

    def __init__(self, knobs: Knobs, share: Share) -> None:
        super().__init__(knobs, share)
        self._momentum = np.zeros(share.elements if share.worker >= 0 else 0, np.float32)

    @classmethod
    def plan(cls, knobs: Knobs, share: Share) -> tuple[Exchange, ...]:
        bits = Code(packed_bytes(share.elements, 1), "uint8")
        return (Exchange(bits, bits),)

    def first(self, iteration: int, gradient: Floats) -> Values:
        self._momentum *= np.float32(self.share.momentum)
        self._momentum += np.float32(1 - self.share.momentum) * gradient
        return pack((self._momentum >= 0).view(np.uint8), 1)

    def decode(self, iteration: int, answer: Values) -> Floats:
        votes = unpack(answer, self.share.elements, 1).astype(np.float32)
        return 2 * votes - 1

    def merge(self, iteration: int, number: int, codes: list[Values]) -> Values:
        elements, workers = self.share.elements, len(codes)
        votes = np.zeros(elements, np.uint16)
        for code in codes:
            votes += unpack(code, elements, 1)
        votes *= 2
        if workers % 2 == 0:
            coins = np.frombuffer(self.share.own_random(iteration).bytes(packed_bytes(elements, 1)), np.uint8)
            votes += unpack(coins, elements, 1)
        return pack((votes > workers).view(np.uint8), 1)


COMPRESSOR = SignSgd
