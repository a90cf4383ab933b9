"""Random-k: all workers send the same k values, chosen anew in each iteration from a seed that they share.

Stich et al., Sparsified SGD with Memory, NeurIPS 2018; shared seed: Foroutan & Jaggi, Sparse Communication for Training
Deep Networks, arXiv 2009.09271. No index travels, and the mean of codes is the code of the mean. No momentum, as in
Stich et al.: a value that comes once in d / k iterations, with all that it has gathered, and then ten times more out of
the velocity, lets training diverge (measured with fashion-mnist-mlp at its learning rate, at 1, 5 and 10 %).
"""

from __future__ import annotations

import numpy as np

from dlcp.transport.compression._pairs import Indices
from dlcp.transport.compression.base import Code, Compressor, Exchange, Memory, MemoryKnobs, Share, total_of
from dlcp.transport.contract.endpoint import Floats, Values


class RandomK(Compressor[MemoryKnobs]):
    """4 bytes for each of k values, both ways. With error feedback values are sent as they are; without it times d / k,
    so that the mean over all choices is the gradient."""

    title = "Random-k gradients"
    paper = (
        "Stich et al., Sparsified SGD with Memory, NeurIPS 2018; shared seed: Foroutan & Jaggi, Sparse Communication "
        "for Training Deep Networks, arXiv 2009.09271"
    )
    mechanism = (
        "All workers send the values at the same random places, drawn again in each iteration from a seed that they "
        "share: 4 bytes each, no indices. "
        "The optimizer applies no momentum: with it values that are seldom sent let training diverge."
    )
    knobs_class = MemoryKnobs
    tolerates_loss = True
    own_momentum = True

    def __init__(self, knobs: MemoryKnobs, share: Share) -> None:
        super().__init__(knobs, share)
        self._memory = Memory(share.elements if share.worker >= 0 else 0, knobs.error_feedback)
        self._chosen: Indices = np.zeros(0, np.intp)

    @classmethod
    def plan(cls, knobs: MemoryKnobs, share: Share) -> tuple[Exchange, ...]:
        some = Code(knobs.kept(share.elements), "float32")
        return (Exchange(some, some),)

    def first(self, iteration: int, gradient: Floats) -> Values:
        whole = self._memory.add_to(gradient)
        chosen = self._chosen = self.chosen(iteration)
        code = whole[chosen]
        if not self.knobs.error_feedback:
            return code * np.float32(whole.size / len(chosen))
        whole[chosen] = 0
        self._memory.keep(whole)
        return code

    def decode(self, iteration: int, answer: Values) -> Floats:
        found = np.zeros(self.share.elements, np.float32)
        found[self._chosen] = answer
        return found

    def merge(self, iteration: int, number: int, codes: list[Values]) -> Values:
        return total_of(codes) / np.float32(self.share.workers)

    def chosen(self, iteration: int) -> Indices:
        """Which elements travel; the same at every rank."""
        elements = self.share.elements
        chosen = self.share.shared_random(iteration).choice(
            elements, self.knobs.kept(elements), replace=False, shuffle=False
        )
        return np.sort(chosen)


COMPRESSOR = RandomK
