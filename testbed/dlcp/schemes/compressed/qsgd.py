"""QSGD over tuned TCP."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from dlcp.model.workload import Compression
from dlcp.schemes.compressed._base import BOTH_WAYS, CompressedTcp


class Qsgd(CompressedTcp):
    """See dlcp.transport.compression.qsgd."""

    title: ClassVar[str] = "QSGD over TCP"
    paper: ClassVar[str] = (
        "Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding, NeurIPS 2017"
    )
    mechanism: ClassVar[str] = (
        "Each value becomes one of 2·levels + 1 levels of its chunk's norm at random, unbiased; packed without gaps. "
        "Deviations: a fixed number of bits for Elias codes; the server quantises the mean again, where the paper's "
        "workers broadcast their codes."
    ) + BOTH_WAYS

    levels: int = Field(default=7, ge=1, le=127, description="levels on either side of 0: 7 take 4 bits a value")
    chunk: int = Field(default=512, ge=1, description="values that share a norm")
    norm: Literal["max", "l2"] = Field(
        default="max", description="what levels are shares of: the chunk's largest magnitude, or its length"
    )

    def compression(self) -> Compression:
        return Compression(method="qsgd", levels=self.levels, chunk=self.chunk, norm=self.norm)


SCHEME = Qsgd
