"""Inside the private namespaces: an emulated fabric as the site of a run, with all that watches and disturbs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import TypeAdapter

from dlcp.agents.control.handles import AgentHandle, Zygote
from dlcp.agents.core_waits import SoftirqMeter, waits_are_counted
from dlcp.agents.machine_monitor import MachineMonitor
from dlcp.errors import Problem
from dlcp.model.faults import GrayFailure
from dlcp.model.qos import Pfc
from dlcp.model.result import RunResult
from dlcp.model.run import Run
from dlcp.substrates.conductor import Conductor, QuickStart, Rows, Seen
from dlcp.substrates.emulate.fabric import Fabric
from dlcp.substrates.emulate.faults import FaultPlayer, timeline
from dlcp.substrates.emulate.host_counters import HostLinks, conserved_packets
from dlcp.substrates.emulate.monitors import Watch
from dlcp.substrates.emulate.pfc import PauseLoop, pausing
from dlcp.substrates.json_lines import Say, answer
from dlcp.substrates.run_plan import RunPlan, plan_run

DRAIN_S = 2.0
"""Longest wait for the queues to run empty after the job, in lab time; a full port buffer drains in milliseconds."""


def main(arguments: list[str]) -> int:
    """Entry point of start_private: the zygote's control socket, then the kernel's counters that SoftirqMeter reads; a
    conversation on stdin and stdout."""
    zygote_file, *softirq_files = map(int, arguments)

    def conduct(request: dict[str, Any], say: Say) -> None:
        plan = plan_run(TypeAdapter(Run).validate_python(request["run"]))
        with closing(Zygote.adopt(zygote_file)) as zygote:

            def on_progress(share: float, text: str) -> None:
                say({"progress": share, "text": text})

            site = EmulatedSite(plan, zygote, softirq_files)
            result = Conductor(plan, site, Path(request["directory"]), on_progress).conduct()
        say({"result": result.model_dump(mode="json")})

    return answer(conduct)


class EmulatedSite(QuickStart):
    """See Site. Nobody else is in the namespaces, so that the cookie is no secret; it is the plan's."""

    def __init__(self, plan: RunPlan, zygote: Zygote, softirq_files: Sequence[int]) -> None:
        self.cookie = plan.cookie()
        self._plan = plan
        self._zygote = zygote
        self._softirq_files = softirq_files
        experiment = plan.run.experiment
        self._fabric = Fabric(plan.graph, plan.intent, seed=plan.run.seed, host_settings=plan.hosts)
        self._timeline = timeline(experiment.faults, plan.graph, experiment.time_limit_s)
        self._effective: dict[str, Any] = {}
        self._hosts_before: HostLinks | None = None
        self._monitor = MachineMonitor()
        self._softirq_wait_s: float | None = None
        self._watch: Watch | None = None
        self._player: FaultPlayer | None = None
        self._pauses: PauseLoop | None = None

    def __enter__(self) -> Self:
        self._fabric.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._fabric.__exit__(kind, error, at)

    def describe(self, result: RunResult) -> None:
        """See Site."""
        result.intended = self._fabric.intended()
        result.effective = self._effective = self._fabric.effective()

    def addresses(self) -> dict[str, str]:
        """See Site."""
        return {host: self._fabric.address(host) for host in self._plan.graph.hosts}

    def start_agents(self, names: Mapping[str, str], logs: Path) -> dict[str, AgentHandle]:
        """See Site."""
        pids = self._fabric.pids()
        return self._zygote.start({name: pids[host] for name, host in names.items()}, logs)

    @contextmanager
    def watching(self, agents: Mapping[str, AgentHandle]) -> Iterator[None]:
        """See Site."""
        fabric, plan = self._fabric, self._plan
        self._hosts_before, _ = HostLinks.read_with(fabric, fabric.reset_counters)
        shaky = () if plan.intent.pfc is None else [port for _, port in fabric.switch_ports]
        every_s = plan.run.experiment.backlog_every_s
        dilation = plan.settings.time_dilation
        with pausing(fabric, plan.graph, plan.intent, dilation) as self._pauses:
            self._watch = Watch(fabric, plan.graph, every_s, [*shaky, *self._faulty_ports()], time_dilation=dilation)
            softirq = SoftirqMeter(self._softirq_files)
            with self._monitor, self._watch:
                yield
            self._softirq_wait_s = softirq.wait_s()

    def playing(self, start_s: float) -> FaultPlayer:
        """See Site."""
        self._player = FaultPlayer(self._fabric, self._timeline, start_s)
        return self._player

    def seen(self, start_s: float, end_s: float) -> Seen:
        """See Site."""
        fabric, watch, player = self._fabric, self._watch, self._player
        assert watch is not None
        assert player is not None
        unaccounted = fabric.conservation(DRAIN_S * self._plan.settings.time_dilation)
        hosts, (ports, strays) = HostLinks.read_with(fabric, lambda: (fabric.counters(), fabric.strays()))
        if self._timeline:
            self._require_mended()
        values: dict[str, float] = {
            "cpu_busy": self._monitor.cpu_busy(start_s, end_s),
            "cpu_stolen": self._monitor.stolen(),
            "uncounted_waits": int(not waits_are_counted()),
            "softnet_dropped": self._monitor.softnet_dropped(),
            "timer_late_s": watch.late_s,
            "unaccounted_packets": len(unaccounted),
            **conserved_packets(self._hosts_before, hosts, ports, self._astray(strays)),
        }
        unwatched = {}
        if self._softirq_wait_s is not None:
            values["softirq_wait"] = self._softirq_wait_s / (end_s - start_s)
        else:
            unwatched["softirq_wait"] = "the kernel's own threads are not seen from here, as in a container"
        if (share := watch.saturation.share) is not None:
            values["saturated_rate"] = share
        if self._plan.run.experiment.backlog_every_s is not None:
            values["backlog_late"] = watch.samples.late_share
        warnings = [*unaccounted]
        if self._hosts_before is None or hosts is None:
            warnings.insert(0, "hosts never fell silent, so packets were not counted from end to end")
        statistics: dict[str, Any] = {"faults": [done.data() for done in player.done]}
        if self._timeline:
            values["fault_late_s"] = player.late_s
            warnings = player.never() + warnings
        if self._pauses is not None and self._plan.intent.pfc is not None:
            values |= {"pfc_late_s": self._pauses.late_s, "pfc_dropped_packets": _lost_in(self._plan.intent.pfc, ports)}
            statistics["pfc"] = self._pauses.data()
        return Seen(
            ports,
            self._monitor.rows,
            values,
            watch.table(),
            unwatched=unwatched,
            warnings=warnings,
            statistics=statistics,
        )

    def excuse(self, result: RunResult) -> None:
        """See Site: faults that were played, and those that lasted when it failed."""
        if self._player is None:
            return
        result.statistics = {"faults": [done.data() for done in self._player.done]}
        if lasting := self._player.lasting:
            result.reason += f"; at that time there was {', '.join(lasting)}"

    def _astray(self, strays: Rows) -> tuple[int, int]:
        """Packets that were not IPv4, and those for nobody, unless a detour may have left them without a way."""
        detours = any(action.event == "reroute" for action in self._timeline)
        unrouted = 0 if detours else sum(row["unrouted_packets"] for row in strays)
        return sum(row["not_ipv4_packets"] for row in strays), unrouted

    def _faulty_ports(self) -> list[str]:
        """Ends of the links at which a fault of the experiment changes what a port sends; a loss does not."""
        faults = self._plan.run.experiment.faults
        ends = [fault.ends for fault in faults if not isinstance(fault, GrayFailure)]
        return ["-".join(way) for pair in ends for way in (pair, pair[::-1])]

    def _require_mended(self) -> None:
        """After the last fault the fabric must be what it was before the first."""
        self._fabric.verify()
        if (after := self._fabric.effective()) != self._effective:
            what = f"left the fabric changed: it was {self._effective}, it is {after}"
            raise Problem("faults", what, "this is a defect")


def _lost_in(pfc: Pfc, ports: Rows) -> int:
    """Packets of lossless queues that found no buffer."""
    lossless = [row for row in ports if row["queue"] in pfc.queues]
    return sum(row["dropped_tail_packets"] + row["dropped_shared_packets"] for row in lossless)
