"""The substrate `lab`: agents on hosts over SSH, switches as they were deployed. Nothing is configured here.

Whoever may change a lab does it by the playbooks (Operator); this reads what is there, and refuses what is not what a
run needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from dlcp.errors import MachineCannot, Problem, Problems
from dlcp.model.base import OnProgress
from dlcp.model.host_settings import HostSettings
from dlcp.model.lab.inventory import Lab
from dlcp.model.qos import QosIntent
from dlcp.model.result import RunResult
from dlcp.model.run import Run
from dlcp.model.topology import Graph
from dlcp.substrates.conductor import Conductor
from dlcp.substrates.lab.agents import LabHosts, connect, open_all
from dlcp.substrates.lab.site import LabFacts, LabSite
from dlcp.substrates.lab.ssh import Remote
from dlcp.substrates.lab.state import BOX, Boxes, Held, HostState, host_states
from dlcp.substrates.lab.verify import verify_lab
from dlcp.substrates.run_plan import RunPlan, plan_run
from dlcp.switches.vendor.render import Rendered
from dlcp.verification.rows import Row


class Operator(Protocol):
    """What is done to a lab, or asked of it, by the playbooks.

    changes: whether it may change anything. how: what a person types to have an intent or host settings there.
    """

    how: str

    @property
    def changes(self) -> bool: ...

    def rendered(self, intent: QosIntent) -> Mapping[str, Rendered]:
        """What an intent is for each switch. Raises Problems when a switch cannot."""

    def held(self) -> Mapping[str, Held]:
        """What every switch holds, asked by the playbooks."""

    def name_of(self, digest: str) -> str:
        """The name of the intent that a switch with this digest was told."""

    def secret(self) -> bytes:
        """What nobody else in the lab's network knows, the same for all runs on the lab; no result holds it."""

    def collect(self, folder: Path) -> Mapping[str, str]:
        """See lab_site.Collect."""

    def deploy(self, intent: QosIntent, on_progress: OnProgress) -> None:
        """Bring it onto all switches. Raises Problem when it is not there then."""

    def set_hosts(self, settings: HostSettings, on_progress: OnProgress) -> None:
        """Bring a scheme's settings onto all hosts; what the scheme before asked for besides goes back. Raises as
        deploy does."""


class LabSubstrate:
    """Runs experiments on a lab, one after the other, over connections that stay. nodes: of the experiment."""

    def __init__(self, lab: Lab, graph: Graph, operator: Operator) -> None:
        self._lab = lab
        self._graph = graph
        self._operator = operator
        self._hosts = LabHosts(lab, graph.hosts)
        self._boxes = Boxes({}, {})
        self._remotes: dict[str, Remote] = {}
        self._set: HostSettings | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        boxes = {
            name: self._lab.switches[name]
            for name in self._graph.switches
            if self._lab.switches[name].device.system == BOX
        }
        with ExitStack() as stack:
            stack.enter_context(self._hosts)
            self._remotes = connect({name: switch.login for name, switch in boxes.items()})
            for remote in self._remotes.values():
                stack.callback(remote.close)
            self._boxes = Boxes(boxes, self._remotes)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def run(self, run: Run, directory: Path, on_progress: OnProgress) -> RunResult:
        """See Substrate. Raises MachineCannot when the lab is not what the run needs: then no other run is tried."""
        plan = plan_run(run)
        open_all([*self._hosts.remotes.values(), *self._remotes.values()])
        facts = self.prepare(plan.intent, plan.hosts, on_progress)
        cookie = plan.cookie(self._operator.secret())
        site = LabSite(plan, facts, cookie, self._hosts, self._boxes, self._operator.collect, directory)
        result = Conductor(plan, site, directory, on_progress).conduct()
        if result.status != "failed" and (told := self._disturbed(facts.rendered, plan.hosts)):
            result.status, result.reason = "failed", f"when the run was over, {told}"
        return result

    def require(self, runs: Iterable[Run]) -> None:
        """Raises Problems with all that is not as some runs need it, without changing anything: for an operator that
        may not."""
        needed: dict[str, RunPlan] = {}
        for plan in map(plan_run, runs):
            needed.setdefault(f"{plan.intent.model_dump_json()} {plan.hosts.model_dump_json()}", plan)
        problems: list[Problem] = []
        for plan in needed.values():
            for one in self._problems(self._operator.rendered(plan.intent), plan.hosts):
                problems.append(MachineCannot(one.where, f"for {plan.run.scheme.label}: {one.what}", one.hint))
        if problems:
            raise Problems(problems)

    def prepare(self, intent: QosIntent, settings: HostSettings, on_progress: OnProgress) -> LabFacts:
        """Have switches and hosts as a run needs them, or refuse with all that is otherwise."""
        rendered = self._operator.rendered(intent)
        on_progress(0.0, "asking switches and hosts")
        if self._operator.changes:
            if self._switch_troubles(rendered):
                self._operator.deploy(intent, on_progress)
            if settings != self._set or _missed(self._host_states(settings), settings):
                self._operator.set_hosts(settings, on_progress)
                self._set = settings
        if problems := self._problems(rendered, settings):
            raise Problems(problems)
        return LabFacts(self._lab, rendered, self._host_states(settings))

    def verify(
        self, intent: QosIntent, *, seed: int, every_port: bool, logs: Path, on_progress: OnProgress
    ) -> Iterator[Row]:
        """Probe the lab for an intent that it holds, as its switches settled it where all did so alike."""
        effective = [self._operator.rendered(intent)[name].effective for name in self._graph.switches]
        settled = effective[0] if all(one == effective[0] for one in effective) else intent
        boxes = {name: self._lab.switches[name] for name in self._remotes}
        yield from verify_lab(
            self._hosts,
            boxes,
            self._remotes,
            self._graph,
            settled,
            seed=seed,
            every_port=every_port,
            logs=logs,
            on_progress=on_progress,
        )

    def missing(self, intent: QosIntent) -> list[Problem]:
        """What keeps the switches from being verified for an intent: that they do not hold it."""
        return self._told(self._switch_troubles(self._operator.rendered(intent)))

    def _disturbed(self, rendered: Mapping[str, Rendered], settings: HostSettings) -> str:
        """Where boxes and hosts are not what the run began with; others are not asked again, which takes a playbook."""
        troubles = self._troubles(self._boxes.held(), rendered) | self._host_troubles(settings)
        return "; ".join(f"{name}: {what}" for name, what in troubles.items())

    def _problems(self, rendered: Mapping[str, Rendered], settings: HostSettings) -> list[Problem]:
        """Each told once, with all switches or hosts that have it."""
        return self._told(self._switch_troubles(rendered) | self._host_troubles(settings))

    def _told(self, troubles: Mapping[str, str]) -> list[Problem]:
        found: dict[str, list[str]] = {}
        for name, what in troubles.items():
            found.setdefault(what, []).append(name)
        return [MachineCannot(", ".join(names), what, self._operator.how) for what, names in found.items()]

    def _switch_troubles(self, rendered: Mapping[str, Rendered]) -> dict[str, str]:
        """Switch of the experiment → why what it holds is not what it should: another intent, or drift."""
        held = dict(self._boxes.held())
        if any(name not in held for name in self._graph.switches):
            held |= self._operator.held()
        return self._troubles({name: held[name] for name in self._graph.switches}, rendered)

    def _troubles(self, held: Mapping[str, Held], rendered: Mapping[str, Rendered]) -> dict[str, str]:
        return {name: what for name, found in held.items() if (what := self._trouble(found, rendered[name]))}

    def _host_troubles(self, settings: HostSettings) -> dict[str, str]:
        missed = _missed(self._host_states(settings), settings)
        return {name: f"not set up as the scheme needs: {'; '.join(told)}" for name, told in missed.items()}

    def _trouble(self, found: Held, wanted: Rendered) -> str:
        needed = wanted.intended.name
        if not found.digest:
            return f"no QoS of ours is deployed; the run needs the intent {needed}"
        if found.digest != wanted.digest:
            there = found.intent or self._operator.name_of(found.digest)
            other = f" of other numbers ({found.digest}, not {wanted.digest})" if there == needed else ""
            return f"the intent {there}{other} is deployed; the run needs {needed}"
        if found.differences:
            return f"drifted from what was deployed ({needed}): {'; '.join(found.differences)}"
        return ""

    def _host_states(self, settings: HostSettings) -> dict[str, HostState]:
        hosts = {name: self._lab.hosts[name] for name in self._graph.hosts}
        return host_states(hosts, self._hosts.remotes, settings.sysctls)


def _missed(states: Mapping[str, HostState], settings: HostSettings) -> dict[str, list[str]]:
    return {host: told for host, state in states.items() if (told := state.misses(settings))}


SUBSTRATE = LabSubstrate
