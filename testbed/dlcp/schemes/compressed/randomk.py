"""Random-k gradients over tuned TCP."""

from __future__ import annotations

from typing import ClassVar

from dlcp.model.workload import Compression
from dlcp.schemes.compressed._base import BOTH_WAYS_NO_MOMENTUM, RememberingTcp


class RandomK(RememberingTcp):
    """See dlcp.transport.compression.randomk."""

    title: ClassVar[str] = "Random-k gradients over TCP"
    paper: ClassVar[str] = (
        "Stich et al., Sparsified SGD with Memory, NeurIPS 2018; shared seed: Foroutan & Jaggi, Sparse Communication "
        "for Training Deep Networks, arXiv 2009.09271"
    )
    mechanism: ClassVar[str] = (
        "All workers send the values at the same random places, drawn anew in each iteration from a seed that they "
        "share: 4 bytes each, no indices."
    ) + BOTH_WAYS_NO_MOMENTUM

    def compression(self) -> Compression:
        return Compression(method="randomk", ratio=self.ratio, error_feedback=self.error_feedback)


SCHEME = RandomK
