"""`dlcp switch verify` on the substrate `emulate`: a fabric in private namespaces, agents on all hosts, probes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

from dlcp.agents.control.handles import AgentError, Zygote
from dlcp.errors import ExitCode, Problem
from dlcp.isolation.private_namespaces import start_private
from dlcp.model.base import OnProgress
from dlcp.model.host_settings import HostSettings
from dlcp.model.qos import QosIntent
from dlcp.model.topology import Graph
from dlcp.substrates.agent_prober import AgentProber
from dlcp.substrates.emulate.fabric import Fabric
from dlcp.substrates.json_lines import Say, answer, messages
from dlcp.verification.prober import Reading
from dlcp.verification.procedure import verify
from dlcp.verification.rows import Row


class FabricCounters:
    """The counters of an emulated fabric's switches."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric

    def read(self, ports: Iterable[tuple[str, str]]) -> Reading:
        """See dlcp.verification.prober.Counters."""
        wanted = {f"{switch}-{neighbour}": (switch, neighbour) for switch, neighbour in ports}
        time_s = time.monotonic()
        found: dict[tuple[str, str], dict[tuple[int, int], dict[str, int]]] = {port: {} for port in wanted.values()}
        for row in self._fabric.counters():
            if row["port"] in wanted:
                found[wanted[row["port"]]][row["queue"], row["precedence"]] = {
                    name: value for name, value in row.items() if name.endswith(("_packets", "_bytes"))
                }
        return Reading(time_s, found)


def verify_fabric(
    fabric: Fabric,
    graph: Graph,
    intent: QosIntent,
    zygote: Zygote,
    *,
    seed: int,
    every_port: bool,
    on_progress: OnProgress,
) -> Iterator[Row]:
    """Start an agent on each host of a running fabric, verify it, end the agents."""
    agents = zygote.start(fabric.pids())
    try:
        addresses = {host: fabric.address(host) for host in graph.hosts}
        prober = AgentProber(agents, addresses, FabricCounters(fabric))
        yield from verify(prober, graph, intent, seed=seed, every_port=every_port, on_progress=on_progress)
    finally:
        for agent in agents.values():
            agent.close()


def verify_emulated(
    graph: Graph,
    intent: QosIntent,
    *,
    seed: int,
    host_settings: HostSettings,
    every_port: bool,
    on_progress: OnProgress,
) -> Iterator[Row]:
    """Bring a fabric up in private namespaces, verify it, take it down. Raises Problem when the machine cannot, or the
    verification came to an end in the middle."""
    request = {
        "graph": graph.model_dump(),
        "intent": intent.model_dump(),
        "seed": seed,
        "host_settings": host_settings.model_dump(),
        "every_port": every_port,
    }
    with closing(Zygote.spawn()) as zygote:
        process = start_private(
            f"{__name__}:main",
            [str(zygote.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[zygote.fileno()],
        )
        try:
            for message in messages(process, request):
                if "row" in message:
                    yield Row(**message["row"])
                elif "step" in message:
                    on_progress(*message["step"])
                else:
                    return
        finally:
            process.stop()
    raise Problem(
        "dlcp switch verify",
        "the emulation ended without a word",
        "its last lines are above",
        exit_code=ExitCode.RUN_FAILED,
    )


def main(arguments: list[str]) -> int:
    """Entry point inside the namespaces: the zygote's control socket; a conversation on stdin and stdout."""

    def work(request: dict[str, Any], say: Say) -> None:
        try:
            with closing(Zygote.adopt(int(arguments[0]))) as zygote:
                _verify(request, zygote, say)
        except AgentError as error:
            raise Problem("dlcp switch verify", str(error), exit_code=ExitCode.RUN_FAILED) from error
        say({"done": True})

    return answer(work)


def _verify(request: dict[str, Any], zygote: Zygote, say: Say) -> None:
    graph, intent = Graph.model_validate(request["graph"]), QosIntent.model_validate(request["intent"])
    seed = request["seed"]
    host_settings = HostSettings.model_validate(request["host_settings"])
    say({"step": [0.0, "bringing the fabric up"]})
    with Fabric(graph, intent, seed=seed, host_settings=host_settings) as fabric:
        rows = verify_fabric(
            fabric,
            graph,
            intent,
            zygote,
            seed=seed,
            every_port=request["every_port"],
            on_progress=lambda share, text: say({"step": [share, text]}),
        )
        for row in rows:
            say({"row": vars(row)})
        fabric.verify()
