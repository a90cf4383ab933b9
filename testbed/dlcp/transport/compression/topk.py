"""Top-k: each worker sends its largest values and where they are; the rest waits for the next iteration.

Aji & Heafield, Sparse Communication for Distributed Gradient Descent, EMNLP 2017; memory: Stich et al., NeurIPS 2018.
As GRACE codes it (facts: k = max(1, ratio·d), float32 value and int32 index). Their all-gather of all workers' pairs is
here the server's sum of them, which every worker pulls: the union, at most workers·k pairs.
"""

from __future__ import annotations

import numpy as np

from dlcp.transport.compression import _pairs as pairs
from dlcp.transport.compression.base import Code, Exchange, Memory, MemoryKnobs, Share
from dlcp.transport.contract.endpoint import Floats, Values


class TopK(pairs.PairsCompressor[MemoryKnobs]):
    """8 bytes for each of k values. Where codes have a fixed length the union travels at its largest."""

    title = "Top-k gradients"
    paper = (
        "Aji & Heafield, Sparse Communication for Distributed Gradient Descent, EMNLP 2017; memory: Stich et al., "
        "Sparsified SGD with Memory, NeurIPS 2018"
    )
    mechanism = (
        "A worker sends its largest values with their places (8 bytes each) and remembers the rest. Deviation: in "
        "place of an all-gather of all workers' pairs the server sums them, and workers pull the union of places."
    )
    knobs_class = MemoryKnobs
    tolerates_loss = True

    def __init__(self, knobs: MemoryKnobs, share: Share) -> None:
        super().__init__(knobs, share)
        self._memory = Memory(share.elements if share.worker >= 0 else 0, knobs.error_feedback)

    @classmethod
    def plan(cls, knobs: MemoryKnobs, share: Share) -> tuple[Exchange, ...]:
        k = knobs.kept(share.elements)
        return (Exchange(Code(2 * k, "float32"), pairs.union_code(k * share.workers, share.elements, share.fixed)),)

    def first(self, iteration: int, gradient: Floats) -> Values:
        whole = self._memory.add_to(gradient)
        k = self.knobs.kept(whole.size)
        largest = np.sort(np.argpartition(np.abs(whole), whole.size - k)[whole.size - k :])
        code = pairs.put(whole[largest], largest)
        whole[largest] = 0
        self._memory.keep(whole)
        return code


COMPRESSOR = TopK
