"""Random-block: as random-k, but one contiguous block, which is copied where random-k gathers.

Foroutan & Jaggi, Sparse Communication for Training Deep Networks, arXiv 2009.09271. The block wraps round the tensor's
end, so that every value is as likely to be sent as any other.
"""

from __future__ import annotations

import numpy as np

from dlcp.transport.compression._pairs import Indices
from dlcp.transport.compression.randomk import RandomK


class RandomBlock(RandomK):
    """4 bytes for each of k values, both ways. Its step: 1 % diverges at fashion-mnist-mlp's whole learning rate, and
    converges at 0.3 of it as at 0.1."""

    title = "Random-block gradients"
    paper = "Foroutan & Jaggi, Sparse Communication for Training Deep Networks, arXiv 2009.09271"
    mechanism = (
        "All workers send the same contiguous block at a random offset, drawn from a seed that they share; it wraps "
        "round the tensor's end. The optimizer applies no momentum: with it values that are seldom sent let training "
        "diverge."
    )
    tolerates_loss = True
    step_share = 0.3

    def chosen(self, iteration: int) -> Indices:
        elements = self.share.elements
        start = int(self.share.shared_random(iteration).integers(elements))
        return (start + np.arange(self.knobs.kept(elements))) % elements


COMPRESSOR = RandomBlock
