"""PIAS: a message sinks from queue to queue as its bytes are sent; nothing is known of it beforehand."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, field_validator

from dlcp.model.experiment import Scaling
from dlcp.model.qos import QosIntent
from dlcp.model.transport.queues import MOST_DEMOTIONS
from dlcp.model.transport.settings import TransportSettings
from dlcp.model.units import Fraction
from dlcp.model.workload import Job, Workload
from dlcp.schemes.dctcp_udp import DctcpUdp
from dlcp.transport.contract.tensors import data_queues

PARTITION_BYTES = 4_096_000
"""Size of the parts into which BytePS cuts tensors; the message that the thresholds below are shares of."""
WEB_SEARCH_PACKETS = (759, 1132, 1456, 1737, 2010)
"""The authors' demotion thresholds in packets of 1460 B, for web search at load 0.9 (HKUST-SING/PIAS-NS2, scripts): the
first five of seven, for queue 7 is the control packets' here and queue 0 is left to others."""


class Pias(DctcpUdp):
    """Information-agnostic scheduling on DLCP's engine: a flow is a message.

    Deviations: ECN is marked by a queue's own backlog, not the port's; messages of a pair of hosts share one window;
    the sending host serves its queues strictly, too; control packets outrank all.
    """

    title: ClassVar[str] = "PIAS"
    paper: ClassVar[str] = "Bai et al., Information-Agnostic Flow Scheduling for Commodity Data Centers, NSDI 2015"
    mechanism: ClassVar[str] = (
        "Every message starts in the highest of the strict-priority queues; each time that it has sent so many bytes, "
        "its packets go one queue lower, so short messages overtake long ones. Rate by DCTCP, everything is delivered."
    )

    demote_after: tuple[Fraction, ...] = Field(
        default=tuple(round(packets * 1460 / PARTITION_BYTES, 3) for packets in WEB_SEARCH_PACKETS),
        description="shares of the job's bucket, after which a message's packets go one queue lower: as many queues as "
        "thresholds and one more; the default is the authors' for web search at load 0.9 against messages of 4 MB",
        min_length=1,
        max_length=MOST_DEMOTIONS,
    )
    bucket_bytes: int = Field(
        default=0, ge=0, description="what the shares are of; 0: the job's bucket, on the emulated wire"
    )

    @field_validator("demote_after")
    @classmethod
    def _growing(cls, shares: tuple[float, ...]) -> tuple[float, ...]:
        if list(shares) != sorted(set(shares)) or not shares[0] > 0:
            raise ValueError("thresholds must grow from one to the next, from above 0 on")
        return shares

    def queues(self) -> list[int]:
        """As many as there are thresholds, and one more."""
        return data_queues(len(self.demote_after) + 1)

    def for_job(self, job: Job, workload: Workload) -> Self:
        """The job's bucket where none is given."""
        return self.model_copy(update={"bucket_bytes": self.bucket_bytes or job.bucket_bytes})

    def intent(self, port_buffer_bytes: int) -> QosIntent:
        return super().intent(port_buffer_bytes).model_copy(update={"name": "pias"})

    def transport(self, scaling: Scaling) -> TransportSettings:
        """ValueError before a job filled the bucket in."""
        if not self.bucket_bytes:
            raise ValueError("thresholds are shares of a job's bucket: call for_job first")
        after = tuple(max(1, round(share * self.bucket_bytes)) for share in self.demote_after)
        return super().transport(scaling).model_copy(update={"demote_after_bytes": after})


SCHEME = Pias
