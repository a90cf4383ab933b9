"""OptiReduce: a transpose all-reduce whose stages are bounded in time, over codes that spread what is lost."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from dlcp.model.experiment import Scaling
from dlcp.model.host_settings import HostSettings
from dlcp.model.qos import QosIntent
from dlcp.model.transport.settings import TransportSettings
from dlcp.model.transport.stages import TimeBounds
from dlcp.model.units import Fraction
from dlcp.model.workload import Job, Workload
from dlcp.patterns import names_where, pattern_of
from dlcp.schemes._plain_intent import control_reserved_knob, plain_intent
from dlcp.schemes.base import Scheme, UnfitError


class OptiReduce(Scheme):
    """From the paper, as notes on it tell it, not from its published patch of Gloo, whose adaptive part is inert.

    Not taken over: tB is not measured with the largest bucket alone, but with all tensors together; ranks do not tell
    each other their tC; how many senders a receiver takes at once is a knob, not adapted (dynamic incast); nothing is
    skipped or halted when much is lost. Replicas drift, as the paper's do. The rate is controlled by delay (timely).
    """

    title: ClassVar[str] = "OptiReduce"
    paper: ClassVar[str] = (
        "Warraich et al., OptiReduce: Resilient and Tail-Optimal AllReduce for Distributed Deep Learning in the Cloud, "
        "NSDI 2025, arXiv 2310.06993"
    )
    mechanism: ClassVar[str] = (
        "Each worker sums one piece of every tensor and sends the sum to all. Nothing is sent again, and a stage is "
        "closed after a time: tB, which reliable iterations at the start of the job measure (on DLCP's engine, not "
        "over TCP), or soon after the expected time tC once the tail is there. A hole counts as zero in a sum; in a "
        "result the worker's own value stays. A Hadamard transform spreads holes over the tensor. Times are each "
        "rank's own, and the end of a sender's pass counts as the mark of its last packets."
    )
    kind: ClassVar[Literal["tcp", "dlcp"]] = "dlcp"

    warmup: int = Field(
        default=3, ge=1, description="iterations at the start that lose nothing and are measured (the paper: 20)"
    )
    quantile: Fraction = Field(
        default=0.95, description="of the measured stage times: tB, after which a stage is closed with whatever came"
    )
    tail: Fraction = Field(
        default=0.99, description="share of a message that, once there, lets the stage be closed soon after tC"
    )
    wait: Fraction = Field(
        default=0.1, description="x at the start: how much longer than tC the rest is waited for, as share of tC"
    )
    loss_low: Fraction = Field(default=0.0001, description="a stage that loses less makes x smaller, by one point")
    loss_high: Fraction = Field(default=0.001, description="a stage that loses more doubles x, up to 50 %")
    hadamard: bool = Field(default=True, description="send codes that spread what is lost over the whole tensor")
    repair: bool = Field(
        default=False,
        description="send again what the network lost while there is time (the paper sends nothing again)",
    )
    senders_at_once: int = Field(
        default=0,
        ge=0,
        description="how many pieces of a tensor a worker sends at a time, to the workers after it in turn; 0: all",
    )
    control_reserved: Fraction = control_reserved_knob()

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.loss_low > self.loss_high:
            raise ValueError(f"loss_low {self.loss_low} is above loss_high {self.loss_high}")
        return self

    def for_job(self, job: Job, workload: Workload) -> Self:
        """See Scheme: for jobs whose workers sum among themselves, long enough to be bounded."""
        if not pattern_of(job.pattern).bounds_stages:
            reason = f"workers sum among themselves, this job has the pattern {job.pattern}"
            others = names_where(lambda other: other.bounds_stages)
            raise UnfitError("pattern", reason, f"a job with pattern: {others}")
        if self.warmup >= job.iterations:
            reason = f"{self.warmup} measured iterations leave none of {job.iterations} to bound"
            raise UnfitError("warmup", reason, "a longer job, or fewer measured iterations")
        return self

    def intent(self, port_buffer_bytes: int) -> QosIntent:
        """Nothing is asked of the network but room for control packets, as of all schemes on DLCP's engine."""
        return plain_intent("optireduce", port_buffer_bytes, self.control_reserved)

    def transport(self, scaling: Scaling) -> TransportSettings:
        """One queue, no class of packets before another; any packet may be lost once times are bounded."""
        return TransportSettings(
            kind="dlcp",
            selective_drop="off",
            droppable_front=(),
            must_arrive_below_packets=0,
            at_once=self.senders_at_once,
            hadamard=self.hadamard,
            time_bounds=TimeBounds(
                warmup_iterations=self.warmup,
                quantile=self.quantile,
                tail_share=self.tail,
                wait_share=self.wait,
                loss_low=self.loss_low,
                loss_high=self.loss_high,
                repair=self.repair,
            ),
        )

    def hosts(self, scaling: Scaling) -> HostSettings:
        """The engine needs nothing of the hosts' stacks."""
        return HostSettings()


SCHEME = OptiReduce
