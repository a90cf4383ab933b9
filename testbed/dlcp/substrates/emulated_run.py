"""Inside the private namespaces: build the fabric, start agents, run the job, watch, collect, judge."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from dlcp.agents.background_session import BackgroundResult, BackgroundSession
from dlcp.agents.handles import AgentError, AgentHandle, Zygote
from dlcp.agents.jobs import plan_job
from dlcp.agents.records import Columns
from dlcp.agents.session import JobResult, JobSession
from dlcp.agents.traffic_plan import TrafficSpec, host_rates_bps
from dlcp.errors import Problem
from dlcp.model.experiment import experiment_intent
from dlcp.model.faults import GrayFailure
from dlcp.model.qos import Pfc
from dlcp.model.regime import regime
from dlcp.model.result import RunResult
from dlcp.model.run import Run
from dlcp.model.tables import write_columns, write_rows
from dlcp.model.units import show_fraction
from dlcp.model.workload import HostSettings
from dlcp.schemes import scheme_class
from dlcp.schemes.base import Scheme
from dlcp.substrates import audit, fidelity, provenance
from dlcp.substrates.conversation import Say, answer
from dlcp.substrates.fabric import Fabric
from dlcp.substrates.faults import FaultPlayer, mean_rate_bps, timeline
from dlcp.substrates.host_links import HostLinks, conserved_packets
from dlcp.substrates.ideal import ideal_communication_s, ideal_iteration_s, transfers_of
from dlcp.substrates.pfc import PauseLoop, pausing
from dlcp.substrates.watch import Watch
from dlcp.transport.codepoint import tos_of_queue

DRAIN_S = 2.0
"""Longest wait for the queues to run empty after the job; a full port buffer drains in milliseconds."""


def main(arguments: list[str]) -> int:
    """Entry point of start_private: the zygote's control socket; a conversation on stdin and stdout."""

    def conduct(request: dict[str, Any], say: Say) -> None:
        run = TypeAdapter(Run).validate_python(request["run"])
        with closing(Zygote.adopt(int(arguments[0]))) as zygote:
            result = _Conductor(run, Path(request["directory"]), zygote, say).conduct()
        say({"result": result.model_dump(mode="json")})

    return answer(conduct)


@dataclass
class _Observed:
    """What the monitors saw while the job ran."""

    start_s: float
    end_s: float
    monitor: fidelity.MachineMonitor
    watch: Watch
    background: BackgroundResult | None


class _Conductor:
    """One run, from its plan to its result."""

    def __init__(self, run: Run, directory: Path, zygote: Zygote, say: Say) -> None:
        self._run = run
        self._directory = directory
        self._zygote = zygote
        self._say = say
        experiment = run.experiment
        self._graph = experiment.topology.graph
        self._scheme = _scheme(run.scheme.scheme, run.scheme.knobs).for_job(run.job, run.workload)
        self._settings = self._scheme.transport(experiment.scaling)
        self._hosts = self._scheme.hosts(experiment.scaling)
        self._intent = experiment_intent(experiment, self._scheme.intent(experiment.port_buffer_bytes))
        self._spec = plan_job(run.job_name, run.job, run.workload, experiment.scaling, run.seed)
        self._link_rate_bps = self._graph.slowest_host_bps
        self._timeline = timeline(experiment.faults, self._graph, experiment.time_limit_s)
        self._player: FaultPlayer | None = None
        self._pauses: PauseLoop | None = None

    def conduct(self) -> RunResult:
        """The result; a run whose agents failed is `failed`, one whose monitors object is `suspect`."""
        result = self._blank_result()
        fabric = Fabric(self._graph, self._intent, seed=self._run.seed, host_settings=self._hosts)
        result.intended = fabric.intended()
        try:
            with fabric:
                result.effective = fabric.effective()
                self._progress(0.0, "fabric is up")
                self._run_on(fabric, result)
        except AgentError as error:
            result.status, result.reason = "failed", str(error)
            if self._player is not None:
                result.statistics = {"faults": [done.data() for done in self._player.done]}
                if lasting := self._player.lasting:
                    result.reason += f"; at that time there was {', '.join(lasting)}"
        return result

    def _run_on(self, fabric: Fabric, result: RunResult) -> None:
        with self._agents(fabric) as (agents, background_agents):
            addresses = {host: fabric.address(host) for host in self._graph.hosts}
            session = JobSession(
                agents, self._spec, self._settings, addresses, cookie=self._cookie(), directory=self._directory,
                link_rates_bps={host: self._graph.host_link(host).rate_bps for host in self._spec.hosts},
                time_limit_s=self._run.experiment.time_limit_s,
            )  # fmt: skip
            session.open()
            background = self._background(background_agents, addresses)
            hosts_before, _ = HostLinks.read_with(fabric, fabric.reset_counters)
            with pausing(fabric, self._graph, self._intent) as self._pauses:
                observed = self._train(fabric, session, background)
            unaccounted = fabric.conservation(DRAIN_S)
            hosts, (ports, strays) = HostLinks.read_with(fabric, lambda: (fabric.counters(), fabric.strays()))
            self._progress(1.0, "collecting")
            job = session.collect()
            training = session.evaluate() if self._spec.kind == "training" else None
            session.close()
        if self._timeline:
            _require_mended(fabric, result.effective)
        self._write(job, training, ports, observed)
        conserved = conserved_packets(hosts_before, hosts, ports, self._astray(strays))
        self._judge(result, job, ports, observed, conserved | {"unaccounted_packets": len(unaccounted)})
        if hosts_before is None or hosts is None:
            result.warnings.append("hosts never fell silent, so packets were not counted from end to end")
        result.warnings += unaccounted
        if self._settings.pull_loss_bound and self._settings.full_sync_every > 1:
            result.warnings.append(
                f"workers may drift apart: pulls may lose {show_fraction(self._settings.pull_loss_bound)}, but for "
                f"every {self._settings.full_sync_every}th iteration and the last"
            )

    def _astray(self, strays: list[dict[str, Any]]) -> tuple[int, int]:
        """Packets that were not IPv4, and those for nobody, unless a detour may have left them without a way."""
        detours = any(action.event == "reroute" for action in self._timeline)
        unrouted = 0 if detours else sum(row["unrouted_packets"] for row in strays)
        return sum(row["not_ipv4_packets"] for row in strays), unrouted

    @contextmanager
    def _agents(self, fabric: Fabric) -> Iterator[tuple[dict[str, AgentHandle], dict[str, AgentHandle]]]:
        """Agents of the job by host, and others for the background; they end when the block does."""
        pids = fabric.pids()
        entries = self._run.experiment.background
        busy = dict.fromkeys(host for entry in entries for host in (*entry.sources, *entry.sinks))
        names = {f"{host}-background": pids[host] for host in busy}
        logs = self._directory / "logs"
        logs.mkdir(exist_ok=True)
        started = self._zygote.start({host: pids[host] for host in self._spec.hosts} | names, logs)
        try:
            yield (
                {host: started[host] for host in self._spec.hosts},
                {host: started[f"{host}-background"] for host in busy},
            )
        finally:
            for handle in started.values():
                handle.close()

    def _background(self, agents: dict[str, AgentHandle], addresses: dict[str, str]) -> BackgroundSession | None:
        experiment = self._run.experiment
        if not experiment.background:
            return None
        spec = TrafficSpec(
            entries=experiment.background, rates_bps=host_rates_bps(self._graph), seed=self._run.seed,
            horizon_s=experiment.time_limit_s, byte_scale=experiment.scaling.byte_scale,
        )  # fmt: skip
        session = BackgroundSession(
            agents, spec, addresses, tos=[tos_of_queue(entry.queue) for entry in experiment.background],
            cookie=self._cookie(), directory=self._directory,
        )  # fmt: skip
        session.prepare()
        return session

    def _train(self, fabric: Fabric, session: JobSession, background: BackgroundSession | None) -> _Observed:
        iterations = self._spec.iterations
        shaky = () if self._intent.pfc is None else [port for _, port in fabric.switch_ports]
        watch = Watch(fabric, self._graph, self._run.experiment.backlog_every_s, [*shaky, *self._faulty_ports()])
        with fidelity.MachineMonitor() as monitor, watch:
            start_s = session.start()
            if background is not None:
                background.start(start_s)
            self._player = FaultPlayer(fabric, self._timeline, start_s)
            with self._player:
                end_s = session.wait(
                    lambda done: self._progress(done / iterations, f"iteration {done} of {iterations}")
                )
                found = background.stop() if background is not None else None
        return _Observed(start_s, end_s, monitor, watch, found)

    def _faulty_ports(self) -> list[str]:
        """Ends of the links at which a fault of the experiment changes what a port sends; a loss does not."""
        ends = [fault.ends for fault in self._run.experiment.faults if not isinstance(fault, GrayFailure)]
        return ["-".join(way) for pair in ends for way in (pair, pair[::-1])]

    def _write(
        self, job: JobResult, training: Columns | None, ports: list[dict[str, Any]], observed: _Observed
    ) -> None:
        write_columns(self._directory, "iterations", job.iterations)
        write_columns(self._directory, "messages", job.messages)
        write_rows(self._directory, "ports", ports)
        if observed.background is None:
            write_rows(self._directory, "flows", [])
        else:
            write_columns(self._directory, "flows", observed.background.flows)
        write_columns(self._directory, "backlog", observed.watch.table())
        if training is None:
            write_rows(self._directory, "training", [])
        else:
            write_columns(self._directory, "training", training)
        agents = [
            {
                "host": host, "time_s": observed.end_s, "cpu_busy": 0.0, "softnet_dropped": 0,
                "rx_overflow": _overflow(found), "sched_late_s": found["sched_late_s"],
            }
            for host, found in job.statistics.items()
        ]  # fmt: skip
        write_rows(self._directory, "hosts", observed.monitor.rows + agents)

    def _judge(
        self,
        result: RunResult,
        job: JobResult,
        ports: list[dict[str, Any]],
        observed: _Observed,
        conserved: dict[str, float],
    ) -> None:
        duration_s = observed.end_s - observed.start_s
        result.jct_s = duration_s
        result.traffic = {self._settings.kind: sum(job.messages["delivered_bytes"])}
        result.ideal = self._ideal(job)
        background = observed.background.totals if observed.background is not None else {}
        waits = {host: found for host, found in job.statistics.items() if found["timed_waits"]}
        values: dict[str, float] = {
            "cpu_busy": observed.monitor.cpu_busy(observed.start_s, observed.end_s),
            "softnet_dropped": observed.monitor.softnet_dropped(),
            "rx_overflow": sum(map(_overflow, job.statistics.values())) + background.get("rx_overflow", 0),
            "sched_late_s": max((found["sched_late_s"] for found in waits.values()), default=0.0),
            "timer_late_s": observed.watch.late_s,
            "link_utilisation": self._utilisation(ports, duration_s),
            **conserved,
        }
        if (share := observed.watch.saturation.share) is not None:
            values["saturated_rate"] = share
        if self._run.experiment.backlog_every_s is not None:
            values["backlog_late"] = observed.watch.samples.late_share
        if due_bytes := background.get("due_bytes"):
            late = background["late_flows"] + background["due_flows"] - background["started_flows"]
            values["background_offered"] = background["offered_bytes"] / due_bytes
            values["background_late"] = late / background["due_flows"]
        if self._player is not None and self._timeline:
            values["fault_late_s"] = self._player.late_s
            result.warnings += self._player.never()
        if self._pauses is not None and self._intent.pfc is not None:
            values |= {"pfc_late_s": self._pauses.late_s, "pfc_dropped_packets": _lost_in(self._intent.pfc, ports)}
            result.statistics["pfc"] = self._pauses.data()
        result.fidelity = fidelity.judge(values)
        if broken := audit.broken_promises(job.iterations, job.messages):
            result.status, result.reason = "failed", broken
        elif reasons := fidelity.reasons(result.fidelity):
            result.status, result.reason = "suspect", reasons
        faults = [done.data() for done in self._player.done] if self._player is not None else []
        result.statistics |= job.statistics | {"background": background, "faults": faults}

    def _utilisation(self, ports: list[dict[str, Any]], duration_s: float) -> float:
        """The busiest port's bytes against what its shaper lets through while the job ran, buffer emptied after."""
        sent: dict[tuple[str, str], int] = {}
        for row in ports:
            key = (row["switch"], row["port"])
            sent[key] = sent.get(key, 0) + row["enqueued_bytes"]
        buffer_bytes = self._intent.port_buffer_bytes
        return max(
            max(0, size_bytes - buffer_bytes) * 8 / duration_s / self._mean_rate_bps(port, duration_s)
            for (_, port), size_bytes in sent.items()
        )

    def _mean_rate_bps(self, port: str, duration_s: float) -> float:
        switch, neighbour = port.split("-", 1)
        return mean_rate_bps(self._run.experiment.faults, self._graph, switch, neighbour, duration_s)

    def _ideal(self, job: JobResult) -> dict[str, float]:
        """No transport can be faster: see dlcp.substrates.ideal. A real job's compute is what it took (median)."""
        compute = sorted(job.iterations["compute_s"])
        compute_s = self._spec.compute_s or compute[len(compute) // 2]
        transfers = transfers_of(self._spec, self._settings)
        iteration_s = ideal_iteration_s(self._graph, transfers, compute_s)
        return {
            "iteration_s": iteration_s,
            "jct_s": iteration_s * self._spec.iterations,
            "communication_s": ideal_communication_s(self._graph, transfers),
            "compute_s": compute_s,
        }

    def _blank_result(self) -> RunResult:
        run, experiment = self._run, self._run.experiment
        return RunResult(
            run_id=run.id, experiment=experiment.name, scheme=run.scheme.scheme, label=run.scheme.label,
            job=run.job_name, repeat=run.repeat, seed=run.seed, substrate=run.substrate, status="ok",
            run={"job": run.job.model_dump(mode="json"), "workload": run.workload.name,
                 "background": [entry.model_dump(mode="json") for entry in experiment.background],
                 "roles": {"workers": run.job.workers, "servers": run.job.servers}},
            regime=regime(experiment, run.job, _rto_floors(run)),
            knobs=self._scheme.model_dump(mode="json"),
            topology=self._graph.model_dump(mode="json"),
            expect=[line.model_dump(mode="json") for line in experiment.expect],
            provenance=provenance.collect(run.seed),
        )  # fmt: skip

    def _cookie(self) -> int:
        """32 bits (wire.h). Not a secret: nobody else is in the namespaces. The same for all schemes of a job and
        repeat: TCP's source ports follow from it, so that flow-hash switches choose the same paths under each."""
        text = f"{self._run.experiment.name}:{self._run.job_name}:{self._run.seed}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "big")

    def _progress(self, share: float, text: str) -> None:
        self._say({"progress": share, "text": text})


def _scheme(name: str, knobs: dict[str, Any]) -> Scheme:
    return scheme_class(name).model_validate(knobs)


def _rto_floors(run: Run) -> dict[str, HostSettings]:
    """Host settings of the schemes that use kernel TCP, by label."""
    scaling = run.experiment.scaling
    schemes = {choice.label: _scheme(choice.scheme, choice.knobs) for choice in run.experiment.schemes}
    return {label: scheme.hosts(scaling) for label, scheme in schemes.items() if scheme.kind == "tcp"}


def _lost_in(pfc: Pfc, ports: list[dict[str, Any]]) -> int:
    """Packets of lossless queues that found no buffer."""
    lossless = [row for row in ports if row["queue"] in pfc.queues]
    return sum(row["dropped_tail_packets"] + row["dropped_shared_packets"] for row in lossless)


def _require_mended(fabric: Fabric, before: dict[str, Any]) -> None:
    """After the last fault the fabric must be what it was before the first."""
    fabric.verify()
    if (after := fabric.effective()) != before:
        raise Problem("faults", f"left the fabric changed: it was {before}, it is {after}", "this is a defect")


def _overflow(statistics: dict[str, Any]) -> int:
    return int(statistics["transport"].get("socket_overflow", 0))  # kernel TCP has none: it closes its window
