"""A lab as the site of one run: agents over SSH, counters before and after, what cannot be watched there and why."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dlcp.agents.handles import AgentHandle, request_all
from dlcp.agents.machine import mean_busy
from dlcp.model.inventory import Lab
from dlcp.model.result import RunResult
from dlcp.substrates.conductor import Rows, Seen
from dlcp.substrates.lab_agents import LabAgent, LabHosts
from dlcp.substrates.lab_state import Boxes, HostState, differences, rounded, unaccounted
from dlcp.substrates.run_plan import RunPlan
from dlcp.switches.lab.render import Rendered, effective_words
from dlcp.switches.lab.settle import Degradation

COMMAND_TIMEOUT_S = 20.0
HEAD_START_S = 1.0
"""Commands go through SSH, one after the other: every agent has read its own by then."""
UNWATCHED = {
    "timer_late_s": "it watches the cores that emulate a fabric; hosts' own lateness is sched_late_s",
    "saturated_rate": "it watches an emulated port's shaper; ports of a lab send at their own rate",
    "vanished_packets": "hosts' interfaces carry what switches do not count, such as ARP and LLDP",
    "duplicated_packets": "hosts' interfaces carry what switches do not count, such as ARP and LLDP",
    "stray_packets": "others may be on a lab's network",
}
"""Monitor of an emulated fabric → why a lab has none."""


@dataclass(frozen=True)
class LabFacts:
    """What was found before a run. rendered: switch → what it was told; hosts: what each is set to."""

    lab: Lab
    rendered: Mapping[str, Rendered]
    hosts: Mapping[str, HostState]


class LabSite:
    """See Site. connections: to the run's hosts; boxes: the switches that count exactly."""

    head_start_s = HEAD_START_S

    def __init__(self, plan: RunPlan, facts: LabFacts, connections: LabHosts, boxes: Boxes) -> None:
        self.cookie = secrets.randbits(32)
        self._plan = plan
        self._facts = facts
        self._connections = connections
        self._boxes = boxes
        self._watched: dict[str, AgentHandle] = {}
        self._counted: Rows = []
        self._said: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """The lab stays as it is."""

    def describe(self, result: RunResult) -> None:
        """See Site."""
        facts, settings = self._facts, self._plan.hosts
        rendered = {name: facts.rendered[name] for name in self._plan.graph.switches}
        intended = self._plan.intent.model_dump(mode="json", exclude_defaults=True, exclude={"on_unsupported", "name"})
        result.intended = {
            "switches": {"all": intended},
            "hosts": {"all": {"sysctls": settings.sysctls, "rto_min_s": rounded(settings.rto_min_s)}},
        }
        result.effective = {
            "switches": {name: effective_words(one) for name, one in rendered.items()},
            "hosts": {host: vars(state) for host, state in facts.hosts.items()},
        }
        result.degradations = degradations(rendered)
        result.provenance["lab"] = {
            "name": facts.lab.name,
            "switches": {
                name: {"system": one.device.system, "chip": one.device.chip, "digest": one.digest}
                for name, one in rendered.items()
            },
        }

    def addresses(self) -> dict[str, str]:
        """See Site."""
        return self._connections.addresses()

    def start_agents(self, names: Mapping[str, str], logs: Path) -> dict[str, AgentHandle]:
        """See Site."""
        started = self._connections.start(names, logs)
        self._said = {name: agent.said for name, agent in started.items() if isinstance(agent, LabAgent)}
        return started

    @contextmanager
    def watching(self, agents: Mapping[str, AgentHandle]) -> Iterator[None]:
        """See Site."""
        self._watched = dict(agents)
        request_all(self._watched, {host: {"command": "watch_machine"} for host in agents}, COMMAND_TIMEOUT_S)
        self._boxes.reset()
        self._counted = self._boxes.rows()
        yield

    def playing(self, start_s: float) -> nullcontext[None]:
        """See Site: nothing goes wrong on purpose."""
        return nullcontext()

    def seen(self, start_s: float, end_s: float) -> Seen:
        """See Site."""
        stop: dict[str, dict[str, Any]] = {host: {"command": "stop_watching"} for host in self._watched}
        watched = request_all(self._watched, stop, COMMAND_TIMEOUT_S)
        samples = {host: self._samples(host, found) for host, found in watched.items()}
        busy = {host: mean_busy(rows, begun_s, start_s, end_s) for host, (begun_s, rows) in samples.items()}
        values: dict[str, float] = {
            "cpu_busy": max(busy.values()),
            "softnet_dropped": sum(row["softnet_dropped"] for _, rows in samples.values() for row in rows),
        }
        unwatched, warnings = dict(UNWATCHED), self._lacking()
        ports = self._ports()
        silent = [name for name in self._plan.graph.switches if name not in self._boxes.names]
        if ports:
            lost = unaccounted(ports)
            values["unaccounted_packets"] = len(lost)
            warnings += lost
        if silent:
            why = f"{', '.join(silent)} do not count by queue and precedence exactly"
            unwatched |= {"unaccounted_packets": why, "link_utilisation": why}
            warnings.append(f"{why}: the table ports is without them")
        return Seen(
            ports or None, [row for _, rows in samples.values() for row in rows], values, unwatched=unwatched,
            warnings=warnings, statistics={"agents": self._said},
        )  # fmt: skip

    def excuse(self, result: RunResult) -> None:
        """See Site: an agent's own words say why."""

    def _ports(self) -> Rows:
        """What was counted during the run at ports to nodes of the experiment."""
        graph = self._plan.graph
        known = {f"{switch}-{other}" for switch in graph.switches for other in graph.neighbours[switch]}
        return [row for row in differences(self._counted, self._boxes.rows_at_rest()) if row["port"] in known]

    def _samples(self, host: str, found: dict[str, Any]) -> tuple[float, Rows]:
        """When a host's samples began, and they, in the controller's time."""
        here = self._watched[host].clock.here
        rows = [{**row, "host": host, "time_s": here(row["time_s"])} for row in found["rows"]]
        return here(found["begun_s"]), rows

    def _lacking(self) -> list[str]:
        """What agents may not do that a transport would like to."""
        told = []
        for name, said in self._said.items():
            if self._plan.settings.kind == "dlcp" and said["realtime"]:
                told.append(f"{name}: DLCP's engine had no real-time priority there ({said['realtime']})")
            if self._plan.settings.kind == "dlcp" and not said["capabilities"]["net_admin"]:
                told.append(f"{name}: sockets had no more buffer than the system's limit (no CAP_NET_ADMIN)")
        return told


def degradations(rendered: Mapping[str, Rendered]) -> list[str]:
    """What switches do instead of what they should, each told once, with all that do so."""
    found: dict[Degradation, list[str]] = {}
    for name, one in rendered.items():
        for degradation in one.degradations:
            found.setdefault(degradation, []).append(f"{name} ({one.device.system})")
    return [f"{', '.join(names)}: {one.where}: {one.instead} ({one.why})" for one, names in found.items()]
