"""DLCP: bounded loss, layers in strict-priority queues, small gradients dropped first, packets sprayed."""

from __future__ import annotations

from copy import copy
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PlainValidator, create_model, model_validator
from pydantic_core import PydanticKnownError

from dlcp.model.experiment import Scaling
from dlcp.model.host_settings import HostSettings
from dlcp.model.qos import CONTROL_QUEUE, FLOWLET_GAP_S, DropProfile, LoadBalancing, QosIntent, QueueIntent
from dlcp.model.transport.queues import Magnitude
from dlcp.model.transport.sending import MOST_SOURCE_PORTS
from dlcp.model.transport.settings import Compression, TransportSettings
from dlcp.model.units import Duration, Fraction, QuantityError, parse_fraction, show_duration
from dlcp.model.workload import Job, Workload
from dlcp.patterns import names_where, pattern_of
from dlcp.schemes._plain_intent import control_reserved_knob
from dlcp.schemes.base import Scheme, UnfitError, refuse_all_but_servers
from dlcp.transport import compression
from dlcp.transport.compression import compressor_class
from dlcp.transport.compression.base import SparseKnobs
from dlcp.transport.contract.tensors import data_queues

QUALITY_BOUND = 0.1
"""The papers' evaluation: more rounds for the same accuracy, each round faster (10 % in both)."""
PRESETS = ("strict", "quality")


def _loss_bound(value: Any) -> float | str:
    if value in PRESETS:
        return str(value)
    try:
        return parse_fraction(value)
    except QuantityError as error:
        raise QuantityError(error.what, f"{error.hint}; or strict, or quality") from error


LossBound = Annotated[float | str, PlainValidator(_loss_bound)]
"""A share, or a preset: `quality`, or `strict`, which each workload's profile names."""

UNCOMPRESSED = "none"


def _compressor_name(value: Any) -> str:
    if value == UNCOMPRESSED:
        return UNCOMPRESSED
    known = [UNCOMPRESSED, *(name for name in compression.names() if compressor_class(name).tolerates_loss)]
    if value not in known:
        raise PydanticKnownError("literal_error", {"expected": ", ".join(map(repr, known))})
    return str(value)


CompressorName = Annotated[str, PlainValidator(_compressor_name)]
"""A compressor whose codes survive the loss of packets, or `none`."""

Profiles = tuple[DropProfile | None, DropProfile | None, DropProfile | None]


class Dlcp(Scheme):
    """The transport that this project exists for.

    Drop precedence 0: must arrive, and the pull leg; 1: protected; 2: droppable (small gradients of front layers).
    """

    title: ClassVar[str] = "DLCP"
    paper: ClassVar[str] = (
        "Wang et al., Domain-specific Communication Optimization for Distributed DNN Training, arXiv 2008.08445; "
        "successor MLT: Towards Domain-Specific Network Transport for Distributed DNN Training, NSDI 2024"
    )
    mechanism: ClassVar[str] = (
        "A receiver is satisfied with 1 - p of a gradient; front layers travel in higher queues; a switch drops small "
        "gradients before large ones; any packet may take any path."
    )

    kind: ClassVar[Literal["tcp", "dlcp"]] = "dlcp"
    is_dlcp: ClassVar[bool] = True

    loss_bound: LossBound = Field(
        default=0.1,
        description="share of a gradient tensor's bytes that may stay lost (push leg, or all round a ring); quality is "
        "10 %, the papers' evaluation; strict is what the workload's profile names (2.4 % for ResNet-50); 0 delivers "
        "everything",
    )
    energy_bound: Fraction = Field(
        default=1.0,
        description="share of a gradient tensor's energy (the sum of squares) that may stay lost, besides loss_bound; "
        "100 % sets no limit",
    )
    loss_bound_schedule: tuple[tuple[Fraction, LossBound], ...] = Field(
        default=(),
        description="pairs [share of the training done, loss_bound from there on], such as [[0 %, 0], [20 %, 10 %]]: "
        "the bound changes between iterations",
    )
    holes: Literal["zero", "rescale", "last"] = Field(
        default="zero",
        description="what a hole in a gradient becomes: zero, with the sum divided by all workers; rescale, the mean "
        "of those that arrived; last, that worker's gradient of the iteration before (parameter server only)",
    )
    pull_loss_bound: Fraction = Field(
        default=0.0,
        description="share of the parameters that each worker may lose on the way back and keep as they were: workers "
        "then drift apart (parameter server only)",
    )
    full_sync_every: int = Field(
        default=10, ge=1, description="with pull_loss_bound: every so many iterations pulls lose nothing"
    )
    stop: Literal["lazy", "eager"] = Field(
        default="lazy",
        description="lazy: a satisfied receiver waits for the end of the sender's first pass, so loss is what the "
        "network did; eager: it stops the sender at once, so about p is lost every time",
    )
    congestion_control: Literal["timely", "dctcp", "fixed"] = Field(
        default="timely",
        description="the sender's rate control: timely by delay, dctcp by ECN marks of the switches, fixed none",
    )
    t_low_s: Duration | None = Field(
        default=None,
        description="timely: a round trip below it, in lab time, lets the rate grow; left out, it follows from the "
        "shortest round trip that was measured",
    )
    t_high_s: Duration | None = Field(
        default=None,
        description="timely: a round trip above it, in lab time, cuts the rate; given together with t_low_s",
    )
    mark_from: Fraction = Field(
        default=0.25,
        description="dctcp: a queue's backlog, as share of the port's buffer, from which on packets are marked (with "
        "selective_drop ect, droppable_from is the threshold of both)",
    )
    priority_queues: int = Field(
        default=3,
        ge=1,
        le=7,
        description="strict-priority queues that layers are spread over, front layers highest; five or fewer leave "
        "queue 6 to others",
    )
    layer_map: Literal["equal-bytes", "equal-count"] = Field(
        default="equal-bytes", description="what a queue's share of the model is measured in: bytes or buckets"
    )
    selective_drop: Literal["wred", "ect", "off"] = Field(
        default="wred",
        description="how a switch tells droppable packets: by drop precedence and WRED, by Not-ECT under an ECN "
        "threshold, or not at all",
    )
    magnitude: Literal["mean", "l2", "max"] = Field(
        default="mean",
        description="what makes a packet's gradients small or large, against its layer's running median: mean |g|, "
        "root mean square, or largest |g|",
    )
    droppable_front: tuple[Magnitude, ...] = Field(
        default=("small",), description="which packets of front layers are droppable: small, large, both or none"
    )
    droppable_back: tuple[Magnitude, ...] = Field(
        default=(), description="the same for back layers, those of protected_tail_share"
    )
    protected_tail_share: Fraction = Field(
        default=0.2, description="share of the layers, output side, that count as back layers"
    )
    must_arrive_largest: Fraction = Field(
        default=0.0,
        description="share of a gradient tensor's packets, those of the largest gradients, that must arrive whatever "
        "the bound allows",
    )
    must_arrive_below_packets: int = Field(
        default=8, ge=0, description="tensors with fewer packets than this lose nothing: the bound is below one packet"
    )
    droppable_from: Fraction = Field(
        default=0.15,
        description="a queue's backlog, as share of the port's buffer, where droppable packets start to go",
    )
    droppable_until: Fraction = Field(
        default=0.4, description="backlog, as share of the port's buffer, beyond which every droppable packet goes"
    )
    control_reserved: Fraction = control_reserved_knob()
    drop_reliable: bool = Field(
        default=False,
        description="tag small gradients as droppable also where the bound lets nothing be lost: switches drop them "
        "first, and they are sent again",
    )
    load_balancing: LoadBalancing = Field(
        default="per-packet",
        description="how a switch chooses among equal paths: per-packet at random, round-robin in turn, flow-hash the "
        "same for all of a flow, flowlet at random for each burst "
        f"after a pause of {show_duration(FLOWLET_GAP_S)}",
    )
    spraying: Literal["switch", "source-ports"] = Field(
        default="switch",
        description="who spreads packets over paths: the switch (load_balancing), or the sender, whose bursts leave "
        "from several UDP ports in turn while switches choose by flow hash",
    )
    source_ports: int = Field(
        default=8, ge=2, le=MOST_SOURCE_PORTS, description="with spraying source-ports: how many ports"
    )

    compression: CompressorName = Field(
        default=UNCOMPRESSED,
        description="code gradients before they travel: codes of fixed length, whose holes are zeros as a gradient's; "
        "what workers pull loses nothing (parameter server only)",
    )
    compression_ratio: Fraction = Field(
        default=0.01,
        gt=0,
        lt=0.5,
        description="with topk, randomk, randomblock: share of a tensor's values that is sent",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.compression != UNCOMPRESSED and (self.holes != "zero" or self.pull_loss_bound):
            raise ValueError("compression needs holes: zero and pull_loss_bound: 0: codes are no values to keep")
        if self.droppable_from > self.droppable_until:
            raise ValueError(f"droppable_from {self.droppable_from} is above droppable_until {self.droppable_until}")
        asked_of_switches = self.load_balancing if "load_balancing" in self.model_fields_set else "flow-hash"
        if self.spraying == "source-ports" and asked_of_switches != "flow-hash":
            raise ValueError("spraying by source-ports needs load_balancing: flow-hash in the switches")
        starts = [done for done, _ in self.loss_bound_schedule]
        if starts != sorted(set(starts)):
            raise ValueError("the shares of training in loss_bound_schedule must grow from pair to pair")
        if (self.t_low_s is None) != (self.t_high_s is None):
            raise ValueError("t_low_s and t_high_s are given together or not at all")
        if self.t_low_s is not None and self.t_high_s is not None and not 0 < self.t_low_s < self.t_high_s:
            raise ValueError(f"t_low_s {self.t_low_s:g} s must lie between 0 and t_high_s {self.t_high_s:g} s")
        return self

    def for_job(self, job: Job, workload: Workload) -> Self:
        """The presets as the workload's numbers."""
        if self.compression != UNCOMPRESSED:
            refuse_all_but_servers(job)
            if job.record_holes:
                raise UnfitError("compression", "holes are recorded of gradients, not of their codes", "none")
        pattern = pattern_of(job.pattern)
        if self.holes == "last" and pattern.no_last_gradient:
            raise UnfitError("holes", f"{pattern.a_name} {pattern.no_last_gradient}", "zero or rescale")
        if self.pull_loss_bound and pattern.no_lossy_pulls:
            others = names_where(lambda other: not other.no_lossy_pulls)
            raise UnfitError("pull_loss_bound", pattern.no_lossy_pulls, f"0, or pattern: {others}")
        schedule = tuple(
            (done, resolved("loss_bound_schedule", bound, workload)) for done, bound in self.loss_bound_schedule
        )
        bound = resolved("loss_bound", self.loss_bound, workload)
        return self.model_copy(update={"loss_bound": bound, "loss_bound_schedule": schedule})

    def intent(self, port_buffer_bytes: int) -> QosIntent:
        profiles = self._profiles(port_buffer_bytes)
        queues = {queue: QueueIntent(profiles=profiles) for queue in data_queues(self.priority_queues)}
        queues[CONTROL_QUEUE] = QueueIntent(reserved=int(self.control_reserved * port_buffer_bytes))
        balancing: LoadBalancing = "flow-hash" if self.spraying == "source-ports" else self.load_balancing
        return QosIntent(name="dlcp", port_buffer=port_buffer_bytes, queues=queues, load_balancing=balancing)

    def transport(self, scaling: Scaling) -> TransportSettings:
        return TransportSettings(
            kind="dlcp",
            congestion_control=self.congestion_control,
            loss_bound=number(self.loss_bound),
            energy_bound=self.energy_bound,
            loss_bound_schedule=tuple((done, number(bound)) for done, bound in self.loss_bound_schedule),
            pull_loss_bound=self.pull_loss_bound,
            full_sync_every=self.full_sync_every,
            holes=self.holes,
            stop=self.stop,
            selective_drop=self.selective_drop,
            priority_queues=self.priority_queues,
            layer_map=self.layer_map,
            protected_tail_share=self.protected_tail_share,
            must_arrive_below_packets=self.must_arrive_below_packets,
            must_arrive_largest=self.must_arrive_largest,
            droppable_front=self.droppable_front,
            droppable_back=self.droppable_back,
            magnitude_metric=self.magnitude,
            tag_all=self.drop_reliable,
            source_ports=self.source_ports if self.spraying == "source-ports" else 1,
            t_low_s=self.t_low_s or 0.0,
            t_high_s=self.t_high_s or 0.0,
            compression=self._compression(),
        )

    def hosts(self, scaling: Scaling) -> HostSettings:
        return HostSettings()

    def _compression(self) -> Compression | None:
        if self.compression == UNCOMPRESSED:
            return None
        sparse = issubclass(compressor_class(self.compression).knobs_class, SparseKnobs)
        return Compression(method=self.compression, knobs={"ratio": self.compression_ratio} if sparse else {})

    def _profiles(self, port_buffer_bytes: int) -> Profiles:
        minimum, maximum = (int(share * port_buffer_bytes) for share in (self.droppable_from, self.droppable_until))
        mark_bytes = int(self.mark_from * port_buffer_bytes)
        marks = self.congestion_control == "dctcp"  # every packet then leaves as ECN-capable
        mark = DropProfile(minimum=mark_bytes, maximum=mark_bytes, mark=True) if marks else None
        if self.selective_drop == "wred":
            return mark, mark, DropProfile(minimum=minimum, maximum=maximum)
        if self.selective_drop == "ect":  # one step: beyond it, ECN-capable packets are marked, all others dropped
            return DropProfile(minimum=minimum, maximum=minimum, mark=True), None, None
        return mark, mark, mark


PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "loss": ("bounded loss", {"loss_bound": 0.0, "drop_reliable": True}),
    "priority": ("queues by layer", {"priority_queues": 1}),
    "drop": ("selective dropping", {"selective_drop": "off"}),
    "spray": ("spraying", {"load_balancing": "flow-hash"}),
}
"""DLCP's mechanisms: name → in words, and the knobs that switch it off. Each knob belongs to one of them."""


def without(*parts: str) -> type[Dlcp]:
    """DLCP with these of its PARTS switched off: its own knobs with other defaults, so any can be set as well.

    Without selective dropping there is no tag that a reliable message could carry.
    """
    off = {knob: value for part in parts for knob, value in PARTS[part][1].items()}
    if "drop" in parts:
        off.pop("drop_reliable", None)
    left = [words for part, (words, _) in PARTS.items() if part not in parts]
    removed = [PARTS[part][0] for part in parts]
    if left:
        title = f"DLCP without {removed[0]}" if len(parts) == 1 else f"DLCP: {', '.join(left)} alone"
    else:
        title = "DLCP's engine alone"
    mechanism = (
        f"As DLCP, but without {', '.join(removed)}: what is left is {', '.join([*left, 'repair by evidence'])}, and "
        "control of the rate by delay."
    )
    if "loss" in parts and "drop" not in parts:
        mechanism += " Packets that switches drop first are sent again."
    return with_defaults(title, mechanism, **off)


def with_defaults(title: str, mechanism: str, **defaults: Any) -> type[Dlcp]:
    """DLCP with other defaults of its knobs."""
    fields: dict[str, Any] = {}
    for knob, default in defaults.items():
        field = copy(Dlcp.model_fields[knob])
        field.default = default
        fields[knob] = (field.annotation, field)
    made: type[Dlcp] = create_model(title.replace(" ", ""), __base__=Dlcp, __module__=__name__, **fields)
    made.title, made.mechanism = title, mechanism
    return made


def resolved(knob: str, bound: float | str, workload: Workload) -> float:
    """A bound as a number. UnfitError for a preset that the workload does not name."""
    if bound == "strict":
        if workload.strict_loss_bound is None:
            gap = f"strict, but workload {workload.name} has no strict_loss_bound"
            raise UnfitError(knob, gap, "give a share such as 1 %, or add one to the workload's file, with its source")
        return workload.strict_loss_bound
    return QUALITY_BOUND if bound == "quality" else number(bound)


def number(bound: float | str) -> float:
    """A bound that no workload is needed for; ValueError for one that is still open."""
    if isinstance(bound, str):
        raise ValueError(f"loss bound {bound!r} needs a workload: call for_job first")
    return bound


SCHEME = Dlcp
VARIANTS = {f"dlcp-no-{part}": without(part) for part in PARTS} | {
    f"dlcp-only-{part}": without(*(other for other in PARTS if other != part)) for part in PARTS
}
"""For ablations: DLCP without one of its parts, and each of them alone."""
