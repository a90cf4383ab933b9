"""Traffic of the fabric: training jobs (a layer profile, or a real training script) and background."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from dlcp.model.base import Frozen
from dlcp.model.buffering import Buffering
from dlcp.model.faults import Fault
from dlcp.model.masks import MaskSettings
from dlcp.model.sizes import SizeTable
from dlcp.model.units import Duration, Fraction, Rate, Size


class Layer(Frozen):
    """One layer, input side first. Times are for the profile's batch on its device, in lab seconds."""

    name: str
    parameters: int = Field(ge=1)
    forward_s: Duration = Field(alias="forward")
    backward_s: Duration = Field(alias="backward")


class Profile(Frozen):
    """A model as its layers: true parameter counts; compute is waited for, gradients are made from a seed.

    source_quality: of the times; times: where they come from, and how good they are. strict_loss_bound: the share of
    gradient bytes whose loss costs this model neither rounds nor accuracy; strict_source: from where, or whose it is
    where none is known of this model.
    """

    kind: Literal["profile"]
    name: str
    source: str
    source_quality: Literal["measured", "derived", "roofline"]
    times: str = ""
    device: str
    batch: int = Field(ge=1)
    parameters: int = Field(ge=1)
    strict_loss_bound: Fraction | None = None
    strict_source: str = ""
    layers: tuple[Layer, ...] = Field(min_length=1)


class Training(Frozen):
    """A real training job: a Python file in workloads/ that offers `job(options) -> TrainingJob`.

    predicts: what a label is. The table `training` has the test set's loss in nats a label (a text's bits per
    character are these ÷ ln 2), and as accuracy the share of labels that the model's first guess tells right.
    compute_s: what an iteration computes for, in lab time: a worker that ends earlier waits, so that this machine's
    speed stays out of the result, and a step that takes longer is counted. A third of it is the forward pass, each
    layer an equal part (see job_spec.py). None: as long as it takes here, which no dilation stretches.
    strict_loss_bound, strict_source: as in Profile. classes: whether its samples have classes, by which a job may part
    them among workers.
    """

    kind: Literal["training"]
    classes: bool = False
    name: str
    script: str
    dataset: str
    predicts: str = "the class of an image"
    batch: int = Field(ge=1)
    learning_rate: float = Field(gt=0)
    momentum: float = Field(ge=0, lt=1)
    compute_s: Duration | None = Field(default=None, alias="compute", gt=0)
    strict_loss_bound: Fraction | None = None
    strict_source: str = ""


Workload = Annotated[Profile | Training, Field(discriminator="kind")]


class Incast(Frozen):
    """Synchronised bursts: at random instants every source sends `burst` bytes to one sink at once, over UDP.

    queue: the switch queue it is sent in under every scheme alike, so that no scheme wins by outranking it.
    interval: mean of the exponential gap between bursts. Bursts are paced at the link's rate by each source.
    """

    kind: Literal["incast"]
    sources: tuple[str, ...] = Field(min_length=1)
    sinks: tuple[str, ...] = Field(min_length=1)
    burst_bytes: Size = Field(alias="burst")
    interval_s: Duration = Field(alias="interval")
    queue: int = Field(default=0, ge=0, le=7)


class Poisson(Frozen):
    """Flows that arrive by a Poisson process, each from a random source to a random other host, of a random size.

    sizes: a size CDF, workloads/cdf/<sizes>.yaml, in bytes of the lab; they are divided by the experiment's byte_scale,
    as the jobs' messages are: these are other people's flows on the same scaled links. load: the mean share that the
    frames of all flows take of the sources' links; a source is drawn in proportion to its link's rate. transport: each
    flow is a TCP connection, or datagrams at the link's rate, one flow of a source after the other.
    table: what `sizes` names, filled in when the experiment is loaded; nobody writes it.
    """

    kind: Literal["poisson"]
    sources: tuple[str, ...] = Field(min_length=1)
    sinks: tuple[str, ...] = Field(min_length=1)
    sizes: str
    load: Fraction = Field(gt=0, lt=1)
    transport: Literal["tcp", "udp"] = "tcp"
    queue: int = Field(default=0, ge=0, le=7)
    table: SizeTable | None = None


class Constant(Frozen):
    """A steady stream of datagrams from each source to each other sink. rate: of each, in frame bytes on the wire."""

    kind: Literal["constant"]
    sources: tuple[str, ...] = Field(min_length=1)
    sinks: tuple[str, ...] = Field(min_length=1)
    rate_bps: Rate = Field(alias="rate")
    queue: int = Field(default=0, ge=0, le=7)


Background = Annotated[Incast | Poisson | Constant, Field(discriminator="kind")]


def partners(entry: Incast | Poisson | Constant, source: str) -> tuple[str, ...]:
    """The sinks that a source of the background may send to: all but itself."""
    return tuple(sink for sink in entry.sinks if sink != source)


Shards = Literal["shuffled", "by-class"]


class Job(Frozen):
    """A training job placed on hosts: data parallel, synchronous.

    pattern: how gradients are exchanged, a file in patterns/: summed by parameter servers on hosts of their own, or
    all-reduced by the workers.
    iterations: how many the job runs. bucket_bytes: layers are fused into buckets of about this many bytes on
    the emulated wire (BytePS and DDP do the same); a much bigger layer is cut into several, which spread over servers.
    warmup_iterations: left out of iteration and message statistics (cold windows, first touch).
    byte_scale: instead of the experiment's, for a model of another size: the same links then stand for other ones of
    the lab under this job. background, faults, port_buffer_bytes, buffering: instead of the experiment's, so that jobs
    can be points of an axis.
    beside: other jobs of the file, on other hosts, that run at the same time from the same instant on, each to its own
    end; their own `beside`, background and faults do not count then. beside_scheme: the label of the scheme that they
    run under, instead of this job's; switches do what this job's scheme asks for.
    measured: false for a job that only runs at the same time as others.
    record_holes: note which packets of each push were never delivered, in the table `holes`.
    target_accuracy: of a real job, the test accuracy until which steps and time are counted; None = what all its runs
    reach. shards: which samples of a real job's data a worker has: its turns in one shuffle of all, or classes that the
    others do not have (as where data stay where they were made).
    """

    workload: str
    workers: tuple[str, ...] = Field(min_length=1)
    servers: tuple[str, ...] = ()
    pattern: str = "parameter-server"
    iterations: int = Field(ge=2, le=100_000)
    warmup_iterations: int = Field(default=1, ge=0)
    bucket_bytes: Size = Field(default=40_000, alias="bucket")
    byte_scaled: bool = True
    byte_scale: float | None = Field(default=None, ge=1)
    evaluations: int = Field(default=10, ge=1)
    record_holes: bool = False
    target_accuracy: Fraction | None = Field(default=None, gt=0, lt=1)
    shards: Shards = "shuffled"
    beside: tuple[str, ...] = ()
    beside_scheme: str | None = None
    measured: bool = True
    background: tuple[Background, ...] | None = None
    faults: tuple[Fault, ...] | None = None
    port_buffer_bytes: Size | None = Field(default=None, alias="port_buffer")
    buffering: Buffering | None = None

    def scale(self, of_experiment: float) -> float:
        """Return the divisor of its messages. of_experiment: the experiment's byte_scale."""
        return (self.byte_scale or of_experiment) if self.byte_scaled else 1.0


MOST_SOURCE_PORTS = 16
"""DLCP_SOURCE_PORTS_MOST of engine.h."""
Magnitude = Literal["small", "large"]
"""Magnitude of a packet's gradients, against the median of its layer."""


class Compression(Frozen):
    """How gradients are coded on their way. method: a file in transport/compression/. knobs: its settings, plain data.
    step_share: of the job's learning rate, what workers apply to what they decode; None = what the method's file says.
    """

    method: str
    step_share: float | None = Field(default=None, gt=0)
    knobs: dict[str, JsonValue] = Field(default_factory=dict)


MOST_WINDOW_PACKETS = 4096
"""Packets that a sender remembers: RECORDS_MOST of native/protocol/state.h."""
MOST_DEMOTIONS = 6
"""DLCP_DEMOTIONS of protocol.h: seven queues carry data."""


class EarlyClose(Frozen):
    """When a server closes a gradient that is not complete (LTP).

    fraction: of its bytes, that must be there. slack: times the moving average of how long that worker's gradients of
    that tensor took, from the first packet on; weight: of the newest in the average.
    """

    fraction: Fraction
    slack: float = Field(gt=0)
    weight: float = Field(gt=0, le=1)


class PhaseBound(Frozen):
    """A bound that depends on the phase of training (DBLP).

    critical, relaxed: bounds of the bytes. drop: the relative drop of the gradient's norm from one check to the next
    that makes the phase critical; so is everything before the second check. check_every: iterations between checks.
    """

    critical: Fraction
    relaxed: Fraction
    drop: Fraction
    check_every: int = Field(ge=1)


class TimeBounds(Frozen):
    """How long a stage of an all-reduce may take (UBT of OptiReduce, NSDI 2025); see
    transport/aggregation/optireduce_timeouts.py.

    warmup_iterations: so many iterations lose nothing and are measured. quantile: of their stages' times, the hard
    bound tB. tail_share: of a message's bytes; once they are there, the rest is waited for until wait_share beyond the
    expected time tC. loss_low, loss_high: the loss of a stage that lets wait_share shrink, and grow. repair: what the
    network lost is sent again while there is time.
    """

    warmup_iterations: int = Field(default=3, ge=1)
    quantile: Fraction = 0.95
    tail_share: Fraction = 0.99
    wait_share: Fraction = 0.1
    loss_low: Fraction = 0.0001
    loss_high: Fraction = 0.001
    repair: bool = False


class TransportSettings(Frozen):
    """Settings with which an agent opens its end of a scheme's transport. Pure data; sent to the agent as JSON.

    kind: "tcp", "dlcp", or "masked": nothing is sent, and `mask` says what of the gradients is lost. The rest is used
    by the kind that knows it. Times are lab seconds; time_dilation: how many seconds of the host each takes, which
    endpoints apply to these times and to their own constants (schemes leave it at 1: schemes/base.py fills it in).
    tcp_low_water_bytes: how much the kernel takes beyond what may leave at once (0: as much as it likes).
    tcp_priority: front layers leave first. tcp_credit_bytes: of gradients under way (0: no limit). partition_bytes: in
    place of the job's bucket (0: that).
    loss_bound, energy_bound: what a gradient's push may lose of its bytes and of its energy (1 = no limit).
    loss_bound_schedule: (share of the training done, bound of the bytes from there on), in order.
    pull_loss_bound: what each worker may lose of the parameters, but for every full_sync_every-th iteration.
    holes: see schemes/dlcp.py. droppable_front, droppable_back: which packets, by gradient magnitude, of the layers
    before and in the protected tail. t_low_s, t_high_s: TIMELY's thresholds; 0 = from what is measured.
    source_ports: bursts leave from so many UDP ports in turn. compression: of gradients, and of what comes of them.
    fixed_window: packets, with congestion_control fixed.
    tag_all: messages of which nothing may be lost are measured and tagged like bounded ones. resend_last: what is sent
    again waits for the end of its message's first pass. demote_after_bytes: each time that a message has sent so many,
    it travels one queue lower. early_close: see EarlyClose; phases: see PhaseBound.
    For patterns that bound stages alone: at_once: see TransposeAllReduce; hadamard: what travels is a code that spreads
    losses; time_bounds: stages are closed in time.
    """

    kind: Literal["tcp", "dlcp", "masked"]
    mask: MaskSettings | None = None
    tcp_congestion_control: str = "cubic"
    tcp_ecn: bool = False
    tcp_low_water_bytes: int = 0
    tcp_priority: bool = False
    tcp_credit_bytes: int = 0
    partition_bytes: int = 0
    congestion_control: str = "timely"
    loss_bound: Fraction = 0.0
    energy_bound: Fraction = 1.0
    loss_bound_schedule: tuple[tuple[Fraction, Fraction], ...] = ()
    pull_loss_bound: Fraction = 0.0
    full_sync_every: int = Field(default=1, ge=1)
    holes: Literal["zero", "rescale", "last"] = "zero"
    stop: Literal["lazy", "eager"] = "lazy"
    selective_drop: Literal["wred", "ect", "off"] = "wred"
    magnitude_metric: Literal["mean", "l2", "max"] = "mean"
    priority_queues: int = Field(default=1, ge=1, le=7)
    layer_map: Literal["equal-bytes", "equal-count"] = "equal-bytes"
    protected_tail_share: Fraction = 0.2
    droppable_front: tuple[Magnitude, ...] = ("small",)
    droppable_back: tuple[Magnitude, ...] = ()
    t_low_s: float = Field(default=0.0, ge=0)
    t_high_s: float = Field(default=0.0, ge=0)
    source_ports: int = Field(default=1, ge=1, le=MOST_SOURCE_PORTS)
    must_arrive_below_packets: int = 8
    must_arrive_largest: Fraction = 0.0
    compression: Compression | None = None
    fixed_window: float = Field(default=0.0, ge=0, le=MOST_WINDOW_PACKETS)
    tag_all: bool = False
    resend_last: bool = False
    demote_after_bytes: tuple[int, ...] = Field(default=(), max_length=MOST_DEMOTIONS)
    early_close: EarlyClose | None = None
    phases: PhaseBound | None = None
    at_once: int = Field(default=0, ge=0)
    hadamard: bool = False
    time_bounds: TimeBounds | None = None
    time_dilation: float = Field(default=1.0, ge=1)


LINUX_RTO_MIN_S = 0.2
"""TCP_RTO_MIN of Linux (include/net/tcp.h): HZ/5."""
LINUX_TIME_SYSCTLS_NS = {"net.ipv4.tcp_comp_sack_delay_ns": 1_000_000, "net.ipv4.tcp_comp_sack_slack_ns": 100_000}
"""Durations of Linux's TCP that every network namespace may set, with Linux's own values (ip-sysctl.rst)."""


class HostSettings(Frozen):
    """Settings of a scheme in a host's network stack: sysctls, and the floor of TCP's retransmission timer, in lab time
    until it is `dilated`."""

    sysctls: dict[str, str] = Field(default_factory=dict)
    rto_min_s: Duration | None = None

    def dilated(self, time_dilation: float) -> HostSettings:
        """The same in emulated time: with dilation, what Linux lets be set of TCP's times is set, whether the scheme
        asks for it or not, since a background over TCP has timers, too. Its other times stay: see EMULATOR.md."""
        if time_dilation == 1:
            return self
        floor_s = LINUX_RTO_MIN_S if self.rto_min_s is None else self.rto_min_s
        times = {name: str(round(value * time_dilation)) for name, value in LINUX_TIME_SYSCTLS_NS.items()}
        return HostSettings(sysctls=times | self.sysctls, rto_min_s=floor_s * time_dilation)
