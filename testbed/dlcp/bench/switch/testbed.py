"""A test bed of `dlcp bench switch`: one path in a private world of its own, that sends and measures on command."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from dlcp.bench.channel import Channel
from dlcp.bench.child import Commands, serve
from dlcp.bench.switch.light_flow import LightFlow
from dlcp.bench.switch.paths import BOX_WAYS, LOADED_QUEUE, WAYS, Pair, Way
from dlcp.errors import ExitCode, Problem
from dlcp.model.host_settings import HostSettings
from dlcp.model.qos import QosIntent
from dlcp.model.topology import LeafSpine
from dlcp.substrates.emulate.fabric import Fabric
from dlcp.transport._native import lib

TOS = LOADED_QUEUE << 5
"""DSCP queue << 3, in the upper six bits."""
_PORT = 9000
_SO_RCVBUFFORCE = 33
_READ_BYTES = 4 << 20
_UNREAD_BYTES = 4096
"""Buffer of a receiver that nobody reads: full at once, then the kernel drops at the socket, the same on every path."""
_IDLE_MS = 500
"""A reader that has read nothing for so long has read all."""


def main(arguments: list[str]) -> int:
    """Entry point inside: the control channel's descriptor, and what bed it is, as JSON."""
    channel = Channel(socket.socket(fileno=int(arguments[0])), "the bench's coordinator")
    kind, options = json.loads(arguments[1])
    make: dict[str, Callable[..., Commands]] = {"path": _path, "light": _light, "fabric": _fabric}
    serve(channel, make[kind](**options))
    return ExitCode.FINE


def _path(way: str) -> Commands:
    built = (WAYS | BOX_WAYS)[way]()
    return {
        "blast": lambda packets, payload_bytes, flows, read: _blast(built, packets, payload_bytes, flows, read),
        "close": lambda: _closed(built.close),
    }


def _light(rate_bps: float) -> Commands:
    flow = LightFlow(rate_bps)
    return {"measure": flow.measure, "close": lambda: _closed(flow.close)}


def _fabric(leaves: int, spines: int, hosts: int) -> Commands:
    graph = LeafSpine(kind="leaf-spine", leaves=leaves, spines=spines, hosts=hosts, rate=100e6).graph
    fabric = Fabric(graph, QosIntent(name="bench", port_buffer=100_000), seed=1, host_settings=HostSettings())
    fabric.__enter__()
    return {
        "ports": lambda: {"ports": 2 * len(graph.links)},
        "close": lambda: _closed(lambda: fabric.__exit__(None, None, None)),
    }


def _closed(close: Any) -> dict[str, Any]:
    close()
    return {}


def _blast(way: Way, packets: int, payload_bytes: int, flows: int, read: bool) -> dict[str, Any]:
    """Every flow sends its packets as fast as it can. CPU: of the sending threads, which do all of the network's work
    up to the receiver's socket. read: receivers take what comes; else their sockets are full and drop it."""
    pairs = way.pairs[:flows]
    before = [way.arrived(receiver) for _, receiver in pairs]
    receivers = [_Receiver(way, receiver, packets, read) for _, receiver in pairs]
    senders = [_Sender(way, pair, packets, payload_bytes) for pair in pairs]
    try:
        begun_s = time.monotonic()
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        seconds = time.monotonic() - begun_s
    finally:
        read_packets = sum(receiver.close() for receiver in receivers)
        for sender in senders:
            sender.close()
    sent = sum(sender.sent for sender in senders)
    arrived = sum(way.arrived(receiver) - was for (_, receiver), was in zip(pairs, before, strict=True))
    return {
        "sent": sent,
        "arrived": arrived,
        "read": read_packets,
        "seconds": seconds,
        "cpu_s": sum(sender.cpu_s for sender in senders),
        "unaccounted": way.unaccounted(),
    }


class _Sender(threading.Thread):
    """One flow."""

    def __init__(self, way: Way, pair: Pair, packets: int, payload_bytes: int) -> None:
        super().__init__(daemon=True)
        with way.namespace(pair[0]).entered():
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, TOS)
        self._socket.connect((way.address(pair[1]), _PORT))
        self._order = (self._socket.fileno(), payload_bytes, packets)
        self.sent = 0
        self.cpu_s = 0.0

    def run(self) -> None:
        begun_s = time.thread_time()
        self.sent = lib.dlcp_blast(*self._order)
        self.cpu_s = time.thread_time() - begun_s

    def close(self) -> None:
        self._socket.close()
        if self.sent < 0:
            raise Problem("dlcp bench switch", f"sending failed: errno {-self.sent}")


class _Receiver(threading.Thread):
    """A bound socket, and a reader behind it when it is to be read."""

    def __init__(self, way: Way, host: str, packets: int, read: bool) -> None:
        super().__init__(daemon=True)
        with way.namespace(host).entered():
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _READ_BYTES if read else _UNREAD_BYTES)
        self._socket.bind((way.address(host), _PORT))
        self._packets = packets
        self._read = read
        self._came = 0
        if read:
            self.start()

    def run(self) -> None:
        self._came = lib.dlcp_drain(self._socket.fileno(), self._packets, _IDLE_MS)

    def close(self) -> int:
        """Packets that were read."""
        if self._read:
            self.join()
        self._socket.close()
        if self._came < 0:
            raise Problem("dlcp bench switch", f"reading failed: errno {-self._came}")
        return self._came
