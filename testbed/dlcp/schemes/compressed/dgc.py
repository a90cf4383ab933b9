"""Deep Gradient Compression over tuned TCP."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from dlcp.model.units import Fraction
from dlcp.model.workload import Compression
from dlcp.schemes.compressed._base import BOTH_WAYS, SparseTcp


class Dgc(SparseTcp):
    """See dlcp.transport.compression.dgc."""

    title: ClassVar[str] = "Deep Gradient Compression over TCP"
    paper: ClassVar[str] = "Lin et al., Deep Gradient Compression, ICLR 2018"
    mechanism: ClassVar[str] = (
        "Workers accumulate gradients with momentum, send what exceeds a sampled threshold and clear it there; "
        "sparsity grows over a warm-up. Deviations: the server sums the pairs and workers pull the union; local "
        "gradients are not clipped."
    ) + BOTH_WAYS

    ratio: Fraction = Field(
        default=0.001, gt=0, lt=0.5, description="share of a tensor's values that is sent after the warm-up"
    )
    warmup: Fraction = Field(
        default=0.1,
        description="share of the training over which the share sent falls in four steps from its fifth root "
        "(the paper: 4 epochs, 25 % to 0.1 %)",
    )

    def compression(self) -> Compression:
        return Compression(method="dgc", ratio=self.ratio, warmup_share=self.warmup)


SCHEME = Dgc
