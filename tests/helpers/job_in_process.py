"""A profile job whose ranks are threads of this process, over real sockets on loopback."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopback import meeting, together
from recording_endpoint import RecordingEndpoint

from dlcp.agents.job_spec import JobSpec
from dlcp.agents.precise_waits import Deadlines
from dlcp.agents.process import profile_job
from dlcp.agents.process.rank_factory import make_server, make_worker, place_of
from dlcp.agents.records import Columns, Record, iteration_columns, message_columns, read_record, write_record
from dlcp.model.transport.settings import TransportSettings
from dlcp.transport.aggregation.interfaces import GradientServer, GradientWorker
from dlcp.transport.aggregation.parameter_server import Iteration
from dlcp.transport.contract.endpoint import Completion

SOON_S = 0.05


@dataclass(frozen=True)
class Done:
    """A job that is over: its tables, and by rank what it noted, the endpoint and the endpoint's statistics."""

    iterations: Columns
    messages: Columns
    completions: list[list[Completion]]
    endpoints: list[RecordingEndpoint]
    statistics: list[dict[str, Any]]


def run_job(spec: JobSpec, settings: TransportSettings, folder: Path) -> Done:
    """Run a job as its agents would: places, peers and roles are those of its pattern."""
    meets = {rank: (spec.peers_of(rank), spec.connects_to(rank)) for rank in range(len(spec.hosts))}
    with meeting(settings, meets) as below:
        endpoints = [RecordingEndpoint(endpoint) for endpoint in below]
        places = [
            place_of(spec, settings, rank, endpoint, profile_job.initial_parameters(spec))
            for rank, endpoint in enumerate(endpoints)
        ]
        workers = [make_worker(spec.pattern, place) for place in places[: len(spec.workers)]]
        servers = [make_server(spec.pattern, place) for place in places[len(spec.workers) :]]
        for server in servers:
            server.expect_first()
        at = time.monotonic() + SOON_S
        calls = [_worker_call(spec, settings, rank, worker, at) for rank, worker in enumerate(workers)]
        calls += [_server_call(server) for server in servers]
        rows = together(calls)
        roles = [*workers, *servers]
        for role in roles:
            role.close()
        statistics = [endpoint.statistics() for endpoint in endpoints]
    records = [_record(folder, rank, rows[rank], role.completions) for rank, role in enumerate(roles)]
    tensors = spec.tensors(settings)
    messages = message_columns(spec, tensors, settings, records)
    completions = [role.completions for role in roles]
    return Done(iteration_columns(spec, records), messages, completions, endpoints, statistics)


def _worker_call(
    spec: JobSpec, settings: TransportSettings, rank: int, worker: GradientWorker, at: float
) -> Callable[[], list[Iteration]]:
    gradient = profile_job.synthetic_gradient(spec, rank)
    tensors = spec.tensors(settings)
    return lambda: profile_job.run_profile(spec, worker, tensors, gradient, Deadlines(), at, lambda done: None)


def _server_call(server: GradientServer) -> Callable[[], list[Iteration]]:
    def serve() -> list[Iteration]:
        server.run()
        return []

    return serve


def _record(folder: Path, rank: int, rows: list[Iteration], completions: list[Completion]) -> Record:
    path = folder / f"rank{rank}.npz"
    write_record(path, rank, rows, completions)
    return read_record(path)
