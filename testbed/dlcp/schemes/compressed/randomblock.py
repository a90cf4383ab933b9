"""Random-block gradients over tuned TCP."""

from __future__ import annotations

from typing import ClassVar

from dlcp.model.workload import Compression
from dlcp.schemes.compressed._base import BOTH_WAYS_NO_MOMENTUM, RememberingTcp, step_share_of
from dlcp.transport.compression.randomblock import RandomBlock as Codes


class RandomBlock(RememberingTcp):
    """See dlcp.transport.compression.randomblock."""

    title: ClassVar[str] = "Random-block gradients over TCP"
    paper: ClassVar[str] = "Foroutan & Jaggi, Sparse Communication for Training Deep Networks, arXiv 2009.09271"
    mechanism: ClassVar[str] = (
        "All workers send the same contiguous block at a random offset, drawn from a seed that they share; it wraps "
        "round the tensor's end."
    ) + BOTH_WAYS_NO_MOMENTUM

    step_share: float = step_share_of(Codes.step_share)

    def compression(self) -> Compression:
        return Compression(method="randomblock", ratio=self.ratio, error_feedback=self.error_feedback)


SCHEME = RandomBlock
