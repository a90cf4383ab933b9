"""A job as its agents receive it: pure data, the same at every rank, made once from the experiment."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import Field, field_validator

from dlcp.agents.scripts import JobOptions, load_script
from dlcp.model.base import Frozen
from dlcp.model.experiment import Scaling
from dlcp.model.transport.settings import TransportSettings
from dlcp.model.workload import Job, Profile, Shards, Training, Workload
from dlcp.patterns import pattern_of
from dlcp.patterns.base import Traffic
from dlcp.transport.contract.tensors import Tensor, plan_tensors

FORWARD_SHARE = 1 / 3
"""Forward share of a training job's declared compute: the backward pass multiplies twice as much, by weights and by
inputs. Layers have equal parts: in models as small as ours what a framework adds to each layer outweighs how much it
multiplies.
"""


class LayerWork(Frozen):
    """One layer as it is emulated: float32 elements on the wire, compute in emulated seconds (0 in a real job that
    declares none)."""

    name: str
    elements: int
    forward_s: float = 0.0
    backward_s: float = 0.0


class JobSpec(Frozen):
    """Everything an agent must know of a job but the transport. Ranks count the workers, then the servers (none where
    the pattern has none).

    kind: a profile waits for its compute and makes gradients from the seed; a training job runs `script`, and waits for
    the rest of the compute that its layers declare.
    """

    name: str
    kind: Literal["profile", "training"]
    workers: tuple[str, ...]
    servers: tuple[str, ...]
    pattern: str = Job.model_fields["pattern"].default
    iterations: int
    warmup_iterations: int
    bucket_bytes: int
    seed: int
    layers: tuple[LayerWork, ...] = Field(min_length=1)
    script: str = ""
    batch: int = 0
    learning_rate: float = 0.0
    momentum: float = 0.0
    evaluations: int = 0
    record_holes: bool = False
    shards: Shards = "shuffled"

    @field_validator("pattern")
    @classmethod
    def _known(cls, name: str) -> str:
        return pattern_of(name).name

    def options(self, worker: int) -> JobOptions:
        """Options of a worker's script."""
        return JobOptions(self.seed, worker, len(self.workers), self.batch, self.shards)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host of every rank."""
        return (*self.workers, *self.servers)

    @property
    def worker_ranks(self) -> list[int]:
        """Ranks of the workers."""
        return list(range(len(self.workers)))

    @property
    def server_ranks(self) -> list[int]:
        """Ranks of the servers, as Tensor.server counts them."""
        return list(range(len(self.workers), len(self.hosts)))

    @property
    def elements(self) -> int:
        """Length of the flat parameter vector."""
        return sum(layer.elements for layer in self.layers)

    @property
    def compute_s(self) -> float:
        """Nominal compute time of one iteration, emulated seconds (0 in a real job that declares none)."""
        return sum(layer.forward_s + layer.backward_s for layer in self.layers)

    def tensors(self, settings: TransportSettings) -> list[Tensor]:
        """The buckets that travel, with their tags under a scheme's settings."""
        layers = [(layer.name, layer.elements) for layer in self.layers]
        target_bytes = settings.partition_bytes or self.bucket_bytes
        return plan_tensors(layers, target_bytes, max(1, len(self.servers)), settings)

    def peers_of(self, rank: int) -> tuple[int, ...]:
        """The ranks that a rank exchanges messages with."""
        return pattern_of(self.pattern).peers(rank, len(self.workers), len(self.servers))

    def connects_to(self, rank: int) -> tuple[int, ...]:
        """Those of them to which it opens the connection, for a transport with connections."""
        return pattern_of(self.pattern).connects_to(rank, len(self.workers), len(self.servers))

    def traffic(self, settings: TransportSettings, tensors: list[Tensor] | None = None) -> Traffic:
        """Return what its pattern needs to know of it. tensors: those of these settings, where the caller has them."""
        buckets = self.tensors(settings) if tensors is None else tensors
        return Traffic(len(self.workers), len(self.servers), buckets, settings, self.iterations)

    def snapshots_of(self, worker: int) -> set[int]:
        """Iterations after which a worker keeps the parameters for evaluation: evenly spread over the job, the last
        one always, shared among the workers (all of them hold the same parameters)."""
        count = min(self.evaluations, self.iterations)
        steps = [(k + 1) * self.iterations // count - 1 for k in range(count)]
        return set(steps[worker :: len(self.workers)])


def plan_job(name: str, job: Job, workload: Workload, scaling: Scaling, seed: int) -> JobSpec:
    """Scale a job into the emulation: bytes ÷ byte_scale, compute × time_dilation.

    A training job's gradients are real: `byte_scaled` has no effect on them, only on a profile. Its compute is real,
    too, and takes as long as its workload declares.
    """
    common: dict[str, Any] = {
        "name": name,
        "workers": job.workers,
        "servers": job.servers,
        "pattern": job.pattern,
        "iterations": job.iterations,
        "warmup_iterations": job.warmup_iterations,
        "bucket_bytes": job.bucket_bytes,
        "seed": seed,
        "record_holes": job.record_holes,
    }
    if isinstance(workload, Profile):
        scale = job.scale(scaling.byte_scale)
        return JobSpec(**common, kind="profile", layers=_scaled_layers(workload, scale, scaling.time_dilation))
    layers = _script_layers(workload, scaling.time_dilation)
    return JobSpec(
        **common,
        kind="training",
        layers=layers,
        evaluations=job.evaluations,
        script=workload.script,
        batch=workload.batch,
        learning_rate=workload.learning_rate,
        momentum=workload.momentum,
        shards=job.shards,
    )


def digest(tensors: list[Tensor]) -> str:
    """A fingerprint of the buckets and their tags, for agents to compare."""
    return hashlib.sha256(json.dumps([list(vars(tensor).values()) for tensor in tensors]).encode()).hexdigest()[:16]


def _scaled_layers(profile: Profile, byte_scale: float, dilation: float) -> tuple[LayerWork, ...]:
    return tuple(
        LayerWork(
            name=layer.name,
            elements=max(1, round(layer.parameters / byte_scale)),
            forward_s=layer.forward_s * dilation,
            backward_s=layer.backward_s * dilation,
        )
        for layer in profile.layers
    )


def _script_layers(training: Training, dilation: float) -> tuple[LayerWork, ...]:
    named = load_script(training.script).LAYERS
    each_s = (training.compute_s or 0.0) * dilation / len(named)
    return tuple(
        LayerWork(
            name=name,
            elements=elements,
            forward_s=each_s * FORWARD_SHARE,
            backward_s=each_s * (1 - FORWARD_SHARE),
        )
        for name, elements in named
    )
