"""Where the ends of a bench are: both on loopback, or each in a network namespace of its own.

Namespaces are made inside a private world (isolation.private_namespaces), so nothing of them outlives the command.
Every host's veth has its offloads off: each packet crosses alone, as on a wire. A shaped port, where there is one, is
the egress of a switch namespace between senders and receiver: on a host's own veth a burst would pass it as one packet.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

from dlcp.bench.channel import Channel
from dlcp.errors import MachineCannot, Problem
from dlcp.isolation.netns import Namespace
from dlcp.model.frames import FRAME_BYTES
from dlcp.substrates.emulate import interfaces

SIDES = ("sender", "receiver")
_LOOPBACK = {"sender": "127.0.0.1", "receiver": "127.0.0.2"}
_NETWORK = {"sender": "198.18.0", "receiver": "198.18.1"}
"""Of 198.18.0.0/15, set aside for benchmarks (RFC 2544) and routed nowhere."""
_OFFLOADS = ("tso", "gso", "gro", "tx-udp-segmentation")
_SHOT = 2
"""TC_ACT_SHOT: the packet is dropped."""
_LOAD_RANDOM = "32 0 0 4294963256"
"""Classic BPF: A = a random 32-bit number (SKF_AD_OFF + SKF_AD_RANDOM)."""
_QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR"}
"""torch warns of addresses without a name; there are no names here."""
_STARTED_WITHIN_S = 30.0


@dataclass
class World:
    """Ends on loopback; also what a namespace world builds upon."""

    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    channels: list[Channel] = field(default_factory=list)
    where: str = "loopback"

    def start(self, side: str) -> Channel:
        """Start an end; its control channel."""
        return self.spawn("dlcp.bench.transport.endpoint_process", side)

    def address(self, side: str) -> str:
        """The IPv4 address of a side's endpoints."""
        return _LOOPBACK[side]

    def set_port(self, rate_bps: float, buffer_bytes: int) -> None:
        """Shape the port to the receiver. MachineCannot where there is none."""
        raise MachineCannot("loopback", "has no port to shape", "add --namespaces (needs root)")

    def drops(self) -> dict[str, int]:
        """Packets that the network has dropped so far, by where."""
        return {}

    def close(self) -> None:
        """End every process and wait for it."""
        for channel in self.channels:
            channel.close()
        for process in self.processes:
            try:
                process.wait(2.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def spawn(self, module: str, name: str, *prefix: str) -> Channel:
        """A child that runs a module, which takes the descriptor of its control channel as its argument."""
        ours, theirs = socket.socketpair()
        command = [*prefix, sys.executable, "-m", module, str(theirs.fileno())]
        with theirs:
            self.processes.append(
                subprocess.Popen(
                    command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, env={**os.environ, **_QUIET}
                )
            )
        self.channels.append(Channel(ours, f"the bench's {name}"))
        return self.channels[-1]


@dataclass
class NamespaceWorld(World):
    """Each end in a namespace. switched: a switch namespace stands between them, whose port can be shaped.

    loss: share of the packets dropped at random on their way to each side.
    """

    switched: bool = False
    loss: dict[str, float] = field(default_factory=dict)
    where: str = "namespaces"
    _spaces: dict[str, Namespace] = field(default_factory=dict)
    _pids: dict[str, int] = field(default_factory=dict)
    _shaped: bool = False

    def start(self, side: str) -> Channel:
        """Start an end in a namespace of its own; the last one started completes the network."""
        channel = self.spawn("dlcp.bench.transport.endpoint_process", side, "unshare", "--net")
        self._pids[side] = self.processes[-1].pid
        self._spaces[side] = own_namespace(channel, side, self._pids[side])
        if set(self._spaces) == set(SIDES):
            self._connect()
        return channel

    def address(self, side: str) -> str:
        """198.18.0.1 and 198.18.1.1."""
        return f"{_NETWORK[side]}.1"

    def set_port(self, rate_bps: float, buffer_bytes: int) -> None:
        """Give the switch's port to the receiver a rate (of Ethernet frames) and a FIFO of so many bytes."""
        own = Namespace("switch", os.getpid())
        try:
            rate = f"{round(rate_bps)}bit"
            burst = max(2 * FRAME_BYTES, round(rate_bps / 8 * 0.0001))  # 100 us: what a late timer may catch up
            if not self._shaped:
                own.run(["tc", "qdisc", "add", "dev", "to-receiver", "root", "handle", "1:", "htb", "default", "1"])
            self._shaped = True
            kind = f"htb rate {rate} ceil {rate} burst {burst} cburst {burst} quantum {FRAME_BYTES}".split()
            own.run(["tc", "class", "replace", "dev", "to-receiver", "parent", "1:", "classid", "1:1", *kind])
            fifo = ["handle", "2:", "bfifo", "limit", str(buffer_bytes)]
            own.run(["tc", "qdisc", "replace", "dev", "to-receiver", "parent", "1:1", *fifo])
        finally:
            own.close()

    def drops(self) -> dict[str, int]:
        """Random losses by direction, and what the shaped port had no room for."""
        found = {}
        for side in SIDES:
            if self.loss.get(side):
                found[f"random, to {side}"] = drops_of(self._spaces[side], "eth0", "clsact")
        if self.switched:
            own = Namespace("switch", os.getpid())
            try:
                found["port full"] = drops_of(own, "to-receiver", "bfifo")
            finally:
                own.close()
        return found

    def close(self) -> None:
        """As World.close."""
        super().close()
        for space in self._spaces.values():
            space.close()

    def _connect(self) -> None:
        own = Namespace("switch", os.getpid())
        try:
            if self.switched:
                interfaces.disable_ipv6(own)
                own.write_sysctl("net.ipv4.ip_forward", "1")
                for side in SIDES:
                    pair = f"link add to-{side} type veth peer name eth0 netns {self._pids[side]}"
                    own.run(["ip", "-batch", "-"], [pair])
                    offloads_off(own, f"to-{side}")
                    port = f"to-{side}"
                    own.run(
                        ["ip", "-batch", "-"], [f"address add {_NETWORK[side]}.2/24 dev {port}", f"link set {port} up"]
                    )
            else:
                sender, receiver = (self._pids[side] for side in SIDES)
                pair = f"link add eth0 netns {sender} type veth peer name eth0 netns {receiver}"
                own.run(["ip", "-batch", "-"], [pair])
        finally:
            own.close()
        for side in SIDES:
            self._set_up(side)

    def _set_up(self, side: str) -> None:
        space = self._spaces[side]
        other = next(one for one in SIDES if one != side)
        via = f"via {_NETWORK[side]}.2" if self.switched else "dev eth0"
        offloads_off(space, "eth0")
        lines = ["link set lo up", f"address add {self.address(side)}/24 dev eth0", "link set eth0 up"]
        lines.append(f"route add {_NETWORK[other]}.0/24 {via}")
        space.run(["ip", "-batch", "-"], lines)
        if self.loss.get(side):
            drop_at_random(space, "eth0", self.loss[side])


def own_namespace(channel: Channel, name: str, pid: int) -> Namespace:
    """The namespace of a child that `unshare --net` has started, once it runs there: then it answers."""
    channel.send({"do": "close"})
    channel.receive(_STARTED_WITHIN_S)
    space = Namespace(name, pid)
    interfaces.disable_ipv6(space)
    return space


def offloads_off(space: Namespace, device: str) -> None:
    """From here on every packet crosses a device alone, as on a wire."""
    space.run(["ethtool", "-K", device, *(word for name in _OFFLOADS for word in (name, "off"))])


def drop_at_random(space: Namespace, device: str, share: float) -> None:
    """Drop a share of the packets that come in at a device, each for itself. MachineCannot without cls_bpf."""
    below = round(share * 2**32)
    program = f"4,{_LOAD_RANDOM},53 1 0 {below},6 0 0 {_SHOT},6 0 0 0"  # A >= below: pass (0 = TC_ACT_OK)
    try:
        space.run(["tc", "qdisc", "add", "dev", device, "clsact"])
        space.run(["tc", "filter", "add", "dev", device, "ingress", "bpf", "da", "bytecode", program])
    except Problem as problem:
        raise MachineCannot("--loss", f"unsupported: {problem.what}", "modprobe cls_bpf sch_ingress") from problem


def drops_of(space: Namespace, device: str, kind: str) -> int:
    """Packets that a device's queueing disciplines of a kind have dropped so far."""
    shown: list[dict[str, Any]] = json.loads(space.run(["tc", "-s", "-json", "qdisc", "show", "dev", device]))
    return sum(int(qdisc["drops"]) for qdisc in shown if qdisc["kind"] == kind)
