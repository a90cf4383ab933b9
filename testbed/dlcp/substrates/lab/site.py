"""A lab as the site of one run: agents over SSH, counters before and after, what cannot be watched there and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dlcp.agents.control.handles import AgentHandle, request_all
from dlcp.agents.machine_monitor import mean_busy
from dlcp.model.lab.inventory import Lab
from dlcp.model.result import RunResult
from dlcp.substrates.conductor import Rows, Seen
from dlcp.substrates.lab.agents import LabAgent, LabHosts
from dlcp.substrates.lab.state import (
    Boxes,
    Counted,
    HostState,
    device_losses,
    differences,
    lost_by_devices,
    require_undisturbed,
    rounded,
    unaccounted,
)
from dlcp.substrates.run_plan import RunPlan
from dlcp.switches.vendor.render import Rendered, effective_words
from dlcp.switches.vendor.settle import Degradation

COMMAND_TIMEOUT_S = 20.0
HEAD_START_S = 1.0
"""Commands go through SSH, one after the other: every agent has read its own by then."""
UNWATCHED = {
    "timer_late_s": "it watches the cores that emulate a fabric; hosts' own lateness is sched_late_s",
    "softirq_wait": "it watches the cores that emulate a fabric",
    "cpu_stolen": "it watches the cores that emulate a fabric; what hosts' own threads waited is core_wait",
    "saturated_rate": "it watches an emulated port's shaper; ports of a lab send at their own rate",
    "vanished_packets": "hosts' interfaces carry what switches do not count, such as ARP and LLDP",
    "duplicated_packets": "hosts' interfaces carry what switches do not count, such as ARP and LLDP",
    "stray_packets": "others may be on a lab's network",
}
"""Monitor of an emulated fabric → why a lab has none."""
TEXTS = "switches"
"""Folder of a run: before/<switch>/counters.txt and after/… are what switches without exact counters say."""
Collect = Callable[[Path], Mapping[str, str]]
"""Have every switch's own words on its counters kept in a folder. Returns switch → why it has said nothing."""


@dataclass(frozen=True)
class LabFacts:
    """What was found before a run. rendered: switch → what it was told; hosts: what each is set to."""

    lab: Lab
    rendered: Mapping[str, Rendered]
    hosts: Mapping[str, HostState]


class LabSite:
    """See Site, also for cookie. connections: to the run's hosts. boxes: the switches that count exactly; collect: for
    the others. directory: of the run."""

    head_start_s = HEAD_START_S

    def __init__(
        self,
        plan: RunPlan,
        facts: LabFacts,
        cookie: int,
        connections: LabHosts,
        boxes: Boxes,
        collect: Collect,
        directory: Path,
    ) -> None:
        self.cookie = cookie
        self._plan = plan
        self._facts = facts
        self._connections = connections
        self._boxes = boxes
        self._collect = collect
        self._directory = directory
        self._silent = [name for name in plan.graph.switches if name not in boxes.names]
        self._unsaid: dict[str, str] = {}
        self._watched: dict[str, AgentHandle] = {}
        self._counted = Counted([], {}, {})
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
        self._keep_texts("before")
        self._watched = dict(agents)
        request_all(self._watched, {host: {"command": "watch_machine"} for host in agents}, COMMAND_TIMEOUT_S)
        self._boxes.reset()
        self._counted = self._boxes.counted()
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
        found = Seen(
            None,
            [row for _, rows in samples.values() for row in rows],
            values,
            unwatched=dict(UNWATCHED),
            warnings=lacking(self._plan.settings.kind, self._said),
            statistics={"agents": self._said},
        )
        self._see_boxes(found)
        self._see_others(found)
        return found

    def excuse(self, result: RunResult) -> None:
        """See Site: an agent's own words say why."""

    def _see_boxes(self, found: Seen) -> None:
        """What exact switches counted at ports to nodes of the experiment. Raises Problem when it says nothing."""
        counted = self._boxes.counted_at_rest()
        require_undisturbed(self._counted, counted)
        graph = self._plan.graph
        known = {f"{switch}-{other}" for switch in graph.switches for other in graph.neighbours[switch]}
        found.ports = [row for row in differences(self._counted.rows, counted.rows) if row["port"] in known] or None
        if found.ports:
            behind = lost_by_devices(self._counted, counted)
            lost, told = device_losses({port: losses for port, losses in behind.items() if port in known})
            missing = unaccounted(found.ports)
            found.values |= {"unaccounted_packets": len(missing), "device_lost_packets": lost}
            found.warnings += missing + told

    def _see_others(self, found: Seen) -> None:
        """What other switches say of themselves, kept as they say it."""
        if self._silent:
            why = f"{', '.join(self._silent)} do not count by queue and precedence exactly"
            found.unwatched |= dict.fromkeys(("unaccounted_packets", "device_lost_packets", "link_utilisation"), why)
            found.warnings.append(f"{why}: the table ports is without them; {TEXTS} holds what they say themselves")
            self._keep_texts("after")
            found.warnings += [f"{name} said nothing of its counters: {one}" for name, one in self._unsaid.items()]

    def _keep_texts(self, when: str) -> None:
        if self._silent:
            failed = self._collect(self._directory / TEXTS / when)
            self._unsaid |= {f"{name} ({when} the run)": failed[name] for name in self._silent if name in failed}

    def _samples(self, host: str, found: dict[str, Any]) -> tuple[float, Rows]:
        """When a host's samples began, and they, in the controller's time."""
        here = self._watched[host].clock.here
        rows = [{**row, "host": host, "time_s": here(row["time_s"])} for row in found["rows"]]
        return here(found["begun_s"]), rows


def lacking(kind: str, said: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What agents may not do that a transport of this kind would like to. said: agent → its introduction."""
    told = []
    for name, one in said.items():
        if kind == "dlcp" and one["realtime"]:
            told.append(f"{name}: DLCP's engine had no real-time priority there ({one['realtime']})")
        if kind == "dlcp" and not one["capabilities"]["net_admin"]:
            told.append(f"{name}: sockets had no more buffer than the system's limit (no CAP_NET_ADMIN)")
    return told


def degradations(rendered: Mapping[str, Rendered]) -> list[str]:
    """What switches do instead of what they should, each told once, with all that do so."""
    found: dict[Degradation, list[str]] = {}
    for name, one in rendered.items():
        for degradation in one.degradations:
            found.setdefault(degradation, []).append(f"{name} ({one.device.system})")
    return [f"{', '.join(names)}: {one.where}: {one.instead} ({one.why})" for one, names in found.items()]
