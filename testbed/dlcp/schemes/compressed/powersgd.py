"""PowerSGD over tuned TCP."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from dlcp.model.workload import Compression
from dlcp.schemes.compressed._base import BOTH_WAYS, CompressedTcp, step_share_of
from dlcp.transport.compression.powersgd import PowerSgd as Codes


class PowerSgd(CompressedTcp):
    """See dlcp.transport.compression.powersgd."""

    title: ClassVar[str] = "PowerSGD over TCP"
    paper: ClassVar[str] = (
        "Vogels et al., PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization, NeurIPS 2019"
    )
    mechanism: ClassVar[str] = (
        "A tensor, as a near-square matrix, is approximated by two factors of low rank; two rounds, each pushed and "
        "pulled; the error is fed back, the factor kept from iteration to iteration. Tensors that would grow travel as "
        "they are. Deviation: one matrix a bucket, as torch's batched hook, not one a layer."
    ) + BOTH_WAYS

    step_share: float = step_share_of(Codes.step_share)
    rank: int = Field(default=2, ge=1, description="columns of the factors")
    error_feedback: bool = Field(
        default=True, description="add what the factors left out to the next gradient; off loses it for good"
    )

    def compression(self) -> Compression:
        return Compression(method="powersgd", rank=self.rank, error_feedback=self.error_feedback)


SCHEME = PowerSgd
