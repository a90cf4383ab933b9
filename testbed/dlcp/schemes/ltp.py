"""LTP: a parameter server closes a gradient that is nearly complete when it takes longer than usual."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field

from dlcp.model.experiment import Scaling
from dlcp.model.host_settings import HostSettings
from dlcp.model.qos import QosIntent
from dlcp.model.transport.loss import EarlyClose
from dlcp.model.transport.settings import TransportSettings
from dlcp.model.units import Fraction
from dlcp.model.workload import Job, Workload
from dlcp.patterns import pattern_of
from dlcp.schemes._plain_intent import control_reserved_knob, plain_intent
from dlcp.schemes.base import Scheme, UnfitError


class Ltp(Scheme):
    """Loss-tolerant transmission on DLCP's engine: lossy towards the server only, all else is delivered.

    Deviations: the rate is controlled by delay (timely) where the paper estimates bandwidth and delay as BBR does;
    packets hold whole values, so no float is cut and no bubble filled; the paper's rule for the threshold and the
    deadline is not known, so the deadline follows the moving average of what each worker's tensors took.
    """

    title: ClassVar[str] = "LTP"
    paper: ClassVar[str] = (
        "Boosting Distributed Machine Learning Training Through Loss-tolerant Transmission Protocol (LTP), IWQoS 2023, "
        "arXiv 2305.04279"
    )
    mechanism: ClassVar[str] = (
        "Early Close: a server waits for a gradient's last packets until a deadline that follows from earlier ones, "
        "then takes it if enough is there. Lost packets are sent again after the first pass. Switches treat all alike."
    )
    kind: ClassVar[Literal["tcp", "dlcp"]] = "dlcp"

    fraction: Fraction = Field(
        default=0.8, gt=0, description="share of a gradient's bytes that must be there when it is closed early"
    )
    slack: float = Field(
        default=1.1,
        gt=0,
        description="the deadline, as multiple of the moving average of how long that worker's gradient of that tensor "
        "took from its first packet on",
    )
    newest_weight: Fraction = Field(default=0.125, gt=0, description="weight of the newest in that average")
    must_arrive_largest: Fraction = Field(
        default=0.0,
        description="share of a gradient's packets, those of the largest values, that are critical",
    )
    must_arrive_below_packets: int = Field(
        default=8, ge=0, description="tensors with fewer packets than this are critical: nothing of them is lost"
    )
    congestion_control: Literal["timely", "dctcp", "fixed"] = Field(
        default="timely", description="the sender's rate control"
    )
    control_reserved: Fraction = control_reserved_knob()

    def for_job(self, job: Job, workload: Workload) -> Self:
        """Loss is for gradients on their way to a parameter server."""
        pattern = pattern_of(job.pattern)
        if not pattern.sums_at_servers:
            reason = f"LTP closes what workers send to parameter servers; job of {workload.name} is {pattern.a_name}"
            raise UnfitError("fraction", reason, "leave it out of this experiment")
        return self

    def intent(self, port_buffer_bytes: int) -> QosIntent:
        """A plain queue, and room for control packets."""
        return plain_intent("ltp", port_buffer_bytes, self.control_reserved)

    def transport(self, scaling: Scaling) -> TransportSettings:
        """Bound 0: a sender repairs until the server closes the message."""
        return TransportSettings(
            kind="dlcp",
            congestion_control=self.congestion_control,
            selective_drop="off",
            droppable_front=(),
            must_arrive_largest=self.must_arrive_largest,
            must_arrive_below_packets=self.must_arrive_below_packets,
            tag_all=True,
            resend_last=True,
            early_close=EarlyClose(fraction=self.fraction, slack=self.slack, weight=self.newest_weight),
        )

    def hosts(self, scaling: Scaling) -> HostSettings:
        """The engine needs nothing of the hosts' stacks."""
        return HostSettings()


SCHEME = Ltp
