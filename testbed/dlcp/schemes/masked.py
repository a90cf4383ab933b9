"""No network: gradients lose packets by rule, to see what loss does to learning apart from what it does to time."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from dlcp.errors import Problem
from dlcp.model.experiment import Scaling
from dlcp.model.host_settings import HostSettings
from dlcp.model.loading.mask_file import recording_digest
from dlcp.model.qos import QosIntent
from dlcp.model.transport.masks import RECORDED, MaskSettings, Order, Spread
from dlcp.model.transport.settings import TransportSettings
from dlcp.model.units import Fraction
from dlcp.model.workload import Job, Training, Workload
from dlcp.patterns import pattern_of
from dlcp.schemes.base import Scheme, UnfitError


class Masked(Scheme):
    """What the papers profile their bound with (zeroed gradients), by packets and by more rules than chance."""

    title: ClassVar[str] = "loss by rule, without a network"
    paper: ClassVar[str] = (
        "the profiling of the loss bound in DLCP (arXiv 2008.08445) and MLT (NSDI 2024), by whole packets instead of "
        "single values; Xia et al., Rethinking Transport Layer Design for Distributed Machine Learning, APNet 2019"
    )
    mechanism: ClassVar[str] = (
        "All workers of a real job train in one process; each worker's gradient is cut into the packets that would "
        "carry it, a rule says which are lost of what it sends, and a lost packet's values count as zero in the sum. "
        "In a ring a packet carries a sum: with it the gradients of all ranks before are lost, too."
    )
    kind: ClassVar[Literal["tcp", "dlcp", "masked"]] = "masked"
    needs_network: ClassVar[bool] = False

    loss: Fraction = Field(
        default=0.1,
        description="share of all workers' packets that is lost in each iteration (of the layers concerned)",
    )
    order: Order = Field(
        default="random",
        description="which packets: at random; those of the smallest or largest energy of a worker's gradient first; "
        "at random, but of front or back layers only; tail-cut, the last ones of the gradient (output layers), as a "
        "deadline does that always cuts the same end; message-tail-cut, the last ones of each message; recorded, those "
        "that a real run lost; recorded-shuffled, as many of each message as that run lost, at random places; "
        "recorded-rate, at random at that run's mean rate",
    )
    spread: Spread = Field(
        default="even",
        description="among workers, with the same total: even; in-turn, all of it at another worker in each iteration; "
        "one-worker, all of it always at the same one; same-packets, all workers lose the same packets",
    )
    front_share: Fraction = Field(
        default=0.5,
        description="with order front-layers or back-layers: share of the layers, input side, that is front",
    )
    recorded: str = Field(
        default="", description="with an order of a recording: name of a file in testbed/experiments/masks"
    )
    damped: Fraction = Field(
        default=0.0,
        description="share by which the learning rate is lowered: the control that loses nothing but learns as slowly "
        "as a gradient does of which that share is missing",
    )
    holes: Literal["zero", "rescale", "last"] = Field(
        default="zero",
        description="what a hole in a gradient becomes: zero, with the sum divided by all workers; rescale, the mean "
        "of those that arrived; last, that worker's gradient of the iteration before",
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if (self.order in RECORDED) != bool(self.recorded):
            raise ValueError(f"order {self.order} and recorded {self.recorded!r}: {' and '.join(RECORDED)} need a file")
        for knob in ("loss", "spread") if self.order in RECORDED else ():
            if knob in self.model_fields_set:
                raise ValueError(f"order {self.order} takes its losses from {self.recorded}: leave {knob} out")
        return self

    def for_job(self, job: Job, workload: Workload) -> Self:
        """Itself; UnfitError when nothing is learnt, or the losses cannot be spread so."""
        if not isinstance(workload, Training):
            what = f"workload {workload.name} only waits for its compute: there is nothing that loss could harm"
            raise UnfitError("loss", what, "a workload of kind training")
        pattern = pattern_of(job.pattern)
        if self.holes == "last" and pattern.no_last_gradient:
            raise UnfitError("holes", f"{pattern.a_name} {pattern.no_last_gradient}", "zero or rescale")
        if self.spread in ("in-turn", "one-worker") and self.loss * len(job.workers) > 1:
            what = f"one of {len(job.workers)} workers cannot lose what all lose together at {self.loss:g}"
            raise UnfitError("spread", what, f"a loss of at most 1/{len(job.workers)}")
        return self

    def inputs(self) -> dict[str, str]:
        """The file of masks."""
        if not self.recorded:
            return {}
        try:
            return {self.recorded: recording_digest(self.recorded)}
        except Problem as problem:
            raise UnfitError("recorded", problem.what, problem.hint) from problem

    def intent(self, port_buffer_bytes: int) -> QosIntent:
        """Of ports that nothing passes."""
        return QosIntent(name="masked", port_buffer=port_buffer_bytes)

    def transport(self, scaling: Scaling) -> TransportSettings:
        self.inputs()
        return TransportSettings(
            kind="masked",
            holes=self.holes,
            must_arrive_below_packets=0,
            mask=MaskSettings(
                loss=0.0 if self.recorded else self.loss,
                order=self.order,
                spread=self.spread,
                front_share=self.front_share,
                recorded=self.recorded,
                damped=self.damped,
            ),
        )

    def hosts(self, scaling: Scaling) -> HostSettings:
        return HostSettings()


SCHEME = Masked
