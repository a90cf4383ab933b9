"""DBLP: MLT's transport in software alone, with a bound that depends on the phase of training."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field

from dlcp.model.experiment import Scaling
from dlcp.model.host_settings import HostSettings
from dlcp.model.qos import QosIntent
from dlcp.model.transport.loss import PhaseBound
from dlcp.model.transport.sending import MOST_WINDOW_PACKETS
from dlcp.model.transport.settings import TransportSettings
from dlcp.model.units import Fraction
from dlcp.model.workload import Job, Workload
from dlcp.patterns import pattern_of
from dlcp.schemes._plain_intent import control_reserved_knob, plain_intent
from dlcp.schemes.base import Scheme, UnfitError
from dlcp.schemes.dlcp import LossBound, number, resolved


class Dblp(Scheme):
    """Bounded loss without help from switches and without congestion control.

    Deviations: a server judges the norm of the gradients that it owns, not of all servers' together; a check comes
    every so many iterations, for a job has no epochs; its bound holds from the second iteration after it on, when all
    workers know it; a sender repairs on the evidence of acknowledgements, not of a bitmap alone; a receiver that
    has enough waits for the end of the first pass, where MLT says stop at once: what is lost is what the network lost,
    not p of all.
    """

    title: ClassVar[str] = "DBLP"
    paper: ClassVar[str] = "DBLP, arXiv 2605.01989 (2026); transport of MLT, NSDI 2024"
    mechanism: ClassVar[str] = (
        "A receiver is satisfied with 1 - p of a gradient once all of it was sent; p is small while the gradient's "
        "norm falls fast and large otherwise. Senders send at line rate; switches treat all packets alike."
    )
    kind: ClassVar[Literal["tcp", "dlcp"]] = "dlcp"

    loss_bound: LossBound = Field(
        default=0.008,
        description="share of a gradient tensor's bytes that may stay lost in the critical phase (the paper has 0.8 %, "
        "for ResNet-50 2.4 %); strict is what the workload's profile names, quality 10 %",
    )
    relaxed_by: Fraction = Field(default=0.4, description="what is added in any other phase: 40 points in the paper")
    norm_drop: Fraction = Field(
        default=0.5,
        gt=0,
        description="the phase is critical if the gradient's norm fell by this share since the check before, and until "
        "the second check",
    )
    check_every: int = Field(
        default=0,
        ge=0,
        description="iterations between checks of the norm, an epoch in the paper; 0: a tenth of the job's, at least 2",
    )
    window_packets: float = Field(
        default=1024,
        gt=0,
        le=MOST_WINDOW_PACKETS,
        description="packets to one peer that may be in flight: as good as no limit; there is no congestion control",
    )
    must_arrive_below_packets: int = Field(
        default=8, ge=0, description="tensors with fewer packets than this lose nothing: the bound is below one packet"
    )
    control_reserved: Fraction = control_reserved_knob()

    def for_job(self, job: Job, workload: Workload) -> Self:
        """The preset as the workload's number, and how often to check."""
        pattern = pattern_of(job.pattern)
        if not pattern.sums_at_servers:
            reason = f"servers announce DBLP's bounds; job of {workload.name} is {pattern.a_name}"
            raise UnfitError("loss_bound", reason, "leave it out of this experiment")
        every = self.check_every or max(2, job.iterations // 10)
        bound = resolved("loss_bound", self.loss_bound, workload)
        return self.model_copy(update={"loss_bound": bound, "check_every": every})

    def intent(self, port_buffer_bytes: int) -> QosIntent:
        """A plain queue, and room for control packets."""
        return plain_intent("dblp", port_buffer_bytes, self.control_reserved)

    def transport(self, scaling: Scaling) -> TransportSettings:
        """The declared bound is the larger one; each message is given its own."""
        critical = number(self.loss_bound)
        relaxed = min(1.0, round(critical + self.relaxed_by, 9))
        return TransportSettings(
            kind="dlcp",
            congestion_control="fixed",
            fixed_window=self.window_packets,
            selective_drop="off",
            droppable_front=(),
            loss_bound=relaxed,
            must_arrive_below_packets=self.must_arrive_below_packets,
            phases=PhaseBound(critical=critical, relaxed=relaxed, drop=self.norm_drop, check_every=self.check_every),
        )

    def hosts(self, scaling: Scaling) -> HostSettings:
        """The engine needs nothing of the hosts' stacks."""
        return HostSettings()


SCHEME = Dblp
