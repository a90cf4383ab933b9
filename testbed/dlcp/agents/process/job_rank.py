"""One rank of one job: the commands that open its transport, prepare its part of the job, run it and write what was
measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlcp.agents import records
from dlcp.agents.costs import CostMeter
from dlcp.agents.job_spec import JobSpec, digest
from dlcp.agents.precise_waits import Deadlines
from dlcp.agents.process import profile_job
from dlcp.agents.process.commands import earlier
from dlcp.agents.process.rank_factory import make_server, make_worker, note_coding, place_of
from dlcp.agents.scripts import framework_of_script, warm_script
from dlcp.frameworks.base import Training
from dlcp.frameworks.compute_pace import Pace
from dlcp.model.transport.settings import TransportSettings
from dlcp.transport.aggregation.interfaces import GradientServer, GradientWorker, Rank
from dlcp.transport.aggregation.parameter_server import Iteration, Server, parameters_crc32
from dlcp.transport.contract.endpoint import Endpoint, Floats
from dlcp.transport.factory import meet, open_endpoint, source_ports

NOT_OPEN, NOT_PREPARED = "open comes before {}", "prepare comes before {}"


@dataclass
class Opened:
    """Result of `open`: the rank's end of the transport."""

    rank: int
    settings: TransportSettings
    endpoint: Endpoint


@dataclass
class Prepared:
    """Result of `prepare`. run: does this rank's part from an instant on; returns a row an iteration of a worker.
    training: of a training job's worker; pace: of one that declares its compute."""

    role: Rank
    run: Callable[[float], list[Iteration]]
    training: Training | None = None
    pace: Pace | None = None


@dataclass
class Measured:
    """Result of `start`. costs: see CostMeter. cpu_busy: share of one core that this process took in the job."""

    rows: list[Iteration] = field(default_factory=list)
    costs: dict[str, Any] = field(default_factory=dict)
    cpu_busy: float = 0.0


class JobRank:
    """One rank of one job. progress: the iterations done, and "idle", "running", "done" or "failed"."""

    def __init__(self) -> None:
        self.progress: dict[str, Any] = {"iteration": 0, "state": "idle"}
        self._opened: Opened | None = None
        self._prepared: Prepared | None = None
        self._measured = Measured()
        self._deadlines = Deadlines()

    def open(
        self,
        rank: int,
        address: str,
        port: int,
        peers: dict[str, list[Any]],
        settings: dict[str, Any],
        cookie: int,
        connects_to: list[int],
        link_rate_bps: float,
    ) -> dict[str, Any]:
        """Open this rank's transport; returns when every peer is there. source_ports: see `meet`."""
        transport = TransportSettings.model_validate(settings)
        endpoint = open_endpoint(
            rank,
            address,
            port,
            {int(peer): (host, at) for peer, (host, at) in peers.items()},
            transport,
            job_cookie=cookie,
            connects_to=tuple(connects_to),
            link_rate_bps=link_rate_bps,
        )
        self._opened = Opened(rank, transport, endpoint)
        return {"source_ports": source_ports(endpoint)}

    def meet(self, peers: dict[str, list[Any]]) -> dict[str, Any]:
        """Learn of peers that send from several ports: rank → address, port, source ports."""
        endpoint = earlier(self._opened, NOT_OPEN.format("meet")).endpoint
        meet(endpoint, {int(peer): (host, at, others) for peer, (host, at, others) in peers.items()})
        return {}

    def prepare(self, job: dict[str, Any]) -> dict[str, Any]:
        """Make the job's buffers, agree its tensors; a server registers its first receives."""
        opened = earlier(self._opened, NOT_OPEN.format("prepare"))
        spec = JobSpec.model_validate(job)
        is_worker = opened.rank < len(spec.workers)
        script_job: Any = None
        if spec.kind == "training":
            script_job = warm_script(spec.script).job(spec.options(opened.rank if is_worker else 0))
            parameters: Floats = script_job.initial_parameters()
        else:
            parameters = profile_job.initial_parameters(spec)
        place = place_of(spec, opened.settings, opened.rank, opened.endpoint, parameters)
        if is_worker:
            self._prepared = self._worker(spec, opened, make_worker(spec.pattern, place), script_job)
        else:
            server = make_server(spec.pattern, place)
            server.expect_first()
            self._prepared = Prepared(server, lambda at: _serve_all(server))
        return {
            "tensors": digest(spec.tensors(opened.settings)),
            "parameters_crc32": parameters_crc32(parameters),
        }

    def start(self, at: float, give_up_at: float) -> dict[str, Any]:
        """Run the job from the instant `at` on (CLOCK_MONOTONIC); returns when this rank has done its part."""
        opened = earlier(self._opened, NOT_PREPARED.format("start"))
        prepared = earlier(self._prepared, NOT_PREPARED.format("start"))
        self.progress["state"] = "running"
        prepared.role.patience.give_up_at_s = give_up_at
        prepared.role.patience.stall_timeout_s *= opened.settings.time_dilation
        meter = CostMeter()
        rows = prepared.run(at)
        note_coding(prepared.role, rows)
        costs = meter.read()
        cpu_busy = (costs["cpu_user_s"] + costs["cpu_system_s"]) / (time.monotonic() - at)
        self._measured = Measured(rows, costs, cpu_busy)
        self.progress["state"] = "done"
        return {"end_s": rows[-1].end_s} if rows else {}

    def collect(self, path: str) -> dict[str, Any]:
        """Write this rank's measurements to `path` and return its counters.

        waits_late_s: how late each timed wait ended; sched_late_s: their 99th percentile; cpu_busy, costs: see
        Measured; told: Rank.extra. compute_over_s, compute_over_share: of a training job that declares its compute, by
        how much (emulated seconds, at worst) and in which share of the iterations a layer's real compute took longer;
        else 0. compute_late: see Pace.late; None of any other job.
        """
        opened = earlier(self._opened, NOT_OPEN.format("collect"))
        prepared, measured = earlier(self._prepared, NOT_PREPARED.format("collect")), self._measured
        role, pace = prepared.role, prepared.pace
        holes = role.holes if isinstance(role, Server) else ()
        records.write_record(Path(path), opened.rank, measured.rows, role.completions, holes)
        return {
            "transport": opened.endpoint.statistics(),
            "sched_late_s": self._deadlines.late_s(),
            "waits_late_s": self._deadlines.waits,
            "cpu_busy": measured.cpu_busy,
            "costs": measured.costs,
            "compute_over_s": pace.over_s if pace is not None else 0.0,
            "compute_over_share": pace.over_share if pace is not None else 0.0,
            "compute_late": pace.late if pace is not None else None,
            "told": role.extra(),
        }

    def evaluate(self) -> dict[str, Any]:
        """Evaluate this worker's share of the snapshots on the whole test set: rows of (step, time, loss, accuracy)."""
        training = self._prepared.training if self._prepared is not None else None
        return {"rows": earlier(training, "only a training job's worker evaluates").evaluate()}

    def close(self) -> dict[str, Any]:
        """Close the transport."""
        if self._prepared is not None:
            self._prepared.role.close()
        if self._opened is not None:
            self._opened.endpoint.close()
        return {}

    def _worker(self, spec: JobSpec, opened: Opened, worker: GradientWorker, script_job: Any) -> Prepared:
        """A worker's part. script_job: what the script of a training job made."""
        tensors = spec.tensors(opened.settings)
        if spec.kind == "training":
            pace = self._pace(spec)
            snapshots = spec.snapshots_of(opened.rank)
            framework = framework_of_script(spec.script)
            training = framework.training(script_job, worker, tensors, spec.iterations, snapshots, pace)
            return Prepared(worker, lambda at: training.run(at, self._on_iteration), training, pace)
        gradient = profile_job.synthetic_gradient(spec, opened.rank)
        return Prepared(
            worker,
            lambda at: profile_job.run_profile(
                spec, worker, tensors, gradient, self._deadlines, at, self._on_iteration
            ),
        )

    def _pace(self, spec: JobSpec) -> Pace | None:
        """The pace of a training job's compute where it is declared."""
        if not spec.compute_s:
            return None
        forward_s = [layer.forward_s for layer in spec.layers]
        backward_s = [layer.backward_s for layer in spec.layers]
        return Pace(forward_s, backward_s, self._deadlines.sleep_until)

    def _on_iteration(self, done: int) -> None:
        self.progress["iteration"] = done


def _serve_all(server: GradientServer) -> list[Iteration]:
    server.run()
    return []
