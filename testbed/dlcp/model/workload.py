"""Traffic of the fabric: training jobs (a layer profile, or a real training script) and background."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dlcp.model.base import Frozen
from dlcp.model.buffering import Buffering
from dlcp.model.faults import Fault
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
