"""What a rank of a job is: one function makes the worker of each pattern, one the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dlcp.agents.job_spec import JobSpec, coded_job
from dlcp.agents.process import profile_job
from dlcp.model.workload import TransportSettings
from dlcp.transport.aggregation.all_reduce_worker import AllReduceWorker
from dlcp.transport.aggregation.compressed_server import CompressedServer, CompressedWorker
from dlcp.transport.aggregation.dblp import PhaseServer, PhaseWorker
from dlcp.transport.aggregation.interfaces import GradientServer, GradientWorker, Rank
from dlcp.transport.aggregation.ltp import EarlyClosing
from dlcp.transport.aggregation.parameter_server import Iteration, Server, Worker, declare
from dlcp.transport.aggregation.ring_worker import RingWorker
from dlcp.transport.aggregation.transpose_worker import TransposeWorker
from dlcp.transport.contract.endpoint import Endpoint, Floats
from dlcp.transport.contract.optimizer import Sgd
from dlcp.transport.contract.tensors import Tensor

PROFILE_MOMENTUM = 0.0
TRAINING_WARMUP_ITERATIONS = 5
"""Iterations of a real job over which the learning rate rises."""


@dataclass(frozen=True)
class Place:
    """A rank that is about to take part: what it is told, and its own parameters (the same values at every rank)."""

    spec: JobSpec
    settings: TransportSettings
    rank: int
    endpoint: Endpoint
    tensors: list[Tensor]
    parameters: Floats


def make_worker(place: Place) -> GradientWorker:
    """The worker that the job's pattern and the settings' compression need; its tensors are agreed with the
    transport."""
    if place.settings.compression is not None:
        return _compressed_worker(place)
    return _WORKERS[place.spec.pattern](place)


def make_server(place: Place) -> GradientServer:
    """The parameter server that it is; its tensors are agreed with the transport."""
    spec, settings = place.spec, place.settings
    if settings.compression is not None:
        job = coded_job(spec, settings)
        return CompressedServer(
            place.endpoint, job, job.compressors(-1, spec.seed, 0.0), place.rank - len(spec.workers),
            spec.worker_ranks, bounds=spec.bounds(settings),
        )  # fmt: skip
    index = place.rank - len(spec.workers)
    if settings.phases is not None:
        return PhaseServer(
            place.endpoint, place.tensors, index, spec.worker_ranks, place.parameters, optimizer(spec), settings,
            spec.bounds(settings), record_holes=spec.record_holes,
        )  # fmt: skip
    declare(place.endpoint, place.tensors, settings)
    return Server(
        place.endpoint, place.tensors, index, spec.worker_ranks, place.parameters, optimizer(spec),
        bounds=spec.bounds(settings), holes=settings.holes, record_holes=spec.record_holes,
        closing=EarlyClosing(settings.early_close) if settings.early_close else None,
    )  # fmt: skip


def optimizer(spec: JobSpec) -> Sgd:
    """What the servers of a job apply, or all its workers alike where there are none."""
    if spec.kind == "profile":
        return Sgd(profile_job.LEARNING_RATE, PROFILE_MOMENTUM, spec.iterations, decays=False)
    warmup = min(TRAINING_WARMUP_ITERATIONS, spec.iterations // 5)
    return Sgd(spec.learning_rate, spec.momentum, spec.iterations, warmup_iterations=warmup)


def note_coding(role: Rank, rows: list[Iteration]) -> None:
    """Tell a worker's iterations what it spent on coding in them."""
    if isinstance(role, AllReduceWorker):
        for row in rows:
            row.codec_s = role.codec_s.get(row.number, 0.0)


def told_by(role: Rank) -> dict[str, Any]:
    """What a rank can tell of its scheme beyond counters, by topic (RunResult.extra); pure JSON."""
    if isinstance(role, PhaseServer):
        return {"phases": {str(iteration): bound for iteration, bound in role.told().items()}}
    if isinstance(role, TransposeWorker) and role.stage_times is not None:
        return {"stage_times": role.stage_times.told()}
    return {}


def _compressed_worker(place: Place) -> CompressedWorker:
    spec, settings = place.spec, place.settings
    if spec.pattern != "parameter-server":
        raise ValueError(f"compressed gradients are merged by parameter servers, not by a {spec.pattern}")
    job, update = coded_job(spec, settings), optimizer(spec)
    compressors = job.compressors(place.rank, spec.seed, update.momentum)
    return CompressedWorker(
        place.endpoint, job, compressors, spec.server_ranks, place.parameters, job.update(update),
        bounds=spec.bounds(settings),
    )  # fmt: skip


def _served_worker(place: Place) -> Worker:
    bounds = place.spec.bounds(place.settings)
    if place.settings.phases is not None:
        servers = place.spec.server_ranks
        return PhaseWorker(place.endpoint, place.tensors, servers, place.parameters, place.settings, bounds)
    declare(place.endpoint, place.tensors, place.settings)
    return Worker(place.endpoint, place.tensors, place.spec.server_ranks, place.parameters, bounds=bounds)


def _ring_worker(place: Place) -> RingWorker:
    spec, settings = place.spec, place.settings
    return RingWorker(
        place.endpoint, place.tensors, place.rank, len(spec.workers), place.parameters, optimizer(spec), settings,
        bounds=spec.bounds(settings),
    )  # fmt: skip


def _transpose_worker(place: Place) -> TransposeWorker:
    spec, settings = place.spec, place.settings
    return TransposeWorker(
        place.endpoint, place.tensors, place.rank, len(spec.workers), place.parameters, optimizer(spec), settings,
        spec.bounds(settings),
    )  # fmt: skip


_WORKERS: dict[str, Callable[[Place], GradientWorker]] = {
    "parameter-server": _served_worker,
    "ring": _ring_worker,
    "transpose": _transpose_worker,
}
