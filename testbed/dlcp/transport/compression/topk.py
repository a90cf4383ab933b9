"""Top-k: each worker sends its largest values and where they are; the rest waits for the next iteration.

Aji & Heafield, Sparse Communication for Distributed Gradient Descent, EMNLP 2017; memory: Stich et al., NeurIPS 2018.
As GRACE codes it (facts: k = max(1, ratio·d), float32 value and int32 index). Their all-gather of all workers' pairs is
here the server's sum of them, which every worker pulls: the union, at most workers·k pairs.
"""

from __future__ import annotations

import numpy as np

from dlcp.model.workload import Compression
from dlcp.transport.compression import pairs
from dlcp.transport.compression.base import Code, Exchange, Memory, Share
from dlcp.transport.contract.endpoint import Floats, Values


def kept(knobs: Compression, elements: int) -> int:
    """k: how many values of a tensor a sparse method keeps."""
    return max(1, int(knobs.ratio * elements))


class TopK(pairs.PairsCompressor):
    """8 bytes for each of k values. A transport that knows no shorter messages carries the union at its largest."""

    def __init__(self, knobs: Compression, share: Share) -> None:
        super().__init__(knobs, share)
        self._memory = Memory(share.elements if share.worker >= 0 else 0, knobs.error_feedback)

    @classmethod
    def plan(cls, knobs: Compression, share: Share) -> tuple[Exchange, ...]:
        k = kept(knobs, share.elements)
        return (Exchange(Code(2 * k, "float32"), pairs.union_code(k * share.workers, share.elements, share.fixed)),)

    def first(self, iteration: int, gradient: Floats) -> Values:
        whole = self._memory.add_to(gradient)
        k = kept(self.knobs, whole.size)
        largest = np.sort(np.argpartition(np.abs(whole), whole.size - k)[whole.size - k :])
        code = pairs.put(whole[largest], largest)
        whole[largest] = 0
        self._memory.keep(whole)
        return code


COMPRESSOR = TopK
