"""ByteScheduler: partitions, a credit of bytes under way, front layers first, over tuned TCP."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field

from dlcp.model.experiment import Scaling
from dlcp.model.qos import QosIntent
from dlcp.model.transport.settings import TransportSettings
from dlcp.model.units import Size
from dlcp.model.workload import Job, Workload
from dlcp.schemes.base import UnfitError
from dlcp.schemes.tcp_tuned import TcpTuned
from dlcp.transport.contract.tensors import TOLERANCE

DEFAULT_CREDIT_PARTITIONS = 4
"""The original's defaults: partitions of 1,000,000 parameters, a credit of 4,000,000 (bytescheduler/common/bytecore.py
of bytedance/byteps)."""


class ByteScheduler(TcpTuned):
    """A generic communication scheduler. Round a ring the credit holds for the hops of the reduce-scatter.

    Deviations: the original lets a partition go while any credit is left, so that up to a partition more than the
    credit is under way; it searches both knobs by Bayesian optimisation while the job runs, here `dlcp tune` searches a
    grid before; layers smaller than a partition are fused up to it, with the priority of their front-most layer. As in
    the original credit is the worker's own: parameters on their way back wait for none, only in order.
    """

    title: ClassVar[str] = "ByteScheduler over TCP"
    paper: ClassVar[str] = (
        "Peng et al., A Generic Communication Scheduler for Distributed DNN Training Acceleration, SOSP 2019"
    )
    mechanism: ClassVar[str] = (
        "Layers are cut into partitions; a worker has at most `credit` bytes of gradients under way, and the partition "
        "nearest to the model's input goes first whenever the receiver says that one has come. Differs from the "
        "original: the credit is never exceeded, its search is a grid before the runs, small layers are fused."
    )

    partition: Size | None = Field(
        default=None,
        gt=0,
        description="bytes of a partition on the emulated wire, as the job's `bucket` (which it is by default)",
    )
    credit: Size | None = Field(
        default=None,
        gt=0,
        description="bytes of gradients that a worker may have under way to all servers together; by default "
        f"{DEFAULT_CREDIT_PARTITIONS} partitions",
    )

    def for_job(self, job: Job, workload: Workload) -> Self:
        """See Scheme."""
        partition = self.partition or job.bucket_bytes
        credit = self.credit or DEFAULT_CREDIT_PARTITIONS * partition
        if credit < TOLERANCE * partition:
            reason = f"{credit} B hold no partition, of {partition} B and up to {TOLERANCE:g} times that"
            raise UnfitError("credit", reason, "more credit, or smaller partitions")
        return super().for_job(job, workload).model_copy(update={"partition": partition, "credit": credit})

    def intent(self, port_buffer_bytes: int) -> QosIntent:
        """See Scheme."""
        return super().intent(port_buffer_bytes).model_copy(update={"name": "bytescheduler"})

    def transport(self, scaling: Scaling) -> TransportSettings:
        """See Scheme."""
        if self.credit is None:
            raise ValueError("the credit follows from a job: call for_job first")
        more = {
            "tcp_priority": True,
            "tcp_credit_bytes": self.credit,
            "partition_bytes": self.partition or 0,
        }
        return super().transport(scaling).model_copy(update=more)


SCHEME = ByteScheduler
