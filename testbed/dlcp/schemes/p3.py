"""P3: gradients in slices, front layers first, over tuned TCP."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field

from dlcp.model.experiment import Scaling
from dlcp.model.qos import QosIntent
from dlcp.model.transport.settings import TransportSettings
from dlcp.model.units import Size
from dlcp.model.workload import Job, Workload
from dlcp.patterns import pattern_of
from dlcp.schemes.base import UnfitError
from dlcp.schemes.tcp_tuned import TcpTuned


class P3(TcpTuned):
    """Priority-based parameter propagation. The original's slices have 50,000 parameters, the best of its search.

    Deviations: layers smaller than a slice are fused up to it, with the priority of their front-most layer, so that
    this testbed's cost of a message does not weigh on it; each connection has an order of its own, where the original's
    one sending thread lets a slow server hold up slices for others.
    """

    title: ClassVar[str] = "P3 over TCP"
    paper: ClassVar[str] = (
        "Jayarajan et al., Priority-based Parameter Propagation for Distributed DNN Training, MLSys 2019"
    )
    mechanism: ClassVar[str] = (
        "Layers are cut into slices that are pushed, summed and sent back each by itself; of all slices that wait for "
        "a peer the one nearest to the model's input leaves first, on workers and on servers; one that has begun goes "
        "on to its end. Differs from the original: small layers are fused up to a slice; each connection has its order."
    )

    slice: Size | None = Field(
        default=None,
        gt=0,
        description="bytes of a slice on the emulated wire, as the job's `bucket` (which it is by default)",
    )
    low_water: Size = Field(
        default=16_000,
        gt=0,
        description="bytes that the kernel takes of a connection's slices beyond those that may leave at once "
        "(TCP_NOTSENT_LOWAT): what it has taken, nothing overtakes",
    )

    def for_job(self, job: Job, workload: Workload) -> Self:
        """See Scheme."""
        pattern = pattern_of(job.pattern)
        if not pattern.sums_at_servers:
            reason = f"P3 schedules pushes to parameter servers; job of {workload.name} is {pattern.a_name}"
            raise UnfitError("slice", reason, "leave it out of this experiment, or take bytescheduler")
        return super().for_job(job, workload)

    def intent(self, port_buffer_bytes: int) -> QosIntent:
        """See Scheme."""
        return super().intent(port_buffer_bytes).model_copy(update={"name": "p3"})

    def transport(self, scaling: Scaling) -> TransportSettings:
        """See Scheme."""
        more = {"tcp_priority": True, "tcp_low_water_bytes": self.low_water, "partition_bytes": self.slice or 0}
        return super().transport(scaling).model_copy(update=more)


SCHEME = P3
