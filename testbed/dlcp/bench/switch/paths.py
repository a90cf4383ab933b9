"""Ways from a sender to a receiver, to be compared: a bare veth, one and three
emulated switches, IP routers, Linux boxes as switches.

Each is a pair (or two pairs) of host namespaces with what lies between them, made inside a private world. Every way
that has queues has the same ones: dlcp.switches.tc's tree on every port, rates that never bind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise

from dlcp.errors import MachineCannot
from dlcp.isolation.netns import Namespace
from dlcp.isolation.private_namespaces import RUNTIME
from dlcp.model.host_settings import HostSettings
from dlcp.model.lab.device import Device
from dlcp.model.qos import DropProfile, QosIntent, QueueIntent
from dlcp.model.topology import Graph, Link
from dlcp.substrates.emulate import interfaces
from dlcp.substrates.emulate.fabric import Fabric
from dlcp.switches import tc
from dlcp.switches.linux.state import opened
from dlcp.switches.linux.verbs import Request, apply, counters
from dlcp.switches.vendor.render import render

NEVER_BINDING_BPS = 10e9
"""Of every link: these figures are of the CPU, not of a shaper."""

PORT_BUFFER_BYTES = 4_000_000
LOADED_QUEUE = 3
_BOX_MEMORY_BYTES = 64_000_000
_SEED = 1
_READY_WITHIN_S = 5.0
_HOLD = "import time; time.sleep(1e6)"
_OFFLOADS = ("tso", "gso", "gro", "tx-udp-segmentation")
Pair = tuple[str, str]
"""Sender, receiver."""


class Way(ABC):
    """Hosts in namespaces, and a path between them; `pairs` are senders and receivers that can work at once."""

    pairs: Sequence[Pair]

    @abstractmethod
    def namespace(self, host: str) -> Namespace:
        """Where a host's sockets are made."""

    @abstractmethod
    def address(self, host: str) -> str:
        """Its IPv4 address."""

    @abstractmethod
    def device(self, host: str) -> str:
        """Its interface."""

    @abstractmethod
    def close(self) -> None:
        """Let go of it; the private world's end does the rest."""

    def arrived(self, host: str) -> int:
        """IPv4 packets and others that a host's interface has received."""
        shown = json.loads(self.namespace(host).run(["ip", "-json", "-s", "link", "show", "dev", self.device(host)]))
        return int(shown[0]["stats64"]["rx"]["packets"])

    def unaccounted(self) -> list[str]:
        """Where packets are missing from an account; empty where none is kept."""
        return []


class SwitchedWay(Way):
    """A chain of emulated switches with two hosts at either end: WRED at every precedence, every counter on."""

    pairs = (("h1", "h3"), ("h2", "h4"))

    def __init__(self, switches: int) -> None:
        self._fabric = Fabric(_chain(switches), _profiled(), seed=_SEED, host_settings=HostSettings())
        self._fabric.__enter__()

    def namespace(self, host: str) -> Namespace:
        """As Way."""
        return self._fabric.namespace(host)

    def address(self, host: str) -> str:
        """As Way."""
        return self._fabric.address(host)

    def device(self, host: str) -> str:
        """As Way."""
        return f"{host}-eth0"

    def close(self) -> None:
        """As Way."""
        self._fabric.__exit__(None, None, None)

    def unaccounted(self) -> list[str]:
        """The fabric's own account."""
        return self._fabric.conservation()


class VethWay(Way):
    """Two hosts, one veth, no queue: what the sockets and the link alone cost."""

    pairs = (("h1", "h2"),)

    def __init__(self) -> None:
        self._spaces = {host: _OwnNamespace(host) for host in ("h1", "h2")}
        one, two = self._spaces["h1"].pid, self._spaces["h2"].pid
        here = Namespace("bench", os.getpid())
        here.run(["ip", "link", "add", "eth0", "netns", str(one), "type", "veth", "peer", "eth0", "netns", str(two)])
        here.close()
        for host, space in self._spaces.items():
            _offloads_off(space, "eth0")
            space.run(["ip", "-batch", "-"], [f"address add {self.address(host)}/24 dev eth0", "link set eth0 up"])

    def namespace(self, host: str) -> Namespace:
        """As Way."""
        return self._spaces[host]

    def address(self, host: str) -> str:
        """198.18.0.1 and 198.18.0.2."""
        return f"198.18.0.{host[1:]}"

    def device(self, host: str) -> str:
        """As Way."""
        return "eth0"

    def close(self) -> None:
        """As Way."""
        for space in self._spaces.values():
            space.close()


class RoutedWay(Way):
    """The switches' chain, with a router in their place: a namespace each, the kernel's IP forwarding, the same queues
    on every port (all traffic in one of them: nothing classifies)."""

    pairs = (("h1", "h3"), ("h2", "h4"))
    queued = True
    """Whether routers' ports have queues from the start."""

    def __init__(self, routers: int) -> None:
        names = [f"r{i + 1}" for i in range(routers)]
        self._spaces = {name: _OwnNamespace(name) for name in (*names, "h1", "h2", "h3", "h4")}
        for name in names:
            self._spaces[name].write_sysctl("net.ipv4.ip_forward", "1")
        self._nets = {"h1": 1, "h2": 2, "h3": 3, "h4": 4}
        here = Namespace("bench", os.getpid())
        for host, net in self._nets.items():
            router = names[0] if host in ("h1", "h2") else names[-1]
            self._link(here, host, router, net)
            self._spaces[host].run(["ip", "route", "add", "198.18.0.0/15", "via", f"198.18.{net}.2"])
        for number, (left, right) in enumerate(pairwise(names)):
            net = 10 + number
            self._link(here, left, right, net)
            for far in (3, 4):
                self._spaces[left].run(["ip", "route", "add", f"198.18.{far}.0/24", "via", f"198.18.{net}.2"])
            for far in (1, 2):
                self._spaces[right].run(["ip", "route", "add", f"198.18.{far}.0/24", "via", f"198.18.{net}.1"])
        here.close()

    def namespace(self, host: str) -> Namespace:
        """As Way."""
        return self._spaces[host]

    def address(self, host: str) -> str:
        """198.18.N.1 of host N."""
        return f"198.18.{self._nets[host]}.1"

    def device(self, host: str) -> str:
        """As Way."""
        return f"{host}-{'r1' if host in ('h1', 'h2') else self._last}"

    def close(self) -> None:
        """As Way."""
        for space in self._spaces.values():
            space.close()

    @property
    def _last(self) -> str:
        return f"r{sum(name.startswith('r') for name in self._spaces)}"

    def _link(self, here: Namespace, left: str, right: str, net: int) -> None:
        ends = ((left, f"{left}-{right}", 1), (right, f"{right}-{left}", 2))
        words = [f"{device} netns {self._spaces[name].pid}" for name, device, _ in ends]
        here.run(["ip", "-batch", "-"], [f"link add {words[0]} type veth peer {words[1]}"])
        for name, device, number in ends:
            space = self._spaces[name]
            _offloads_off(space, device)
            if self.queued or name.startswith("h"):
                port = tc.Port(device, NEVER_BINDING_BPS, cuts=name.startswith("h"), filters=())
                lines = [line for line in tc.port_lines(port) if "clsact" not in line]
                space.run(["tc", "-batch", "-"], lines)
            address = f"address add 198.18.{net}.{number}/24 dev {device}"
            space.run(["ip", "-batch", "-"], [address, f"link set {device} up"])


class PlainWay(RoutedWay):
    """The same without any queue on the routers: the kernel's IP forwarding alone."""

    queued = False


class BoxWay(PlainWay):
    """Linux boxes as switches: those routers, each told an intent as a box of a lab is."""

    def __init__(self, boxes: int) -> None:
        super().__init__(boxes)
        self._boxes = {name: space for name, space in self._spaces.items() if name.startswith("r")}
        for name, space in self._boxes.items():
            shown = json.loads(space.run(["ip", "-json", "link", "show", "type", "veth"]))
            device = Device(
                name=name,
                system="linux",
                chip="veth",
                ports={link["ifname"]: NEVER_BINDING_BPS for link in shown},
                management=("mgmt0",),
                buffer=_BOX_MEMORY_BYTES,
                port_buffer=_BOX_MEMORY_BYTES,
                queue=_BOX_MEMORY_BYTES,
            )
            with space.entered(), opened(RUNTIME / name) as store:
                apply(Request(configuration=render(_profiled(), device).configuration), store)

    def unaccounted(self) -> list[str]:
        """Where what came in at a box has neither gone out nor been dropped."""
        told = []
        for name, space in self._boxes.items():
            with space.entered(), opened(RUNTIME / name) as store:
                rows = counters(Request(), store)["rows"]
            came_in, went_out = (sum(row[f"{word}_bytes"] for row in rows) for word in ("received", "sent"))
            dropped = sum(row[f"dropped_{why}_bytes"] for row in rows for why in ("wred", "tail", "shared"))
            if came_in != went_out + dropped:
                told.append(f"{name}: {came_in} B came in, {went_out} B went out, {dropped} B were dropped")
        return told


WAYS: dict[str, Callable[[], Way]] = {
    "veth": VethWay,
    "1 switch": lambda: SwitchedWay(1),
    "3 switches": lambda: SwitchedWay(3),
    "3 routers": lambda: RoutedWay(3),
}
"""Of the emulated switch's figures."""

BOX_WAYS: dict[str, Callable[[], Way]] = {
    "1 switch": lambda: SwitchedWay(1),
    "3 switches": lambda: SwitchedWay(3),
    "1 plain router": lambda: PlainWay(1),
    "3 plain routers": lambda: PlainWay(3),
    "1 box": lambda: BoxWay(1),
    "3 boxes": lambda: BoxWay(3),
}
"""Of a Linux box's."""


def _chain(switches: int) -> Graph:
    names = tuple(f"s{i + 1}" for i in range(switches))
    ends = {"h1": names[0], "h2": names[0], "h3": names[-1], "h4": names[-1]}
    links = [Link(a=host, b=switch, rate=NEVER_BINDING_BPS) for host, switch in ends.items()]
    links += [Link(a=left, b=right, rate=NEVER_BINDING_BPS) for left, right in pairwise(names)]
    return Graph(hosts=tuple(ends), switches=names, links=tuple(links))


def _profiled() -> QosIntent:
    """A curve for each precedence of the loaded queue, none of which is reached: looked at for every packet."""
    profile = DropProfile(minimum=PORT_BUFFER_BYTES // 2, maximum=PORT_BUFFER_BYTES, probability=0.5, mark=True)
    queues = {LOADED_QUEUE: QueueIntent(profiles=(profile, profile, profile))}
    return QosIntent(name="bench", port_buffer=PORT_BUFFER_BYTES, queues=queues)


class _OwnNamespace(Namespace):
    """A namespace of a process that does nothing, without IPv6, with a loopback interface."""

    def __init__(self, name: str) -> None:
        own = os.readlink("/proc/self/ns/net")
        self._holder = subprocess.Popen(["unshare", "--net", sys.executable, "-S", "-c", _HOLD])
        deadline = time.monotonic() + _READY_WITHIN_S
        while os.readlink(f"/proc/{self._holder.pid}/ns/net") == own:
            if time.monotonic() > deadline or self._holder.poll() is not None:
                raise MachineCannot(name, "a network namespace could not be made", "dlcp doctor shows why")
            time.sleep(0.001)
        super().__init__(name, self._holder.pid)
        interfaces.disable_ipv6(self)
        self.run(["ip", "link", "set", "lo", "up"])

    def close(self) -> None:
        """As Namespace; its process ends."""
        super().close()
        self._holder.kill()
        self._holder.wait()


def _offloads_off(space: Namespace, device: str) -> None:
    space.run(["ethtool", "-K", device, *(word for name in _OFFLOADS for word in (name, "off"))])
