"""An emulated fabric: Mininet's hosts, eBPF switches, shaped links; everything configured is read back and compared.

To be used inside dlcp.isolation.private_namespaces: the links, namespaces and programs go away with that process, not
by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dlcp.errors import Problem
from dlcp.isolation.netns import Namespace
from dlcp.isolation.private_namespaces import BPF_PINS
from dlcp.model.host_settings import HostSettings
from dlcp.model.qos import QosIntent
from dlcp.model.topology import Graph
from dlcp.substrates.emulate import delayed_links, interfaces
from dlcp.substrates.emulate.live_ports import LivePorts
from dlcp.substrates.emulate.mininet_nodes import empty_network
from dlcp.substrates.emulate.wiring_plan import NETWORK_BITS, End, Wiring
from dlcp.switches import tc
from dlcp.switches.bpf.emulated import EmulatedSwitches, LinkEnd, SwitchPort, intended

_OWN = ""

_HOSTS_AT_A_TIME = 4

_CONGESTION_CONTROL = "net.ipv4.tcp_congestion_control"
_DEFAULT_CONGESTION_CONTROL = "cubic"
"""What Linux ships with; the machine's own default may be another."""


class Fabric:
    """A running fabric, from __enter__ to __exit__.

    seed: of the switches' flow hashes. host_settings: for every host alike; TCP's congestion control is set on the
    hosts' routes (cubic unless host_settings.sysctls names another), its timer floor to whole milliseconds.
    """

    def __init__(self, graph: Graph, intent: QosIntent, *, seed: int, host_settings: HostSettings) -> None:
        self._wiring = Wiring(graph)
        self._intent = intent
        self._seed = seed
        self._settings = host_settings
        self._namespaces: dict[str, Namespace] = {}
        self._switches: EmulatedSwitches | None = None
        self._ports: LivePorts | None = None
        self.net: Any = None
        """Mininet's own object, for its command line and node.cmd()."""

    def __enter__(self) -> Self:
        if not BPF_PINS.is_mount():
            raise Problem(
                "Fabric", "must run inside dlcp.isolation.private_namespaces", "start it with run_private(...)"
            )
        try:
            self._build()
        except BaseException:
            self._tear_down()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._tear_down()

    def pids(self) -> dict[str, int]:
        """Host → the process id of its shell, for `mnexec -a PID COMMAND`."""
        return {host.name: host.pid for host in self.net.hosts}

    def address(self, host: str) -> str:
        """A host's IPv4 address."""
        return str(self._wiring.address(host).ip)

    def namespace(self, host: str) -> Namespace:
        """A host's network namespace; sockets made while it is entered stay in it."""
        return self._namespaces[host]

    def verify(self) -> None:
        """Read offloads, qdiscs, classes, programs and addresses back once more. Raises Problem if any has changed."""
        self._verify_ports()
        self._at_all(self._verify_addresses)
        delayed_links.verify(self._own, self._wiring.wires, self._live.program)
        self._live.verify()

    def counters(self) -> list[dict[str, Any]]:
        """Rows of the table `ports` since the start or reset_counters().

        backlog_histogram: in bucket i of 16, the packets that found their queue's backlog in the i-th sixteenth of the
        port's buffer.
        """
        return self._live.counters()

    def strays(self) -> list[dict[str, Any]]:
        """For each switch port: packets that came in and were dropped, not being IPv4 or having no route."""
        return self._live.strays()

    def host_counters(self) -> list[dict[str, Any]]:
        """One row for each (host, queue, precedence): what its interface received and sent, and what died under way to
        it on a cut cable (dropped_down, of the received), packets and bytes."""
        return self._live.host_counters()

    def backlogs(self) -> npt.NDArray[np.uint64]:
        """[port, queue] in bytes at this moment, ports as in switch_ports; read from the switches' own memory without
        a call, so it may be asked for often."""
        return self._live.backlogs()

    @property
    def switch_ports(self) -> tuple[tuple[str, str], ...]:
        """(switch, port) of each row of backlogs()."""
        return tuple((port.node, port.device) for port in self._live.ports)

    def reset_counters(self) -> None:
        """Count from here."""
        self._live.reset_counters()

    def conservation(self, drain_s: float = 2.0) -> list[str]:
        """Where packets are unaccounted for, after waiting up to drain_s for the queues to run empty."""
        return self._live.conservation(drain_s)

    def set_loss(self, sender: str, receiver: str, share: float) -> None:
        """Lose a random share of what a node sends to a neighbour, as a bad cable would; 0 mends it.

        What a switch sends is lost at its port, before it takes a place in a queue; what a host sends, where it comes
        in, so that the host's sockets do not feel it."""
        end = self._wiring.end(sender, receiver)
        if end.is_host:  # behind the link's delay, if it has one
            end = next((wire for wire in self._wiring.wires if (wire.node, wire.neighbour) == (receiver, sender)), end)
        self._live.set_loss(end.device, share)

    def set_link(self, a: str, b: str, up: bool) -> None:
        """Cut a link or mend it, for both directions.

        What waits for it in the queues of its ends, or is handed to it while it is cut, never arrives: dropped_down.
        The kernel's interfaces keep their carrier, a host's too: its sockets learn of the cut by silence alone."""
        inner = [wire for wire in self._wiring.wires if {wire.node, wire.neighbour} == {a, b}]
        self._live.set_link([end.device for end in (*self._both_ends(a, b), *inner)], up=up)

    def set_rate(self, a: str, b: str, rate_bps: float) -> None:
        """Shape both directions of a link to another rate, in place; the averages of WRED and verify_link() know it."""
        for end in self._both_ends(a, b):
            self._tc.set_rate(end.device, rate_bps)
            self._live.set_rate(end.device, rate_bps)

    def verify_link(self, a: str, b: str) -> None:
        """Read a link's two ends back, as verify() does all. Takes some milliseconds an end."""
        for end in self._both_ends(a, b):
            with self._tc.unchanged():
                self._verify_some(end.node if end.is_host else _OWN, [self._tc[end.device]])

    def freeze(self, node: str, neighbour: str, queue: int, for_s: float) -> None:
        """Let nothing out of a queue of a node's port towards a neighbour for so long, to a few milliseconds.

        One packet leaves as it begins, and one more for every further second that it lasts; none if the queue was
        empty. It ends by itself."""
        self._tc.freeze(self._wiring.end(node, neighbour).device, queue, for_s)

    @property
    def fillers(self) -> int:
        """Frames that freezes have put on links to hosts: interfaces have received them, no switch counts them."""
        to_hosts = (end.device for end in self._wiring.switch_ends if end.faces_host)
        return sum(self._tc.fillers[device] for device in to_hosts)

    def thaw(self, node: str, neighbour: str, queue: int) -> None:
        """End a freeze before its time, within a second."""
        self._tc.thaw(self._wiring.end(node, neighbour).device, queue)

    def pause(self, node: str, neighbour: str, queue: int) -> None:
        """Hold a queue of a node's port towards a neighbour (a host's, too) at a hundredth of the link's rate."""
        self._tc.pause(self._wiring.end(node, neighbour).device, queue)

    def resume(self, node: str, neighbour: str, queue: int) -> None:
        """End a pause: full rate again after at most a hundred frame times, the last frame's debt."""
        self._tc.resume(self._wiring.end(node, neighbour).device, queue)

    def reroute(self, without: Iterable[tuple[str, str]]) -> None:
        """Have the switches choose among the shortest paths that are left without some links, given by their nodes; a
        destination that cannot be reached has no route then (dropped_unrouted)."""
        self._live.set_routes(self._wiring.routes(without))

    def effective(self) -> dict[str, Any]:
        """What switches and hosts really do, as read back from the kernel."""
        return self._live.effective() | {"weights": self._effective_weights(), "hosts": self._effective_hosts()}

    def intended(self) -> dict[str, Any]:
        """What they should do: equal to effective() when everything is as it was asked for."""
        host = {
            "sysctls": self._sysctls(),
            "congestion_control": self._tcp_metrics().congestion_control,
            "rto_min_s": self._settings.rto_min_s,
        }
        switches = intended(self._wiring.graph.switches, self._intent)
        weights = self._weights()
        return switches | {"weights": tc.shares(weights) if len(weights) > 1 else {}, "hosts": {"all": host}}

    @property
    def _tc(self) -> LivePorts:
        if self._ports is None:
            raise Problem("Fabric", "is not running: use it in a with statement")
        return self._ports

    @property
    def _live(self) -> EmulatedSwitches:
        if self._switches is None:
            raise Problem("Fabric", "is not running: use it in a with statement")
        return self._switches

    def _build(self) -> None:
        wiring = self._wiring
        self._start_nodes()
        self._at_all(lambda name: interfaces.disable_ipv6(self._namespaces[name]))
        delayed_links.require_delays(self._own, wiring.wires)
        interfaces.make_links(self._own, wiring, self.pids())
        self._switches = EmulatedSwitches(
            [SwitchPort(e.node, e.device, e.ifindex, e.rate_bps, e.faces_host) for e in wiring.switch_ends],
            [LinkEnd(e.node, e.device, e.ifindex, e.rate_bps) for e in wiring.host_ends.values()],
            wiring.routes(),
            BPF_PINS,
            wires=[LinkEnd(w.node, w.device, w.ifindex, w.rate_bps) for w in wiring.wires],
        )
        self._switches.configure(self._intent, self._seed)
        delayed_links.set_up(self._own, wiring.wires, self._switches.program)
        self._ports = LivePorts([(end, self._port(end)) for end in wiring.ends], self._namespaces)
        ports = self._ports_by_namespace(wiring.ends)
        self._at_all(lambda name: self._set_up(name, ports[name]))
        self._at_all(lambda name: interfaces.wait_until_up(self._namespaces[name], ports[name]))
        self._verify_ports()
        self._tc.rest(self._namespaces[host] for host in wiring.graph.hosts)
        delayed_links.verify(self._own, wiring.wires, self._live.program)
        self._tell_mininet()

    def _start_nodes(self) -> None:
        graph = self._wiring.graph
        self.net = empty_network({host: str(self._wiring.address(host)) for host in graph.hosts}, graph.switches)
        self._namespaces = {_OWN: Namespace("switches", os.getpid())}
        self._namespaces |= {host.name: Namespace(host.name, host.pid) for host in self.net.hosts}

    def _verify_addresses(self, name: str) -> None:
        if name != _OWN:
            interfaces.verify_addresses(self._namespaces[name], self._wiring, name, self._tcp_metrics())

    def _set_up(self, name: str, ports: list[tc.Port]) -> None:
        """Everything of one namespace, links up last."""
        namespace = self._namespaces[name]
        interfaces.set_up(namespace, ports, self._tc.session(namespace))
        if name == _OWN:
            namespace.run(["ip", "-batch", "-"], interfaces.up_lines(ports))
            return
        for sysctl, value in self._sysctls().items():
            namespace.write_sysctl(sysctl, value)
        lines = interfaces.up_lines(ports)
        interfaces.address_host(namespace, self._wiring, name, self._tcp_metrics(), lines)

    def _at_all(self, work: Callable[[str], None]) -> None:
        """Do something to every namespace, the switches' first, then the hosts', some at a time: most of it is waiting
        for commands."""
        work(_OWN)
        with ThreadPoolExecutor(_HOSTS_AT_A_TIME) as pool:
            for _ in pool.map(work, self._wiring.graph.hosts):
                pass  # raises what went wrong at a host

    def _ports_by_namespace(self, ends: Iterable[End]) -> dict[str, list[tc.Port]]:
        found: dict[str, list[tc.Port]] = {_OWN: []}
        for end in ends:
            found.setdefault(end.node if end.is_host else _OWN, []).append(self._tc[end.device])
        return found

    def _verify_ports(self) -> None:
        ports = self._ports_by_namespace(self._wiring.ends)
        self._at_all(lambda name: self._verify_some(name, ports[name]))

    def _verify_some(self, name: str, ports: list[tc.Port]) -> None:
        interfaces.verify(self._namespaces[name], ports, self._tc.session(self._namespaces[name]))

    def _both_ends(self, a: str, b: str) -> tuple[End, End]:
        return self._wiring.end(a, b), self._wiring.end(b, a)

    def _sysctls(self) -> dict[str, str]:
        return {name: value for name, value in self._settings.sysctls.items() if name != _CONGESTION_CONTROL}

    def _tcp_metrics(self) -> interfaces.TcpMetrics:
        floor_s = self._settings.rto_min_s
        return interfaces.TcpMetrics(
            congestion_control=self._settings.sysctls.get(_CONGESTION_CONTROL, _DEFAULT_CONGESTION_CONTROL),
            rto_min_ms=None if floor_s is None else max(1, round(floor_s * 1000)),
        )

    def _port(self, end: End) -> tc.Port:
        programs = (
            {"ingress": "host_ingress", "egress": "host_egress"} if end.is_host else {"ingress": "switch_ingress"}
        )
        loaded = self._live.program
        filters = tuple(tc.Filter(hook, loaded.pins[name], loaded.ids[name]) for hook, name in programs.items())
        return tc.Port(end.device, end.rate_bps, end.is_host, filters, self._weights())

    def _weights(self) -> dict[int, int]:
        queues = sorted(self._intent.queues.items())
        return {number: queue.weight for number, queue in queues if queue.weight is not None}

    def _tell_mininet(self) -> None:
        for a, b in self._wiring.links:
            link = self.net.addLink(a.node, b.node, intfName1=a.device, intfName2=b.device, addr1=a.mac, addr2=b.mac)
            for end, interface in ((a, link.intf1), (b, link.intf2)):
                if end.is_host:
                    interface.ip, interface.prefixLen = self.address(end.node), NETWORK_BITS
        self.net.built = True

    def _effective_weights(self) -> dict[str, Any]:
        """Of the weighted queues, the smallest being 1; by device where the switches' ports differ."""
        ports = self._ports_by_namespace(self._wiring.switch_ends)[_OWN]
        shown = self._tc.session(self._own).ask([f"class show dev {port.device}" for port in ports])
        found = {port.device: tc.live_shares(words) for port, words in zip(ports, shown, strict=True)}
        first = next(iter(found.values()))
        return first if all(one == first for one in found.values()) else found

    def _effective_hosts(self) -> dict[str, Any]:
        found: dict[str, dict[str, Any]] = {}
        for host in self._wiring.graph.hosts:
            namespace = self._namespaces[host]
            metrics = interfaces.tcp_metrics(namespace, self._wiring.host_ends[host].device)
            found[host] = {
                "sysctls": {name: namespace.read_sysctl(name) for name in self._sysctls()},
                "congestion_control": metrics.congestion_control,
                "rto_min_s": None if metrics.rto_min_ms is None else metrics.rto_min_ms / 1000,
            }
        first = next(iter(found.values()))
        return {"all": first} if all(one == first for one in found.values()) else found

    @property
    def _own(self) -> Namespace:
        return self._namespaces[_OWN]

    def _tear_down(self) -> None:
        """Shells end, and with their namespaces the links; nothing is deleted by name."""
        if self.net is not None:
            for node in (*self.net.hosts, *self.net.switches):
                node.terminate()
            self.net = None
        if self._ports is not None:
            self._ports.close()
        if self._switches is not None:
            self._switches.close()
        for namespace in self._namespaces.values():
            namespace.close()
        self._namespaces = {}
