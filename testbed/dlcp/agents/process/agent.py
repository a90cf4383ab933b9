"""The agent: one process on a host, commanded in JSON lines, one reply a command. It dies when its channel ends.

A command is {"id": n, "command": name, ...}, its reply {"id": n, "ok": true, "result": {...}} or
{"id": n, "ok": false, "error": text}. Commands run one after the other; `status` and `clock` are answered at any time.
An empty line is no command, but a sign that the caller lives.
"""

from __future__ import annotations

import json
import os
import queue
import select
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dlcp.agents import records
from dlcp.agents.costs import CostMeter
from dlcp.agents.file_transfer import read_part
from dlcp.agents.job_spec import JobSpec, digest
from dlcp.agents.machine_monitor import MachineMonitor
from dlcp.agents.precise_waits import Deadlines, be_punctual, take_short_turns
from dlcp.agents.process import probes, profile_job
from dlcp.agents.process.background import HostTraffic
from dlcp.agents.process.hello import introduction
from dlcp.agents.process.rank_factory import make_server, make_worker, note_coding, place_of
from dlcp.agents.scripts import framework_of_script, warm_script
from dlcp.errors import Problem
from dlcp.frameworks.compute_pace import Pace
from dlcp.model.workload import TransportSettings
from dlcp.traffic.plan import TrafficSpec
from dlcp.transport.aggregation.interfaces import GradientServer, GradientWorker, Rank
from dlcp.transport.aggregation.parameter_server import Iteration, Server, parameters_crc32
from dlcp.transport.contract.endpoint import Endpoint, Floats, TransportError
from dlcp.transport.factory import meet, open_endpoint, source_ports

READ_BYTES = 65_536


class Agent:
    """One rank of one job, one host's background traffic, or its probes; each public method is a command."""

    def __init__(self) -> None:
        self.progress = {"iteration": 0, "state": "idle"}
        self._folder = Path.cwd()
        self._endpoint: Endpoint | None = None
        self._settings = TransportSettings(kind="tcp")
        self._rank = -1
        self._spec: JobSpec | None = None
        self._runner: Callable[[float], list[Iteration]] | None = None
        self._role: Rank | None = None
        self._rows: list[Iteration] = []
        self._deadlines = Deadlines()
        self._cpu_busy = 0.0
        self._costs: dict[str, Any] = {}
        self._training: Any = None
        self._evaluate: Callable[[], list[tuple[int, float, float, float]]] | None = None
        self._traffic: HostTraffic | None = None
        self._probe_source: probes.Source | None = None
        self._probe_sink: probes.Sink | None = None
        self._machine: MachineMonitor | None = None
        self._pace: Pace | None = None

    def hello(self) -> dict[str, Any]:
        """Identity and abilities of this agent: see `introduction`."""
        return introduction()

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
        self._rank, self._settings = rank, TransportSettings.model_validate(settings)
        self._endpoint = open_endpoint(
            rank, address, port, {int(peer): (host, at) for peer, (host, at) in peers.items()}, self._settings,
            job_cookie=cookie, connects_to=tuple(connects_to), link_rate_bps=link_rate_bps,
        )  # fmt: skip
        return {"source_ports": source_ports(self._endpoint)}

    def meet(self, peers: dict[str, list[Any]]) -> dict[str, Any]:
        """Learn of peers that send from several ports: rank → address, port, source ports."""
        assert self._endpoint is not None, "open comes before meet"
        meet(self._endpoint, {int(peer): (host, at, others) for peer, (host, at, others) in peers.items()})
        return {}

    def prepare(self, job: dict[str, Any]) -> dict[str, Any]:
        """Make the job's buffers, agree its tensors; a server registers its first receives."""
        assert self._endpoint is not None, "open comes before prepare"
        spec = self._spec = JobSpec.model_validate(job)
        tensors = spec.tensors(self._settings)
        is_worker = self._rank < len(spec.workers)
        if spec.kind == "training":
            self._training = warm_script(spec.script).job(spec.options(self._rank if is_worker else 0))
            parameters: Floats = self._training.initial_parameters()
        else:
            parameters = profile_job.initial_parameters(spec)
        place = place_of(spec, self._settings, self._rank, self._endpoint, parameters)
        if is_worker:
            self._role = worker = make_worker(spec.pattern, place)
            self._runner = self._worker_runner(spec, worker)
        else:
            self._role = server = make_server(spec.pattern, place)
            server.expect_first()
            self._runner = lambda at: _serve_all(server)
        return {"tensors": digest(tensors), "parameters_crc32": parameters_crc32(parameters)}

    def start(self, at: float, give_up_at: float) -> dict[str, Any]:
        """Run the job from the instant `at` on (CLOCK_MONOTONIC); returns when this rank has done its part."""
        assert self._runner is not None, "prepare comes before start"
        assert self._role is not None
        self.progress["state"] = "running"
        self._role.patience.give_up_at_s = give_up_at
        self._role.patience.stall_timeout_s *= self._settings.time_dilation
        costs = CostMeter()
        self._rows = self._runner(at)
        note_coding(self._role, self._rows)
        self._costs = costs.read()
        self._cpu_busy = (self._costs["cpu_user_s"] + self._costs["cpu_system_s"]) / (time.monotonic() - at)
        self.progress["state"] = "done"
        return {"end_s": self._rows[-1].end_s} if self._rows else {}

    def collect(self, path: str) -> dict[str, Any]:
        """Write this rank's measurements to `path` and return its counters.

        waits_late_s: how late each timed wait ended; sched_late_s: their 99th percentile; cpu_busy: share of one core
        that this process took in the job; costs: see CostMeter; told: Rank.extra. compute_over_s, compute_over_share:
        of a training job that declares its compute, by how much (emulated seconds, at worst) and in which share of the
        iterations a layer's real compute took longer; else 0. compute_late: see Pace.late; None of any other job.
        """
        assert self._endpoint is not None, "open comes before collect"
        assert self._role is not None, "prepare comes before collect"
        holes = self._role.holes if isinstance(self._role, Server) else ()
        records.write_record(Path(path), self._rank, self._rows, self._role.completions, holes)
        return {
            "transport": self._endpoint.statistics(),
            "sched_late_s": self._deadlines.late_s(),
            "waits_late_s": self._deadlines.waits,
            "cpu_busy": self._cpu_busy,
            "costs": self._costs,
            "compute_over_s": self._pace.over_s if self._pace is not None else 0.0,
            "compute_over_share": self._pace.over_share if self._pace is not None else 0.0,
            "compute_late": self._pace.late if self._pace is not None else None,
            "told": self._role.extra(),
        }

    def evaluate(self) -> dict[str, Any]:
        """Evaluate this worker's share of the snapshots on the whole test set: rows of (step, time, loss, accuracy)."""
        assert self._evaluate is not None, "only a training job's worker evaluates"
        return {"rows": self._evaluate()}

    def background(
        self, host: str, spec: dict[str, Any], addresses: dict[str, str], tos: list[int], cookie: int
    ) -> dict[str, Any]:
        """Get a host's background traffic ready: its part of the plan, which follows from the spec."""
        self._traffic = HostTraffic(host, TrafficSpec.model_validate(spec), addresses, tos, cookie)
        return {}

    def start_background(self, at: float) -> dict[str, Any]:
        """Send from the instant `at` on (CLOCK_MONOTONIC)."""
        assert self._traffic is not None, "background comes before start_background"
        self._traffic.start(at)
        return {}

    def stop_sending(self) -> dict[str, Any]:
        """End the sending; returns what was due until now and what was sent. Nothing for a host that sends nothing."""
        assert self._traffic is not None, "background comes before stop_sending"
        return self._traffic.stop_sending()

    def stop_counting(self, path: str) -> dict[str, Any]:
        """End the counting; returns what arrived, and writes what became of each flow to `path`."""
        assert self._traffic is not None, "background comes before stop_counting"
        return self._traffic.stop_counting(Path(path))

    def open_probes(self, address: str, port: int) -> dict[str, Any]:
        """Be a source and a sink of probes; both ends use the same UDP port."""
        probes.hurry()
        self._probe_source, self._probe_sink = probes.Source(address, port), probes.Sink(address, port)
        return {}

    def send_probes(self, trains: list[dict[str, Any]], at: float) -> dict[str, Any]:
        """Send trains of probes from the instant `at` on; returns when all are sent."""
        assert self._probe_source is not None, "open_probes comes before send_probes"
        return self._probe_source.send(trains, at)

    def collect_probes(self) -> dict[str, Any]:
        """The probes that arrived since the last time."""
        assert self._probe_sink is not None, "open_probes comes before collect_probes"
        return self._probe_sink.collect()

    def watch_machine(self) -> dict[str, Any]:
        """Sample how busy this machine is, until stop_watching."""
        self._machine = MachineMonitor().__enter__()
        return {}

    def stop_watching(self) -> dict[str, Any]:
        """Samples, as rows of the table `hosts`, since begun_s. Instants are of CLOCK_MONOTONIC."""
        assert self._machine is not None, "watch_machine comes before stop_watching"
        self._machine.__exit__()
        return {"begun_s": self._machine.begun_s, "rows": self._machine.rows}

    def hand_over(self, name: str, offset: int) -> dict[str, Any]:
        """A part of a file that it wrote in the folder it works in: see `read_part`."""
        return read_part(self._folder, name, offset)

    def close(self) -> dict[str, Any]:
        """Close the transport."""
        if self._role is not None:
            self._role.close()
        if self._endpoint is not None:
            self._endpoint.close()
        return {}

    def _worker_runner(self, spec: JobSpec, worker: GradientWorker) -> Callable[[float], list[Iteration]]:
        tensors = spec.tensors(self._settings)
        if spec.kind == "training":
            if spec.compute_s:
                forward_s = [layer.forward_s for layer in spec.layers]
                backward_s = [layer.backward_s for layer in spec.layers]
                self._pace = Pace(forward_s, backward_s, self._deadlines.sleep_until)
            snapshots = spec.snapshots_of(self._rank)
            framework = framework_of_script(spec.script)
            trainer = framework.training(self._training, worker, tensors, spec.iterations, snapshots, self._pace)
            self._evaluate = trainer.evaluate
            return lambda at: trainer.run(at, self._on_iteration)
        gradient = profile_job.synthetic_gradient(spec, self._rank)
        return lambda at: profile_job.run_profile(
            spec, worker, tensors, gradient, self._deadlines, at, self._on_iteration
        )

    def _on_iteration(self, done: int) -> None:
        self.progress["iteration"] = done


def _serve_all(server: GradientServer) -> list[Iteration]:
    server.run()
    return []


_COMMANDS = frozenset(name for name in vars(Agent) if not name.startswith("_") and callable(vars(Agent)[name]))


def serve(
    read_fd: int, write_fd: int, *, silence_s: float | None = None, on_end: Callable[[], None] = lambda: None
) -> None:
    """Obey the commands that come from read_fd until it ends; then the process exits, whatever it is doing.

    silence_s: a caller that says nothing for so long is taken for gone. on_end: what to do before exiting.
    """
    be_punctual()
    take_short_turns()
    agent = Agent()
    commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    lock = threading.Lock()
    at_any_time: dict[str, Callable[[], dict[str, Any]]] = {"status": lambda: dict(agent.progress), "clock": _clock}

    def reply(message: dict[str, Any]) -> None:
        with lock:
            _write_all(write_fd, json.dumps(message).encode() + b"\n")

    def listen() -> None:
        try:
            for line in _lines(read_fd, silence_s):
                command = json.loads(line)
                if command.get("command") in at_any_time:
                    reply({"id": command["id"], "ok": True, "result": at_any_time[command["command"]]()})
                else:
                    commands.put(command)
        finally:  # the channel ended, or was reset because its other end died with replies unread
            try:
                on_end()
            finally:
                os._exit(0)  # the caller of this agent is gone: nothing it does matters any more

    threading.Thread(target=listen, daemon=True, name="agent-commands").start()
    while True:
        reply(_obey(agent, commands.get()))


def _lines(read_fd: int, silence_s: float | None) -> Iterator[bytes]:
    """Whole lines that are not empty, until the channel ends or was silent for too long."""
    received = b""
    while select.select([read_fd], [], [], silence_s)[0] and (part := os.read(read_fd, READ_BYTES)):
        *lines, received = (received + part).split(b"\n")
        yield from filter(None, lines)


def _clock() -> dict[str, Any]:
    return {"monotonic_s": time.monotonic(), "real_s": time.time()}


def _obey(agent: Agent, command: dict[str, Any]) -> dict[str, Any]:
    """Run one command; whatever goes wrong becomes its reply."""
    number, name = command.pop("id"), command.pop("command")
    try:
        if name not in _COMMANDS:
            raise ValueError(f"there is no command {name!r}")
        return {"id": number, "ok": True, "result": getattr(agent, name)(**command)}
    except (Problem, TransportError) as error:
        agent.progress["state"] = "failed"
        return {"id": number, "ok": False, "error": str(error)}
    except Exception as error:
        agent.progress["state"] = "failed"
        traceback.print_exc(file=sys.stderr)
        return {"id": number, "ok": False, "error": f"{type(error).__name__}: {error}"}


def _write_all(write_fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(write_fd, view) :]
