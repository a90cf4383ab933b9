"""A job from the caller's side: open, prepare, start at one instant, follow, collect."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlcp.agents.control.handles import AgentError, AgentHandle, gather, read_clocks, request_all
from dlcp.agents.job_spec import JobSpec, digest
from dlcp.agents.records import Columns, hole_columns, iteration_columns, message_columns, read_record
from dlcp.model.transport.settings import TransportSettings
from dlcp.transport.factory import TCP_PORT, UDP_PORT

OPEN_TIMEOUT_S = 20.0
PREPARE_TIMEOUT_S = 60.0
"""An agent that was not forked from one that has done so loads its job's framework and data in it."""
COLLECT_TIMEOUT_S = 30.0
EVALUATE_TIMEOUT_S = 120.0
HEAD_START_S = 0.25
"""From the start command to the common start instant: every agent has read its command by then, on one machine."""
GRACE_S = 5.0
"""What agents get beyond the time limit to say themselves what they wait for."""


@dataclass(frozen=True)
class JobResult:
    """A finished job. Columns as in dlcp.model.result.TABLES; statistics: host → the agent's counters."""

    iterations: Columns
    messages: Columns
    holes: Columns
    statistics: dict[str, dict[str, Any]] = field(default_factory=dict)


class JobSession:
    """One job on agents that run already: open(), start(), wait(), collect(), for a training job evaluate(), close().

    agents: by host, at least one for every host of the job. addresses: host → IPv4 address. cookie: 64 bits that
    only this run knows; flow-hash switches see source ports that follow from it. link_rates_bps: of each host's own
    link. directory: where agents leave their records, or where these are brought from their hosts. Instants are of the
    caller's CLOCK_MONOTONIC, whatever clocks the hosts have (AgentHandle.clock). Every method raises AgentError naming
    the host.
    """

    def __init__(
        self,
        agents: dict[str, AgentHandle],
        spec: JobSpec,
        settings: TransportSettings,
        addresses: dict[str, str],
        *,
        cookie: int,
        link_rates_bps: Mapping[str, float],
        directory: Path,
        time_limit_s: float,
        head_start_s: float = HEAD_START_S,
    ) -> None:
        self._agents = {host: agents[host] for host in spec.hosts}
        self._spec = spec
        self._settings = settings
        self._addresses = addresses
        self._cookie = cookie
        self._link_rates_bps = link_rates_bps
        self._directory = directory
        self._time_limit_s = time_limit_s
        self._head_start_s = head_start_s
        self._started: dict[str, tuple[AgentHandle, int]] = {}
        self._start_s = 0.0

    def open(self) -> None:
        """Connect all ranks and prepare the job on each; all must agree on tensors and initial parameters."""
        commands = {host: self._open_command(rank) for rank, host in enumerate(self._spec.hosts)}
        opened = request_all(self._agents, commands, OPEN_TIMEOUT_S)
        if self._settings.source_ports > 1:
            self._meet(commands, {host: found["source_ports"] for host, found in opened.items()})
        job = self._spec.model_dump(mode="json")
        prepared = self._all({"command": "prepare", "job": job}, PREPARE_TIMEOUT_S)
        expected = digest(self._spec.tensors(self._settings))
        first = prepared[self._spec.hosts[0]]
        for host, found in prepared.items():
            if found["tensors"] != expected or found["parameters_crc32"] != first["parameters_crc32"]:
                raise AgentError(f"{host}: prepare: it does not agree with the others on tensors or parameters")
        read_clocks(self._agents)

    def start(self, at_s: float | None = None) -> float:
        """Start all ranks at one instant (CLOCK_MONOTONIC; default: shortly), and return it."""
        self._start_s = time.monotonic() + self._head_start_s if at_s is None else at_s
        self._started = {host: (agent, agent.send(self._start_command(agent))) for host, agent in self._agents.items()}
        return self._start_s

    def wait(self, on_progress: Callable[[int], None] | None = None) -> float:
        """Wait until every rank is done; returns the instant when the last worker was.

        on_progress: told how many iterations the first worker has finished, a few times a second.
        """
        timeout_s = self._start_s + self._time_limit_s + GRACE_S - time.monotonic()
        tick = (lambda: on_progress(self._iteration())) if on_progress else None
        results = gather(self._started, timeout_s, tick)
        if on_progress is not None:
            on_progress(self._spec.iterations)
        read_clocks(self._agents)
        return max(self._agents[host].clock.here(float(results[host]["end_s"])) for host in self._spec.workers)

    def collect(self) -> JobResult:
        """What all ranks measured."""
        paths = {host: self._directory / f"{host}.npz" for host in self._spec.hosts}
        commands = {
            host: {"command": "collect", "path": self._agents[host].place(path)} for host, path in paths.items()
        }
        statistics = request_all(self._agents, commands, COLLECT_TIMEOUT_S)
        found = []
        for host, path in paths.items():
            self._agents[host].fetch(path)
            found.append(read_record(path).on(self._agents[host].clock))
            path.unlink()
        tensors = self._spec.tensors(self._settings)
        return JobResult(
            iteration_columns(self._spec, found),
            message_columns(self._spec, tensors, self._settings, found),
            hole_columns(self._spec, found),
            statistics,
        )

    def evaluate(self) -> Columns:
        """The table `training` of a real job: every snapshot on the whole test set, shared among the workers."""
        commands: dict[str, dict[str, Any]] = {host: {"command": "evaluate"} for host in self._spec.workers}
        found = request_all(self._agents, commands, EVALUATE_TIMEOUT_S)
        rows = sorted(
            (int(step), self._agents[host].clock.here(time_s), loss, accuracy)
            for host, result in found.items()
            for step, time_s, loss, accuracy in result["rows"]
        )
        return {
            "job": [self._spec.name] * len(rows),
            "step": [step for step, _, _, _ in rows],
            "time_s": [time_s - self._start_s for _, time_s, _, _ in rows],
            "loss": [loss for _, _, loss, _ in rows],
            "accuracy": [accuracy for _, _, _, accuracy in rows],
        }

    def close(self) -> None:
        """Close all transports; the agents live on."""
        self._all({"command": "close"}, COLLECT_TIMEOUT_S)

    def _meet(self, opened: dict[str, dict[str, Any]], ports: dict[str, list[int]]) -> None:
        """Tell every rank of its peers' source ports. opened: host → the command that opened it."""
        commands = {
            host: {
                "command": "meet",
                "peers": {peer: [*where, ports[self._spec.hosts[peer]]] for peer, where in command["peers"].items()},
            }
            for host, command in opened.items()
        }
        request_all(self._agents, commands, OPEN_TIMEOUT_S)

    def _all(self, command: dict[str, Any], timeout_s: float) -> dict[str, dict[str, Any]]:
        return request_all(self._agents, dict.fromkeys(self._agents, command), timeout_s)

    def _start_command(self, agent: AgentHandle) -> dict[str, Any]:
        give_up_at_s = self._start_s + self._time_limit_s
        clock = agent.clock
        return {"command": "start", "at": clock.there(self._start_s), "give_up_at": clock.there(give_up_at_s)}

    def _iteration(self) -> int:
        return int(self._agents[self._spec.hosts[0]].request({"command": "status"}, COLLECT_TIMEOUT_S)["iteration"])

    def _open_command(self, rank: int) -> dict[str, Any]:
        spec = self._spec
        port = TCP_PORT if self._settings.kind == "tcp" else UDP_PORT
        return {
            "command": "open",
            "rank": rank,
            "address": self._addresses[spec.hosts[rank]],
            "port": port,
            "peers": {peer: [self._addresses[spec.hosts[peer]], port] for peer in spec.peers_of(rank)},
            "settings": self._settings.model_dump(mode="json"),
            "cookie": self._cookie,
            "connects_to": spec.connects_to(rank),
            "link_rate_bps": self._link_rates_bps[spec.hosts[rank]],
        }
