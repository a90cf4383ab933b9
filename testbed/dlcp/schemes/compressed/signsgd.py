"""signSGD with majority vote over tuned TCP."""

from __future__ import annotations

from typing import ClassVar

from dlcp.model.workload import Compression
from dlcp.schemes.compressed._base import BOTH_WAYS, CompressedTcp, step_share_of
from dlcp.transport.compression.signsgd import SignSgd as Codes


class SignSgd(CompressedTcp):
    """See dlcp.transport.compression.signsgd."""

    title: ClassVar[str] = "signSGD with majority vote over TCP"
    paper: ClassVar[str] = (
        "Bernstein et al., signSGD: Compressed Optimisation for Non-Convex Problems, ICML 2018; signSGD with Majority "
        "Vote is Communication Efficient and Fault Tolerant, ICLR 2019"
    )
    mechanism: ClassVar[str] = (
        "A worker sends the sign of each value's momentum, 1 bit; the server answers with the majority's, 1 bit. No "
        "error feedback, as in the papers. A tie falls to either side at random."
    ) + BOTH_WAYS

    step_share: float = step_share_of(Codes.step_share)

    def compression(self) -> Compression:
        return Compression(method="signsgd")


SCHEME = SignSgd
