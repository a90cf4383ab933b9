"""One run, from its plan to its result, wherever it happens: start agents, run the job, collect, judge.

What only the place knows (its switches, what watches them, what goes wrong on purpose) is its Site's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from dlcp.agents.background_session import BackgroundResult, BackgroundSession
from dlcp.agents.costs import costs_of
from dlcp.agents.handles import AgentError, AgentHandle
from dlcp.agents.records import Columns
from dlcp.agents.session import HEAD_START_S, JobResult, JobSession
from dlcp.model.result import TABLES, RunResult
from dlcp.model.tables import write_columns, write_rows
from dlcp.model.units import show_fraction
from dlcp.model.workload import TransportSettings
from dlcp.substrates import audit, fidelity
from dlcp.substrates.base import OnProgress
from dlcp.substrates.faults import mean_rate_bps
from dlcp.substrates.ideal import ideal_communication_s, ideal_iteration_s, transfers_of, transfers_seen
from dlcp.substrates.run_plan import RunPlan
from dlcp.transport.codepoint import tos_of_queue

Rows = list[dict[str, Any]]


@dataclass
class Seen:
    """What a site saw of a run. ports: rows of that table, None where the switches cannot tell exactly; hosts: the
    same, of machines. backlog: columns. values: monitor → value; unwatched: monitor → why there is none here."""

    ports: Rows | None
    hosts: Rows
    values: dict[str, float]
    backlog: Mapping[str, Any] = field(default_factory=lambda: {name: [] for name in TABLES["backlog"]})
    unwatched: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    statistics: dict[str, Any] = field(default_factory=dict)


class Site(Protocol):
    """A place where one run happens: its fabric is up, as it should be, from __enter__ to __exit__."""

    cookie: int
    """32 bits that strangers in its network must not know, where there are any."""
    head_start_s: float
    """From the start command to the common start: every agent has read its command by then."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...

    def describe(self, result: RunResult) -> None:
        """Tell what switches and hosts should do and do: intended, effective, degradations, provenance."""

    def addresses(self) -> dict[str, str]:
        """Host → IPv4 address."""

    def start_agents(self, names: Mapping[str, str], logs: Path) -> dict[str, AgentHandle]:
        """An agent for each name, on the host given for it."""

    def watching(self, agents: Mapping[str, AgentHandle]) -> AbstractContextManager[object]:
        """Counters begin, and monitors run, for as long as the block. agents: of the job, by host."""

    def playing(self, start_s: float) -> AbstractContextManager[object]:
        """What goes wrong on purpose while the job runs."""

    def seen(self, start_s: float, end_s: float) -> Seen:
        """What was seen, once nothing moves any more. The job ran between two instants of CLOCK_MONOTONIC."""

    def excuse(self, result: RunResult) -> None:
        """Add to a failed result what the site knows of why."""


class QuickStart:
    """Of a Site whose agents read their commands at once."""

    head_start_s = HEAD_START_S


@dataclass(frozen=True)
class _Observed:
    start_s: float
    end_s: float
    background: BackgroundResult | None

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


class Conductor:
    """One run on a site. Its tables are written into `directory`."""

    def __init__(self, plan: RunPlan, site: Site, directory: Path, on_progress: OnProgress) -> None:
        self._plan = plan
        self._site = site
        self._directory = directory
        self._progress = on_progress

    def conduct(self) -> RunResult:
        """The result; a run whose agents failed is `failed`, one whose monitors object is `suspect`."""
        result = self._plan.blank_result()
        try:
            with self._site:
                self._site.describe(result)
                self._progress(0.0, "fabric is up")
                self._run_on(result)
        except AgentError as error:
            result.status, result.reason = "failed", str(error)
            self._site.excuse(result)
        return result

    def _run_on(self, result: RunResult) -> None:
        plan, site = self._plan, self._site
        with self._agents() as (agents, background_agents):
            addresses = site.addresses()
            session = JobSession(
                agents, plan.spec, plan.settings, addresses, cookie=site.cookie, directory=self._directory,
                link_rates_bps={host: plan.graph.host_link(host).rate_bps for host in plan.spec.hosts},
                time_limit_s=plan.run.experiment.time_limit_s, head_start_s=site.head_start_s,
            )  # fmt: skip
            session.open()
            background = self._background(background_agents, addresses)
            with site.watching(agents):
                observed = self._train(session, background)
            seen = site.seen(observed.start_s, observed.end_s)
            self._progress(1.0, "collecting")
            job = session.collect()
            training = session.evaluate() if plan.spec.kind == "training" else None
            session.close()
        self._write(job, training, seen, observed)
        if any(agent.clock.readings for agent in agents.values()):
            seen.values |= _clock_values(agents, job)
            seen.statistics["clocks"] = {host: agent.clock.data() for host, agent in agents.items()}
        self._judge(result, job, seen, observed)
        result.warnings += seen.warnings
        result.warnings += _drift(plan.settings)

    @contextmanager
    def _agents(self) -> Iterator[tuple[dict[str, AgentHandle], dict[str, AgentHandle]]]:
        """Agents of the job by host, and others for the background; they end when the block does."""
        hosts = self._plan.spec.hosts
        names = {f"{host}-background": host for host in self._plan.background_hosts}
        logs = self._directory / "logs"
        logs.mkdir(exist_ok=True)
        started = self._site.start_agents({host: host for host in hosts} | names, logs)
        try:
            yield (
                {host: started[host] for host in hosts},
                {host: started[name] for name, host in names.items()},
            )
        finally:
            for handle in started.values():
                handle.close()

    def _background(self, agents: dict[str, AgentHandle], addresses: dict[str, str]) -> BackgroundSession | None:
        entries = self._plan.run.experiment.background
        if not entries:
            return None
        session = BackgroundSession(
            agents, self._plan.traffic, addresses, tos=[tos_of_queue(entry.queue) for entry in entries],
            cookie=self._site.cookie, directory=self._directory,
        )  # fmt: skip
        session.prepare()
        return session

    def _train(self, session: JobSession, background: BackgroundSession | None) -> _Observed:
        iterations = self._plan.spec.iterations
        start_s = session.start()
        if background is not None:
            background.start(start_s)
        with self._site.playing(start_s):
            end_s = session.wait(lambda done: self._progress(done / iterations, f"iteration {done} of {iterations}"))
            found = background.stop() if background is not None else None
        return _Observed(start_s, end_s, found)

    def _write(self, job: JobResult, training: Columns | None, seen: Seen, observed: _Observed) -> None:
        write_columns(self._directory, "iterations", job.iterations)
        write_columns(self._directory, "messages", job.messages)
        write_columns(self._directory, "holes", job.holes)
        write_rows(self._directory, "ports", seen.ports or [])
        if observed.background is None:
            write_rows(self._directory, "flows", [])
        else:
            write_columns(self._directory, "flows", observed.background.flows)
        write_columns(self._directory, "backlog", seen.backlog)
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
        write_rows(self._directory, "hosts", seen.hosts + agents)

    def _judge(self, result: RunResult, job: JobResult, seen: Seen, observed: _Observed) -> None:
        result.jct_s = observed.duration_s
        result.costs = costs_of(job.statistics)
        result.traffic = {self._plan.settings.kind: sum(job.messages["delivered_bytes"])}
        result.ideal = self._ideal(job)
        background = observed.background.totals if observed.background is not None else {}
        waits = [found["sched_late_s"] for found in job.statistics.values() if found["timed_waits"]]
        values: dict[str, float] = {
            "rx_overflow": sum(map(_overflow, job.statistics.values())) + background.get("rx_overflow", 0),
            "sched_late_s": max(waits, default=0.0),
            **seen.values,
        }
        if seen.ports is not None:
            values["link_utilisation"] = self._utilisation(seen.ports, observed.duration_s)
        if due_bytes := background.get("due_bytes"):
            late = background["late_flows"] + background["due_flows"] - background["started_flows"]
            values["background_offered"] = background["offered_bytes"] / due_bytes
            values["background_late"] = late / background["due_flows"]
        result.fidelity = fidelity.judge(values)
        result.unwatched = {name: why for name, why in seen.unwatched.items() if name not in values}
        if broken := audit.broken_promises(
            job.iterations, job.messages, drift_lasts=self._plan.spec.pattern == "transpose"
        ):
            result.status, result.reason = "failed", broken
        elif reasons := fidelity.reasons(result.fidelity):
            result.status, result.reason = "suspect", reasons
        counters = {host: {k: v for k, v in found.items() if k != "costs"} for host, found in job.statistics.items()}
        result.statistics |= counters | {"background": background} | seen.statistics

    def _utilisation(self, ports: Rows, duration_s: float) -> float:
        """The busiest port's bytes against what its shaper lets through while the job ran, buffer emptied after."""
        sent: dict[str, int] = {}
        for row in ports:
            sent[row["port"]] = sent.get(row["port"], 0) + row["enqueued_bytes"]
        buffer_bytes = self._plan.intent.port_buffer_bytes
        return max(
            max(0, size_bytes - buffer_bytes) * 8 / duration_s / self._mean_rate_bps(port, duration_s)
            for port, size_bytes in sent.items()
        )

    def _mean_rate_bps(self, port: str, duration_s: float) -> float:
        switch, neighbour = port.split("-", 1)
        return mean_rate_bps(self._plan.run.experiment.faults, self._plan.graph, switch, neighbour, duration_s)

    def _ideal(self, job: JobResult) -> dict[str, float]:
        """No transport can be faster: see dlcp.substrates.ideal. A real job's compute is what it took (median). Of
        compressed gradients it has to move the codes only; coding is no part of it."""
        spec = self._plan.spec
        compute = sorted(job.iterations["compute_s"])
        compute_s = spec.compute_s or compute[len(compute) // 2]
        compressed = self._plan.settings.compression is not None
        if compressed:
            transfers = transfers_seen(job.messages, spec.iterations)
        else:
            transfers = transfers_of(spec, self._plan.settings)
        iteration_s = ideal_iteration_s(self._plan.graph, transfers, compute_s)
        return {
            "iteration_s": iteration_s,
            "jct_s": iteration_s * spec.iterations,
            "communication_s": ideal_communication_s(self._plan.graph, transfers),
            "compute_s": compute_s,
        } | ({"bytes_share": sum(job.messages["bytes"]) / sum(job.messages["tensor_bytes"])} if compressed else {})


def _drift(settings: TransportSettings) -> list[str]:
    """Where workers need not hold the same parameters: a warning that says so."""
    if settings.time_bounds is not None:
        return [
            "workers may drift apart, and stay so: from iteration "
            f"{settings.time_bounds.warmup_iterations} on, what a result lost is not mended"
        ]
    if settings.pull_loss_bound and settings.full_sync_every > 1:
        return [
            f"workers may drift apart: pulls may lose {show_fraction(settings.pull_loss_bound)}, but for every "
            f"{settings.full_sync_every}th iteration and the last"
        ]
    return []


def _clock_values(agents: Mapping[str, AgentHandle], job: JobResult) -> dict[str, float]:
    """The monitors of clocks: what two of them together may be off against what they are to tell."""
    took_s = np.array(job.messages["end_s"]) - np.array(job.messages["start_s"])
    worst_s = sum(sorted(agent.clock.error_s for agent in agents.values())[-2:])
    return {
        "clock_error": worst_s / max(float(np.median(took_s)), worst_s),
        "clock_drift": max(agent.clock.sure_drift_ppm for agent in agents.values()),
    }


def _overflow(statistics: dict[str, Any]) -> int:
    return int(statistics["transport"].get("socket_overflow", 0))  # kernel TCP has none: it closes its window
