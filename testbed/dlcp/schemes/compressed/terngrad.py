"""TernGrad over tuned TCP."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from dlcp.model.workload import Compression
from dlcp.schemes.compressed._base import BOTH_WAYS, CompressedTcp


class TernGrad(CompressedTcp):
    """See dlcp.transport.compression.terngrad."""

    title: ClassVar[str] = "TernGrad over TCP"
    paper: ClassVar[str] = (
        "Wen et al., TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep Learning, NeurIPS 2017"
    )
    mechanism: ClassVar[str] = (
        "Each value becomes -s, 0 or +s at random (2 bits), unbiased but for clipping; all workers share s, so the sum "
        "has 2·workers + 1 levels, which is what they pull. s takes a round of its own, of one number a worker."
    ) + BOTH_WAYS

    clip_sigmas: float = Field(
        default=2.5, gt=0, description="gradients are clipped at so many standard deviations of their tensor"
    )

    def compression(self) -> Compression:
        return Compression(method="terngrad", clip_sigmas=self.clip_sigmas)


SCHEME = TernGrad
