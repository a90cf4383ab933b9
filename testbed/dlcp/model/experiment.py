"""Model of an experiment file: one YAML file that runs on every substrate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from dlcp.errors import Problem
from dlcp.model.base import Frozen
from dlcp.model.buffering import Buffering, shared_bytes
from dlcp.model.faults import Fault
from dlcp.model.frames import FRAME_BYTES
from dlcp.model.qos import MOST_AVERAGING, QUEUES, LoadBalancing, Pfc, QosIntent
from dlcp.model.topology import Topology
from dlcp.model.units import Duration, Fraction, QuantityError, Rate, Size, show_duration
from dlcp.model.workload import Background, Job

FORMAT_VERSION = 1

SHORTEST_SAMPLE_S = 0.001
"""Between two samples of the backlog: 8 frame times at 100 Mbit/s. Sampling goes ahead of the agents, so that more
of it would take their cores."""


class Scaling(Frozen):
    """How a lab is shrunk into this machine.

    Message sizes are divided by byte_scale; compute times and every time constant of transports, agents and switches
    are multiplied by time_dilation (EMULATOR.md, "Time dilation"). What a topology, the faults and the background say
    is as emulated: links run at lab_rate / (byte_scale · time_dilation), and a delay there is the lab's times
    time_dilation.
    fit: machine = a run dilates the experiment further, as far as the machine that emulates it needs to be believed.
    dilated_by, scaled_down: by how much `fit` or `--scale-down` has multiplied time_dilation, and byte_scale, beyond
    what is written; link rates are divided by both.
    """

    lab_rate_bps: Rate = Field(alias="lab_rate")
    byte_scale: float = Field(default=1.0, ge=1)
    time_dilation: float = Field(default=1.0, ge=1)
    fit: Literal["machine"] | None = None
    dilated_by: float = Field(default=1.0, ge=1)
    scaled_down: float = Field(default=1.0, ge=1)

    @field_validator("dilated_by", "scaled_down")
    @classmethod
    def _not_written(cls, factor: float, info: ValidationInfo) -> float:
        if info.context is not None and info.context.get("written", False):
            raise QuantityError(f"`{info.field_name}` is what `dlcp run --scale-down` has done", "leave it out")
        return factor

    @property
    def as_written(self) -> bool:
        """True if nothing was scaled beyond the values in the file."""
        return self.dilated_by == 1 and self.scaled_down == 1


class SchemeChoice(Frozen):
    """A scheme under comparison: which one, its label in tables and plots, and the knobs that differ from its own.

    knobs_for: job → knobs that differ there besides. search: knob → values; `dlcp tune` tries all combinations for each
    job and records the best, which the runs then use.
    """

    scheme: str
    label: str
    knobs: dict[str, Any] = Field(default_factory=dict)
    knobs_for: dict[str, dict[str, Any]] = Field(default_factory=dict)
    search: dict[str, tuple[Any, ...]] = Field(default_factory=dict)

    def of_job(self, name: str, found: Mapping[str, Any] | None = None) -> SchemeChoice:
        """As one job meets it: nothing is left open. found: what a search chose for it."""
        knobs = self.knobs | self.knobs_for.get(name, {}) | dict(found or {})
        return self.model_copy(update={"knobs": knobs, "knobs_for": {}, "search": {}})


class Expectation(Frozen):
    """An ordering that the experiment claims: `metric` of `scheme` against `against`, in one job.

    better: the 95 % intervals do not overlap, in the better direction. not-worse: the paired interval of the
    difference reaches the good side or zero; with a margin, the whole interval is less than the margin on the bad
    side, so that too few repeats cannot make it hold. margin: points of a share or an accuracy (1 % is one point),
    per cent of a time. paper: what was published that leads to it, and where. why: the mechanism that should bring it
    about here, or what of the published setting is missing.
    """

    job: str
    metric: str
    scheme: str
    against: str
    relation: Literal["better", "not-worse"]
    margin: Fraction | None = Field(default=None, gt=0, lt=1)
    paper: str = ""
    why: str = ""


class SharedBuffer(Frozen):
    """Memory that all ports of a switch share. With dynamic buffering it stands in place of the size that follows from
    `port_buffer`, and a port has no other limit; with static buffering a port holds no more than `port_buffer` besides.

    alpha: a queue may hold alpha times what is free of it, unless the scheme says otherwise for the queue.
    """

    size_bytes: Size = Field(alias="size")
    alpha: float = Field(default=1.0, gt=0, le=128)


class QueueRule(Frozen):
    """Settings of one queue at every port of every switch, whatever the scheme says of it. The rest is the scheme's.

    limit_bytes, averaging, alpha, weight: as in QueueIntent; None = as the scheme says.
    """

    queue: int = Field(ge=0, lt=QUEUES)
    limit_bytes: Size | None = Field(default=None, alias="limit")
    averaging: int | None = Field(default=None, ge=0, le=MOST_AVERAGING)
    alpha: float | None = Field(default=None, gt=0, le=128)
    weight: int | None = Field(default=None, ge=1, le=64)


class Reduced(Frozen):
    """The part of an experiment that is made where many are (`dlcp paper`): runs of it are runs of the whole.

    None: all of them. repeats: the first so many. jobs, schemes: names, and labels.
    """

    repeats: int | None = Field(default=None, ge=1)
    jobs: tuple[str, ...] | None = Field(default=None, min_length=1)
    schemes: tuple[str, ...] | None = Field(default=None, min_length=1)


class Experiment(Frozen):
    """Everything that defines a set of runs: schemes × jobs × repeats.

    port_buffer_bytes: what one congested queue of an otherwise idle switch may hold, beyond its minimum; with static
    buffering, what all queues of a port hold together.
    load_balancing: switch → how it balances under every scheme; switches that are not named do as the scheme says.
    flowlet_gap_s: the pause, in emulated time, that parts two flowlets; None = the scheme's, which is in lab time.
    backlog_every_s: how often every queue's backlog is sampled into the table `backlog`; None = never.
    reduced, quick: what of it `dlcp paper`, and `dlcp paper --quick`, make; None = nothing.
    """

    format: Literal[1]
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    description: str
    seed: int = Field(ge=0)
    repeats: int = Field(ge=1, le=1000)
    time_limit_s: Duration = Field(default=120.0, alias="time_limit")
    topology: Topology
    port_buffer_bytes: Size = Field(alias="port_buffer")
    scaling: Scaling
    buffering: Buffering = Buffering()
    shared_buffer: SharedBuffer | None = None
    queues: tuple[QueueRule, ...] = ()
    load_balancing: dict[str, LoadBalancing] = Field(default_factory=dict)
    flowlet_gap_s: Duration | None = Field(default=None, alias="flowlet_gap", gt=0)
    pfc: Pfc | None = None
    faults: tuple[Fault, ...] = ()
    backlog_every_s: Duration | None = Field(default=None, alias="backlog_every")
    jobs: dict[str, Job] = Field(min_length=1)
    background: tuple[Background, ...] = ()
    schemes: tuple[SchemeChoice, ...] = Field(min_length=1)
    expect: tuple[Expectation, ...] = ()
    reduced: Reduced | None = None
    quick: Reduced | None = None

    def of_job(self, name: str) -> Experiment:
        """The experiment as one of its jobs meets it: with the background, the faults and the buffers
        of switches that the job has its own."""
        job = self.jobs[name]
        job_values = {
            "background": job.background,
            "faults": job.faults,
            "port_buffer_bytes": job.port_buffer_bytes,
            "buffering": job.buffering,
        }
        return self.model_copy(update={key: value for key, value in job_values.items() if value is not None})

    @property
    def fabrics(self) -> list[Experiment]:
        """The experiment once for each way in which its jobs have the switches buffer."""
        met = [self.of_job(name) for name in self.jobs]
        return list({(each.port_buffer_bytes, each.buffering): each for each in reversed(met)}.values())[::-1]

    @field_validator("backlog_every_s")
    @classmethod
    def _leaves_cores_to_the_job(cls, every_s: float | None) -> float | None:
        if every_s is not None and every_s < SHORTEST_SAMPLE_S:
            problem = f"a sample every {show_duration(every_s)} would take the cores that the job needs"
            raise QuantityError(problem, f"{show_duration(SHORTEST_SAMPLE_S)} or more")
        return every_s


def experiment_intent(experiment: Experiment, intent: QosIntent) -> QosIntent:
    """Return the intent of every switch in a run: a scheme's intent, and what the experiment says of all schemes'
    switches.

    The experiment's alpha and minimum hold for each queue to which neither the scheme nor `queues` gives more. Raises
    ValidationError when the two do not hold together.
    """
    gap_s = experiment.flowlet_gap_s
    more = {
        "queues": _queues(experiment, intent),
        "switch_load_balancing": intent.switch_load_balancing | experiment.load_balancing,
        "flowlet_gap_s": intent.flowlet_gap_s * experiment.scaling.time_dilation if gap_s is None else gap_s,
        "pfc": experiment.pfc or intent.pfc,
    }
    made = QosIntent.model_validate(intent.model_dump() | more)
    buffers = _dynamic_buffers if experiment.buffering.dynamic else _static_buffers
    return QosIntent.model_validate(made.model_dump() | buffers(experiment, made))


def _static_buffers(experiment: Experiment, intent: QosIntent) -> dict[str, Any]:
    """The scheme's intent as it is; a shared buffer bounds all ports besides."""
    shared = experiment.shared_buffer
    return {} if shared is None else {"shared_buffer_bytes": shared.size_bytes, "alpha": shared.alpha}


def _dynamic_buffers(experiment: Experiment, intent: QosIntent) -> dict[str, Any]:
    """Minima, thresholds, and a shared memory in which a queue that is alone ends at port_buffer; a port has no limit
    but these.

    What a scheme reserves for a queue beyond the minimum it pays with what its queues share, so that a reservation is
    no gift of memory. A lossless queue has a pool of its own, of port_buffer or of its lower limit, and takes nothing
    of the memory that the others share, as chips keep lossless traffic apart.
    """
    buffering, shared, port_buffer_bytes = experiment.buffering, experiment.shared_buffer, intent.port_buffer_bytes
    alpha = buffering.alpha if shared is None else shared.alpha
    lossless = intent.pfc.queues if intent.pfc else ()
    own_bytes = {number: queue.reserved_bytes for number, queue in intent.queues.items() if number not in lossless}
    paid_bytes = sum(max(0, size_bytes - buffering.minimum_bytes) for size_bytes in own_bytes.values())
    if paid_bytes + FRAME_BYTES > port_buffer_bytes:
        raise Problem(
            f"QoS intent {intent.name}",
            f"its queues reserve {paid_bytes} B beyond their minima, of a port_buffer of {port_buffer_bytes} B: "
            "nothing is left to share",
            "reserve less, or enlarge port_buffer",
        )
    queues = {number: queue.model_dump() for number, queue in intent.queues.items()}
    for number in lossless:
        queue_intent = intent.queue(number)
        pool_bytes = (
            port_buffer_bytes if queue_intent.limit_bytes is None else min(queue_intent.limit_bytes, port_buffer_bytes)
        )
        queues[number] = queue_intent.model_dump() | {"reserved_bytes": pool_bytes, "limit_bytes": pool_bytes}
    memory_bytes = shared_bytes(port_buffer_bytes - paid_bytes, alpha) if shared is None else shared.size_bytes
    more = {
        "queues": queues,
        "shared_buffer_bytes": memory_bytes,
        "alpha": alpha,
        "minimum_bytes": buffering.minimum_bytes,
    }
    merged = QosIntent.model_validate(intent.model_dump() | more)
    return more | {"port_buffer_bytes": memory_bytes + merged.reserved_bytes}


def _queues(experiment: Experiment, intent: QosIntent) -> dict[int, dict[str, Any]]:
    """Queue → its intent's fields, of those that the scheme or the experiment says something of."""
    queue_values = {number: queue.model_dump() for number, queue in intent.queues.items()}
    for rule in experiment.queues:
        rule_values = rule.model_dump(exclude={"queue"}, exclude_none=True)
        queue_values[rule.queue] = queue_values.get(rule.queue, intent.queue(rule.queue).model_dump()) | rule_values
    return queue_values
