"""What a packet costs on this machine: measured in private namespaces on a fabric like that of any run.

Hosts send to each other at line rate, inside a leaf and across it, so that packets pass one switch or three; what that
takes of all cores, less what the machine takes when nothing is sent, is shared out over the packets that arrive. Such
windows take turns with idle ones and with a bare veth pair, several times, and the median of each counts: others' work
then meets all of them alike.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlcp.agents.machine_monitor import cpu_busy_s
from dlcp.agents.precise_waits import Deadlines, be_punctual
from dlcp.errors import MachineCannot, Problem, decode_problem, encode_problem
from dlcp.isolation.netns import Namespace
from dlcp.isolation.private_namespaces import start_private
from dlcp.model.base import OnProgress
from dlcp.model.host_settings import HostSettings
from dlcp.model.qos import QosIntent
from dlcp.model.topology import LeafSpine
from dlcp.substrates.emulate.device_names import Devices
from dlcp.substrates.emulate.fabric import Fabric
from dlcp.traffic.native import DATAGRAM_BYTES, Lane, Sink, Source, expect, flow_array
from dlcp.transport.contract.codepoint import tos_of_queue

LEAVES, SPINES, HOSTS = 2, 4, 8
"""As many spines as hosts a leaf: no link between switches is asked for more than it carries."""
RATE_BPS = 60e6
"""Eight flows of 60 Mbit/s are 41 thousand packets a second, which keep two cores two thirds busy over one switch and
nine tenths over three: what a packet costs follows from how often a core is woken for it, so it is measured as loaded
as a full run is."""
OVER_RATE = 1.02
COOKIE = 0xCA11B8A7
PORT_BUFFER_BYTES = 1_000_000
ROUNDS = 5
WARM_UP_S = 0.15
WINDOW_S = 0.6
CANARY_S = 0.002
"""A wake-up that is due so often tells how late wake-ups are; idle windows have it too, so that it costs nothing."""
QUEUE = 3
IDLE, BARE, ONE_SWITCH, THREE_SWITCHES = "idle", "bare veth pair", "one switch", "three switches"
QUICKEST_S, SLOWEST_S = 1e-8, 1e-3
"""No machine that runs Python takes less or more for a packet."""
_BARE = ("bare0", "bare1")
_BARE_ADDRESSES = ("198.51.100.1", "198.51.100.2")  # TEST-NET-2 of RFC 5737: nobody's


@dataclass
class Measured:
    """bare_s: CPU seconds of one packet over a bare veth pair, both ends. ends_s: at both hosts of a fabric, their own
    shapers and queues included. hop_s: for each switch that it passes. late_s: 99th percentile of how late a wake-up
    comes under this load.

    other_busy: share of all cores that others' work took in the idle windows. spread: largest distance between the
    quartiles of a figure's rounds, as a share of the figure. rounds: CPU seconds a packet, by window, in order.
    """

    bare_s: float
    ends_s: float
    hop_s: float
    late_s: float
    other_busy: float
    spread: float
    packets_per_s: float
    seconds: float
    rounds: dict[str, list[float]] = field(default_factory=dict)


def measure(on_progress: OnProgress) -> Measured:
    """Measure, which takes about WINDOWS × ROUNDS seconds. on_progress: told the share done and what is being done.

    Raises MachineCannot without root or namespaces, or when the figures make no sense.
    """
    process = start_private(f"{__name__}:main", stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            message = json.loads(line)
            if "problem" in message:
                problem = decode_problem(message["problem"])
                raise MachineCannot(problem.where, problem.what, problem.hint)
            if "result" in message:
                return Measured(**message["result"])
            on_progress(message["share"], message["text"])
        raise MachineCannot("calibration", f"ended early (status {process.wait()})", "its last lines are above")
    finally:
        process.stop()


def main(arguments: list[str]) -> int:
    """Inside the namespaces: JSON lines of progress, then the result."""

    def tell(message: dict[str, Any]) -> None:
        print(json.dumps(message), flush=True)

    be_punctual()
    begun_s = time.monotonic()
    tell({"share": 0.0, "text": "building a fabric of eight hosts and six switches"})
    try:
        found = _measure(lambda share, text: tell({"share": share, "text": text}))
    except Problem as problem:
        tell({"problem": encode_problem(problem)})
        return int(problem.exit_code)
    found.seconds = round(time.monotonic() - begun_s, 2)
    tell({"result": vars(found)})
    return 0


def _measure(on_progress: OnProgress) -> Measured:
    graph = LeafSpine(kind="leaf-spine", leaves=LEAVES, spines=SPINES, hosts=HOSTS, rate=RATE_BPS).graph
    intent = QosIntent(name="calibration", port_buffer=PORT_BUFFER_BYTES, load_balancing="per-packet")
    with Fabric(graph, intent, seed=1, host_settings=HostSettings()) as fabric:
        half, names = HOSTS // 2, graph.hosts
        inside = [(names[i], names[i // half * half + (i + 1) % half]) for i in range(HOSTS)]
        across = [(names[i], names[(i + half) % HOSTS]) for i in range(HOSTS)]
        windows: dict[str, list[_Flow]] = {IDLE: [], BARE: _bare_flows(fabric)}
        windows |= {name: _flows(fabric, pairs) for name, pairs in ((ONE_SWITCH, inside), (THREE_SWITCHES, across))}
        seen: dict[str, list[Window]] = {name: [] for name in windows}
        for number in range(ROUNDS):
            for place, (name, flows) in enumerate(windows.items()):
                on_progress(
                    (number * len(windows) + place) / (ROUNDS * len(windows)), f"round {number + 1} of {ROUNDS}: {name}"
                )
                seen[name].append(_watch(flows))
    return sum_up(seen)


@dataclass(frozen=True)
class _Flow:
    """Between hosts: their namespaces, and the addresses that the packets bear."""

    source: Namespace
    source_at: str
    sink: Namespace
    sink_at: str


@dataclass(frozen=True)
class Window:
    """cpu_s: of all cores, by everything that ran. packets: that arrived. late_s: every wake-up of the canary."""

    seconds: float
    cpu_s: float
    packets: int
    late_s: float


def sum_up(windows: Mapping[str, Sequence[Window]]) -> Measured:
    """From the windows of all rounds, by name. Raises MachineCannot when they make no sense together."""
    idle = statistics.median(one.cpu_s / one.seconds for one in windows[IDLE])
    cost = {
        name: [(one.cpu_s - idle * one.seconds) / max(1, one.packets) for one in found]
        for name, found in windows.items()
        if name != IDLE
    }
    middle = {name: statistics.median(values) for name, values in cost.items()}
    hop_s = (middle[THREE_SWITCHES] - middle[ONE_SWITCH]) / 2
    ends_s = middle[ONE_SWITCH] - hop_s
    plausible = all(QUICKEST_S < one < SLOWEST_S for one in (middle[BARE], ends_s, hop_s))
    if not plausible or hop_s >= 10 * ends_s:
        said = ", ".join(f"{name} {value * 1e6:.2f} µs" for name, value in middle.items())
        raise MachineCannot(
            "calibration",
            f"the figures make no sense together (a packet over {said})",
            "other work is in them: repeat on a quiet machine",
        )
    loaded = [one for name in cost for one in windows[name]]
    return Measured(
        bare_s=middle[BARE],
        ends_s=ends_s,
        hop_s=hop_s,
        late_s=statistics.median(one.late_s for one in windows[THREE_SWITCHES]),
        other_busy=idle / (os.cpu_count() or 1),
        spread=max(_spread(values) for values in cost.values()),
        packets_per_s=max(one.packets / one.seconds for one in loaded),
        seconds=0.0,
        rounds=cost,
    )


def _spread(values: Sequence[float]) -> float:
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / statistics.median(values)


def _watch(flows: Sequence[_Flow]) -> Window:
    """Send over all flows at once; look at a stretch in the middle."""
    running = [_open(flow) for flow in flows]
    for source, _ in running:
        source.start(time.monotonic_ns())
    time.sleep(WARM_UP_S)
    canary = Deadlines()
    begun_s, cpu_s, size_bytes = time.monotonic(), cpu_busy_s(), _arrived_bytes(running)
    due_s = begun_s
    while (due_s := due_s + CANARY_S) < begun_s + WINDOW_S:
        canary.sleep_until(due_s)
    seconds, cpu_s = time.monotonic() - begun_s, cpu_busy_s() - cpu_s
    packets = (_arrived_bytes(running) - size_bytes) // DATAGRAM_BYTES
    for source, sink in running:
        source.stop()
        sink.stop()
    return Window(seconds, cpu_s, packets, canary.late_s())


def _arrived_bytes(running: Sequence[tuple[Source, Sink]]) -> int:
    return sum(sink.bytes for _, sink in running)


def _open(flow: _Flow) -> tuple[Source, Sink]:
    """Enough for the whole window, a little faster than the link, so that the shapers work."""
    seconds = 2 * (WARM_UP_S + WINDOW_S)
    size_bytes = int(RATE_BPS * seconds / 8 / DATAGRAM_BYTES) * DATAGRAM_BYTES
    flows = flow_array([0.0], [size_bytes])
    with flow.sink.entered():
        sink = Sink(flow.sink_at, 0, COOKIE, expect(flows, flow.source_at))
    with flow.source.entered():
        lane = Lane(flows, tos=tos_of_queue(QUEUE), rate_bps=RATE_BPS * OVER_RATE)
        source = Source(flow.source_at, COOKIE, [lane], [(flow.sink_at, sink.port)])
    return source, sink


def _flows(fabric: Fabric, pairs: Sequence[tuple[str, str]]) -> list[_Flow]:
    return [_Flow(fabric.namespace(a), fabric.address(a), fabric.namespace(b), fabric.address(b)) for a, b in pairs]


def _bare_flows(fabric: Fabric) -> list[_Flow]:
    """As many flows over a veth pair of two hosts beside the fabric: no shaper, no program, no offload."""
    first, second = list(fabric.pids())[:2]
    fabric.namespace(first).run(
        ["ip", "-batch", "-"],
        [f"link add {_BARE[0]} numtxqueues 1 type veth peer {_BARE[1]} numtxqueues 1 netns {fabric.pids()[second]}"],
    )
    ends = []
    for host, device, address in zip((first, second), _BARE, _BARE_ADDRESSES, strict=True):
        namespace = fabric.namespace(host)
        with Devices(namespace) as devices:
            devices.disable_offloads(device)
        namespace.run(["ip", "-batch", "-"], [f"address add {address}/30 dev {device}", f"link set {device} up"])
        ends.append((namespace, address))
    return [_Flow(*ends[n % 2], *ends[1 - n % 2]) for n in range(HOSTS)]
