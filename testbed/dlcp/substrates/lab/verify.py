"""`dlcp switch verify` on a lab: probes by agents on its hosts, counters of the switches that have exact ones."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from dlcp.agents.control.handles import AgentHandle, request_all
from dlcp.agents.machine_monitor import mean_busy
from dlcp.errors import ExitCode, Problem, decode_problem
from dlcp.files.json_text import parse_json
from dlcp.model.base import OnProgress
from dlcp.model.frames import FRAME_BYTES
from dlcp.model.lab.inventory import LabSwitch
from dlcp.model.qos import QosIntent
from dlcp.model.topology import Graph
from dlcp.substrates.agent_prober import AgentProber
from dlcp.substrates.lab.agents import LabHosts
from dlcp.substrates.lab.ssh import Remote
from dlcp.substrates.lab.state import box_command
from dlcp.verification.prober import Counters, Reading
from dlcp.verification.procedure import verify
from dlcp.verification.rows import Row

ANSWER_TIMEOUT_S = 20.0
WATCH_TIMEOUT_S = 20.0
CLOCK_FRAMES = 8
"""Of the slowest host's link: so far may two clocks be off together before delays say nothing of a queue."""

Ports = dict[tuple[str, str], dict[tuple[int, int], dict[str, int]]]


class FollowedBoxes:
    """Counters of Linux switches, for the time of a block: a process on each answers as often as it is asked."""

    def __init__(self, switches: Mapping[str, LabSwitch], remotes: Mapping[str, Remote]) -> None:
        self._switches = dict(switches)
        self._remotes = remotes
        self._channels: dict[str, Any] = {}

    def __enter__(self) -> Self:
        for name, switch in self._switches.items():
            line = f"exec {shlex.join(box_command(switch, 'dlcp.switches.linux.follow'))}"
            self._channels[name] = self._remotes[name].channel(line)
        return self

    def __exit__(self, *_: object) -> None:
        for channel in self._channels.values():
            channel.close()
        self._channels = {}

    def read(self, ports: Iterable[tuple[str, str]]) -> Reading:
        """See dlcp.verification.prober.Counters."""
        wanted = list(ports)
        names = list(dict.fromkeys(switch for switch, _ in wanted))
        time_s = time.monotonic()
        for name in names:
            self._channels[name].sendall(b"\n")
        found: Ports = {port: {} for port in wanted}
        times_s: dict[tuple[str, str], float] = {}
        for name in names:
            said = self._answer(name)
            wiring = self._switches[name].wiring
            times_s |= {port: said["monotonic_s"] for port in wanted if port[0] == name}
            for row in said["rows"]:
                if (port := (name, wiring.get(row["port"], ""))) in found:
                    found[port][row["queue"], row["precedence"]] = {
                        column: value for column, value in row.items() if column.endswith(("_packets", "_bytes"))
                    }
        return Reading(time_s, found, times_s)

    def _answer(self, name: str) -> dict[str, Any]:
        channel, received = self._channels[name], b""
        channel.settimeout(ANSWER_TIMEOUT_S)
        try:
            while not received.endswith(b"\n") and (part := channel.recv(1 << 20)):
                received += part
            said: dict[str, Any] = parse_json(received.decode())
        except (OSError, ValueError) as error:
            words = channel.recv_stderr(2000).decode(errors="replace") if channel.recv_stderr_ready() else str(error)
            what = f"its counters: expected a line of JSON within {ANSWER_TIMEOUT_S:g} s, received {words or 'nothing'}"
            raise Problem(self._remotes[name].where, what, exit_code=ExitCode.RUN_FAILED) from error
        if problem := said.get("problem"):
            raise decode_problem(problem, at=name)
        return said


class HostsWatch:
    """How busy the hosts' own machines are: see probing.Busyness."""

    def __init__(self, agents: Mapping[str, AgentHandle]) -> None:
        self._agents = dict(agents)
        self._found: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> Self:
        request_all(self._agents, {host: {"command": "watch_machine"} for host in self._agents}, WATCH_TIMEOUT_S)
        return self

    def __exit__(self, *_: object) -> None:
        stop: dict[str, dict[str, Any]] = {host: {"command": "stop_watching"} for host in self._agents}
        self._found = request_all(self._agents, stop, WATCH_TIMEOUT_S)

    def cpu_busy(self, start_s: float, end_s: float) -> float:
        """Of the busiest machine, between two instants of the caller's clock."""
        busy = []
        for host, found in self._found.items():
            there = self._agents[host].clock.there
            busy.append(mean_busy(found["rows"], found["begun_s"], there(start_s), there(end_s)))
        return max(busy, default=0.0)

    def softnet_dropped(self) -> int:
        """Of all machines."""
        return sum(row["softnet_dropped"] for found in self._found.values() for row in found["rows"])


def verify_lab(
    hosts: LabHosts,
    boxes: Mapping[str, LabSwitch],
    remotes: Mapping[str, Remote],
    graph: Graph,
    intent: QosIntent,
    *,
    seed: int,
    every_port: bool,
    logs: Path,
    on_progress: OnProgress,
) -> Iterator[Row]:
    """Rows, as they are found, of a lab that holds the intent. boxes: its Linux switches, remotes: connections to them;
    without one for every switch nobody is asked for counts."""
    without = [name for name in graph.switches if name not in boxes]
    why = f"{', '.join(without)} have no exact counters" if without else ""
    on_progress(0.0, "starting agents")
    with hosts.agents({host: host for host in graph.hosts}, logs) as agents, FollowedBoxes(boxes, remotes) as followed:
        counters: Counters | None = None if without else followed
        prober = AgentProber(
            agents,
            hosts.addresses(),
            counters,
            why,
            watch=lambda: HostsWatch(agents),
            clock_error_s=CLOCK_FRAMES * FRAME_BYTES * 8 / graph.slowest_host_bps,
        )
        yield from verify(prober, graph, intent, seed=seed, every_port=every_port, on_progress=on_progress)
