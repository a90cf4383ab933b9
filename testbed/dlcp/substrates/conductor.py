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

from dlcp.agents.control.background_session import BackgroundResult, BackgroundSession
from dlcp.agents.control.handles import AgentError, AgentHandle
from dlcp.agents.control.session import HEAD_START_S, JobResult, JobSession
from dlcp.agents.costs import costs_of
from dlcp.agents.job_spec import JobSpec
from dlcp.agents.records import Columns
from dlcp.model.base import OnProgress
from dlcp.model.faults import mean_rate_bps
from dlcp.model.result import TABLES, RunResult, Tenant
from dlcp.model.tables import write_columns, write_rows
from dlcp.model.transport.settings import TransportSettings
from dlcp.model.units import show_fraction
from dlcp.patterns import pattern_of
from dlcp.substrates import fidelity, result_audit
from dlcp.substrates.ideal import ideal_communication_s, ideal_iteration_s, transfers_of, transfers_seen
from dlcp.substrates.reachable import reachable_jct_s
from dlcp.substrates.run_plan import RunPlan
from dlcp.transport.contract.codepoint import tos_of_queue

Rows = list[dict[str, Any]]
_UNCOUNTED_WAITS = dict.fromkeys(
    ("core_wait", "host_core_wait"), "a host's kernel does not count waits for a core (CONFIG_SCHED_INFO)"
)
_ELSEWHERE = ("costs", "told", "waits_late_s")
"""Of an agent's counters, what stands in the result by itself or in sum."""


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
class _Part:
    """One of the jobs that run at the same time."""

    spec: JobSpec
    settings: TransportSettings
    session: JobSession


@dataclass(frozen=True)
class _Observed:
    """end_s: of the measured job; over_s: of the last of all jobs."""

    start_s: float
    end_s: float
    over_s: float
    jct_s: dict[str, float]
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
            parts = [
                self._part(agents, spec, settings, addresses)
                for spec, settings in [(plan.spec, plan.settings), *((t.spec, t.settings) for t in plan.tenants)]
            ]
            for part in parts:
                part.session.open()
            background = self._background(background_agents, addresses)
            with site.watching(agents):
                observed = self._train(parts, background)
            seen = site.seen(observed.start_s, observed.over_s)
            self._progress(1.0, "collecting")
            jobs = [part.session.collect() for part in parts]
            training = [part.session.evaluate() for part in parts if part.spec.kind == "training"]
            for part in parts:
                part.session.close()
        self._write(jobs, training, seen, observed)
        if any(agent.clock.readings for agent in agents.values()):
            seen.values |= _clock_values(agents, jobs[0])
            seen.statistics["clocks"] = {host: agent.clock.data() for host, agent in agents.items()}
        self._judge(result, parts, jobs, seen, observed)
        result.warnings += seen.warnings
        result.warnings += _drift(plan.settings)

    def _part(
        self, agents: dict[str, AgentHandle], spec: JobSpec, settings: TransportSettings, addresses: dict[str, str]
    ) -> _Part:
        session = JobSession(
            agents,
            spec,
            settings,
            addresses,
            cookie=self._site.cookie,
            directory=self._directory,
            link_rates_bps={host: self._plan.graph.host_link(host).rate_bps for host in spec.hosts},
            time_limit_s=self._plan.run.experiment.time_limit_s,
            head_start_s=self._site.head_start_s,
        )
        return _Part(spec, settings, session)

    @contextmanager
    def _agents(self) -> Iterator[tuple[dict[str, AgentHandle], dict[str, AgentHandle]]]:
        """Agents of the jobs by host, and others for the background; they end when the block does."""
        specs = [self._plan.spec, *(tenant.spec for tenant in self._plan.tenants)]
        hosts = [host for spec in specs for host in spec.hosts]
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
            agents,
            self._plan.traffic,
            addresses,
            tos=[tos_of_queue(entry.queue) for entry in entries],
            cookie=self._site.cookie,
            directory=self._directory,
        )
        session.prepare()
        return session

    def _train(self, parts: list[_Part], background: BackgroundSession | None) -> _Observed:
        """All jobs from one instant on, until each has come to its own end."""
        iterations, session = self._plan.spec.iterations, parts[0].session
        start_s = session.start()
        for part in parts[1:]:
            part.session.start(start_s)
        if background is not None:
            background.start(start_s)
        with self._site.playing(start_s):
            end_s = session.wait(lambda done: self._progress(done / iterations, f"iteration {done} of {iterations}"))
            ends_s = [end_s, *(part.session.wait() for part in parts[1:])]
            found = background.stop() if background is not None else None
        jct_s = {part.spec.name: one_s - start_s for part, one_s in zip(parts, ends_s, strict=True)}
        return _Observed(start_s, end_s, max(ends_s), jct_s, found)

    def _write(self, jobs: list[JobResult], training: list[Columns], seen: Seen, observed: _Observed) -> None:
        write_columns(self._directory, "iterations", _joined([job.iterations for job in jobs]))
        write_columns(self._directory, "messages", _joined([job.messages for job in jobs]))
        write_columns(self._directory, "holes", _joined([job.holes for job in jobs]))
        write_rows(self._directory, "ports", seen.ports or [])
        if observed.background is None:
            write_rows(self._directory, "flows", [])
        else:
            write_columns(self._directory, "flows", observed.background.flows)
        write_columns(self._directory, "backlog", seen.backlog)
        if training:
            write_columns(self._directory, "training", _joined(training))
        else:
            write_rows(self._directory, "training", [])
        agents = [
            {
                "host": host,
                "time_s": observed.end_s,
                "cpu_busy": 0.0,
                "softnet_dropped": 0,
                "rx_overflow": _overflow(found),
                "sched_late_s": found["sched_late_s"],
            }
            for job in jobs
            for host, found in job.statistics.items()
        ]
        write_rows(self._directory, "hosts", seen.hosts + agents)

    def _judge(
        self, result: RunResult, parts: list[_Part], jobs: list[JobResult], seen: Seen, observed: _Observed
    ) -> None:
        job = jobs[0]
        statistics = {host: found for one in jobs for host, found in one.statistics.items()}
        result.jct_s = observed.duration_s
        result.tenants = {
            tenant.spec.name: Tenant(
                scheme=tenant.scheme.scheme,
                label=tenant.scheme.label,
                jct_s=observed.jct_s[tenant.spec.name],
                ideal=self._ideal(part, one),
            )
            for tenant, part, one in zip(self._plan.tenants, parts[1:], jobs[1:], strict=True)
        }
        result.costs = costs_of(job.statistics)
        result.traffic = {self._plan.settings.kind: sum(job.messages["delivered_bytes"])}
        result.ideal = self._ideal(parts[0], job)
        background = observed.background.totals if observed.background is not None else {}
        waits = {host: found["costs"]["waits"] for host, found in statistics.items()}
        values: dict[str, float] = {
            "rx_overflow": sum(map(_overflow, statistics.values())) + background.get("rx_overflow", 0),
            **fidelity.wake_ups(found["waits_late_s"] for found in statistics.values()),
            **fidelity.late_computing(found["compute_late"] for found in statistics.values()),
            **fidelity.core_waits(waits, observed.over_s - observed.start_s),
            **seen.values,
        }
        if seen.ports is not None:
            values["link_utilisation"] = self._utilisation(seen.ports, observed.over_s - observed.start_s)
        if due_bytes := background.get("due_bytes"):
            late = background["late_flows"] + background["due_flows"] - background["started_flows"]
            values["background_offered"] = background["offered_bytes"] / due_bytes
            values["background_late"] = late / background["due_flows"]
        result.fidelity = fidelity.judge(values, self._plan.run.experiment.scaling.time_dilation)
        unwatched = _UNCOUNTED_WAITS | seen.unwatched
        result.unwatched = {name: why for name, why in unwatched.items() if name not in values}
        if broken := _broken_promises(parts, jobs):
            result.status, result.reason = "failed", broken
        elif reasons := fidelity.reasons(result.fidelity):
            result.status, result.reason = "suspect", reasons
        result.extra = _told(job.statistics)
        counters = {host: {k: v for k, v in found.items() if k not in _ELSEWHERE} for host, found in statistics.items()}
        result.statistics |= counters | {"background": background, "core_waits": waits} | seen.statistics

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

    def _ideal(self, part: _Part, job: JobResult) -> dict[str, float]:
        """No transport can be faster, and nobody else is there: see dlcp.substrates.ideal. A real job's compute is what
        it took (median). Of compressed gradients it has to move the codes only; coding is no part of it."""
        spec = part.spec
        compute = sorted(job.iterations["compute_s"])
        compute_s = spec.compute_s or compute[len(compute) // 2]
        compressed = part.settings.compression is not None
        transfers = transfers_seen(job.messages, spec.iterations) if compressed else transfers_of(spec, part.settings)
        iteration_s = ideal_iteration_s(self._plan.graph, transfers, compute_s)
        reachable_s = reachable_jct_s(self._plan.graph, spec, part.settings, compute_s)
        return {
            "iteration_s": iteration_s,
            "jct_s": iteration_s * spec.iterations,
            "communication_s": ideal_communication_s(self._plan.graph, transfers),
            "compute_s": compute_s,
            **({} if reachable_s is None else {"reachable_jct_s": reachable_s}),
        } | ({"bytes_share": sum(job.messages["bytes"]) / sum(job.messages["tensor_bytes"])} if compressed else {})


def _told(statistics: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Topic → host → what it told of its scheme (Agent.collect)."""
    by_topic: dict[str, dict[str, Any]] = {}
    for host, found in statistics.items():
        for topic, said in found["told"].items():
            by_topic.setdefault(topic, {})[host] = said
    return by_topic


def _joined(tables: list[Columns]) -> Columns:
    """Tables of one shape, one below the other."""
    return {name: [value for table in tables for value in table[name]] for name in tables[0]}


def _broken_promises(parts: list[_Part], jobs: list[JobResult]) -> str:
    """Of the measured job, and of those beside it by name."""
    found = [
        result_audit.broken_promises(
            job.iterations, job.messages, drift_lasts=pattern_of(part.spec.pattern).drift_lasts
        )
        for part, job in zip(parts, jobs, strict=True)
    ]
    names = ["", *(f"job {part.spec.name}, beside it: " for part in parts[1:])]
    return "; ".join(name + broken for name, broken in zip(names, found, strict=True) if broken)


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
