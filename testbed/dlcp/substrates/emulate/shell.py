"""Mininet's own prompt on an emulated fabric, or one of its commands."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from mininet.cli import CLI
from mininet.log import setLogLevel

from dlcp.errors import ExitCode, Problem
from dlcp.isolation.private_namespaces import start_private
from dlcp.model.host_settings import HostSettings
from dlcp.model.qos import QosIntent
from dlcp.model.topology import Graph
from dlcp.substrates.emulate.fabric import Fabric
from dlcp.substrates.emulate.pfc import pausing


def shell(
    graph: Graph,
    intent: QosIntent,
    *,
    seed: int,
    host_settings: HostSettings,
    time_dilation: float = 1.0,
    command: str | None = None,
) -> int:
    """Bring a fabric up in private namespaces and give Mininet's prompt; with `command` run that line alone.

    Returns the exit status: of a command at a node ("h1 ping -c 3 h2") its own; of Mininet's "pingall" 1 when a
    ping was lost; 0 for the prompt.
    """
    request = {
        "graph": graph.model_dump(),
        "intent": intent.model_dump(),
        "seed": seed,
        "host_settings": host_settings.model_dump(),
        "time_dilation": time_dilation,
        "command": command,
    }
    return start_private(f"{__name__}:main", [json.dumps(request)]).attend()


def main(arguments: list[str]) -> int:
    """Entry point inside the namespaces; one argument, the request as JSON."""
    request = json.loads(arguments[0])
    setLogLevel("output")
    graph, intent = Graph.model_validate(request["graph"]), QosIntent.model_validate(request["intent"])
    settings = HostSettings.model_validate(request["host_settings"])
    with (
        Fabric(graph, intent, seed=request["seed"], host_settings=settings) as fabric,
        pausing(fabric, graph, intent, request["time_dilation"]),
    ):
        if request["command"] is not None:
            return _one(fabric, request["command"])
        FabricPrompt(fabric.net)
    return int(ExitCode.FINE)


class FabricPrompt(CLI):  # type: ignore[misc]
    """Mininet's command line. status: what the last command that has one left."""

    status = 0

    def do_pingall(self, line: str) -> None:
        """Ping between all hosts."""
        lost_percent = self.mn.pingAll(line or None)
        self.status = int(ExitCode.RUN_FAILED if lost_percent else ExitCode.FINE)

    def default(self, line: str) -> None:
        """A command at a node, or nothing that is known."""
        words = line.split()
        if words and words[0] not in self.mn:
            self.status = int(ExitCode.BAD_INPUT)
        super().default(line)


def _one(fabric: Fabric, command: str) -> int:
    """A command at a node has this process's own terminal and status; any other is Mininet's."""
    words = command.split()
    if not words:
        raise Problem("dlcp shell -c", "the command is empty", "such as: -c 'h1 ping -c 3 h2'")
    if words[0] not in fabric.net:
        prompt = FabricPrompt(fabric.net, script=os.devnull)  # a script that is over at once: no prompt
        prompt.onecmd(command)
        return prompt.status
    if len(words) == 1:
        raise Problem("dlcp shell -c", f"says {words[0]} and no command for it", f"such as: -c '{words[0]} ip address'")
    node = fabric.net[words[0]]
    line = command.split(maxsplit=1)[1]
    return subprocess.run(_at(node, _with_addresses(fabric, line)), check=False).returncode


def _at(node: Any, line: str) -> list[str]:
    join = ["mnexec", "-a", str(node.pid)] if node.inNamespace else []
    return [*join, "sh", "-c", line]


def _with_addresses(fabric: Fabric, line: str) -> str:
    """Mininet's convenience: a host's name stands for its address."""
    hosts = fabric.pids()
    return " ".join(fabric.address(word) if word in hosts else word for word in line.split(" "))
