"""Top-k gradients over tuned TCP."""

from __future__ import annotations

from typing import ClassVar

from dlcp.model.workload import Compression
from dlcp.schemes.compressed._base import BOTH_WAYS, RememberingTcp


class TopK(RememberingTcp):
    """See dlcp.transport.compression.topk."""

    title: ClassVar[str] = "Top-k gradients over TCP"
    paper: ClassVar[str] = (
        "Aji & Heafield, Sparse Communication for Distributed Gradient Descent, EMNLP 2017; memory: Stich et al., "
        "Sparsified SGD with Memory, NeurIPS 2018"
    )
    mechanism: ClassVar[str] = (
        "A worker sends its largest values with their places (8 bytes each) and remembers the rest. Deviation: in "
        "place of an all-gather of all workers' pairs the server sums them, and workers pull the union of places."
    ) + BOTH_WAYS

    def compression(self) -> Compression:
        return Compression(method="topk", ratio=self.ratio, error_feedback=self.error_feedback)


SCHEME = TopK
