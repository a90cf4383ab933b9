"""Make a rank of a job: what its pattern needs to know of it, and the update that the job applies."""

from __future__ import annotations

from dlcp.agents.job_spec import JobSpec
from dlcp.agents.process import profile_job
from dlcp.model.transport.settings import TransportSettings
from dlcp.patterns import pattern_of
from dlcp.patterns.base import Place, PlannedTerms
from dlcp.transport.aggregation.all_reduce_worker import AllReduceWorker
from dlcp.transport.aggregation.interfaces import GradientServer, GradientWorker, Rank
from dlcp.transport.aggregation.parameter_server import Iteration
from dlcp.transport.contract.declarations import declare_all
from dlcp.transport.contract.endpoint import Endpoint, Floats
from dlcp.transport.contract.mailbox import Mailbox
from dlcp.transport.contract.optimizer import Sgd

PROFILE_MOMENTUM = 0.0
TRAINING_WARMUP_ITERATIONS = 5
"""Iterations of a real job over which the learning rate rises."""


def place_of(spec: JobSpec, settings: TransportSettings, rank: int, endpoint: Endpoint, parameters: Floats) -> Place:
    """Return a rank's place in a job. parameters: its own, the same values at every rank."""
    traffic = spec.traffic(settings)
    mailbox = Mailbox(endpoint, PlannedTerms(pattern_of(spec.pattern), traffic))
    return Place(traffic, rank, mailbox, parameters, optimizer(spec), spec.seed, spec.record_holes)


def make_worker(pattern: str, place: Place) -> GradientWorker:
    """Agree a rank's tensors with its transport, and make the worker that the job's pattern and the settings need."""
    known_pattern = pattern_of(pattern)
    if place.traffic.settings.compression is not None and not known_pattern.sums_at_servers:
        raise ValueError(f"compressed gradients are merged by parameter servers, not by {known_pattern.a_name}")
    declare_all(place.mailbox.endpoint, known_pattern.declarations(place.traffic))
    return known_pattern.worker(place)


def make_server(pattern: str, place: Place) -> GradientServer:
    """Agree a rank's tensors with its transport, and make the server that the job's pattern and the settings need."""
    known_pattern = pattern_of(pattern)
    declare_all(place.mailbox.endpoint, known_pattern.declarations(place.traffic))
    return known_pattern.server(place)


def optimizer(spec: JobSpec) -> Sgd:
    """Optimizer of a job's servers, or of all its workers alike where there are none."""
    if spec.kind == "profile":
        return Sgd(profile_job.LEARNING_RATE, PROFILE_MOMENTUM, spec.iterations, decays=False)
    warmup = min(TRAINING_WARMUP_ITERATIONS, spec.iterations // 5)
    return Sgd(spec.learning_rate, spec.momentum, spec.iterations, warmup_iterations=warmup)


def note_coding(role: Rank, rows: list[Iteration]) -> None:
    """Tell a worker's iterations what it spent on coding in them."""
    if isinstance(role, AllReduceWorker):
        for row in rows:
            row.codec_s = role.codec_s.get(row.number, 0.0)
