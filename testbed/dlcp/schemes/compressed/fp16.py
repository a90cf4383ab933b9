"""Half-precision gradients over tuned TCP."""

from __future__ import annotations

from typing import ClassVar

from dlcp.model.workload import Compression
from dlcp.schemes.compressed._base import BOTH_WAYS, CompressedTcp


class Fp16(CompressedTcp):
    """See dlcp.transport.compression.fp16."""

    title: ClassVar[str] = "Half-precision gradients over TCP"
    paper: ClassVar[str] = "Micikevicius et al., Mixed Precision Training, ICLR 2018; as torch's fp16_compress_hook"
    mechanism: ClassVar[str] = (
        "Every gradient value travels in 16 bits, divided by the number of workers before it is rounded. Deviation: "
        "the server sums in 32 bits and rounds once, where an all-reduce rounds at every hop."
    ) + BOTH_WAYS

    def compression(self) -> Compression:
        return Compression(method="fp16")


SCHEME = Fp16
