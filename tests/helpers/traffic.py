"""Small fabrics and small UDP flows for the tests; sockets are made in the hosts' namespaces and used from here."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from dlcp.model.frames import UDP_OVERHEAD_BYTES
from dlcp.model.host_settings import HostSettings
from dlcp.model.qos import DropProfile, QosIntent, QueueIntent
from dlcp.model.topology import Graph, LeafSpine, Link
from dlcp.substrates.emulate.fabric import Fabric

"""Ethernet, IPv4 and UDP: what a switch counts beside the payload."""

_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_RECEIVE_BUFFER_BYTES = 64 << 20
_SEND_BUFFER_BYTES = 4 << 20


def dscp(queue: int, precedence: int) -> int:
    """The contract of codepoint.h, said once more on purpose: the test must not share the code's mistake."""
    return queue << 3 | precedence << 1


def tos(queue: int, precedence: int = 0, ecn: int = 0) -> int:
    """The IPv4 TOS byte."""
    return dscp(queue, precedence) << 2 | ecn


def star(rates_mbit: Sequence[float], intent: QosIntent, settings: HostSettings | None = None) -> Fabric:
    """Hosts h1… around s1, each with its own link rate."""
    hosts = tuple(f"h{i + 1}" for i in range(len(rates_mbit)))
    links = tuple(Link(a=host, b="s1", rate=rate * 1e6) for host, rate in zip(hosts, rates_mbit, strict=True))
    graph = Graph(hosts=hosts, switches=("s1",), links=links)
    return Fabric(graph, intent, seed=1, host_settings=settings or HostSettings())


def leaf_spine(intent: QosIntent, *, hosts: int = 4, seed: int = 1, rate_mbit: float = 100) -> Fabric:
    """Two leaves, two spines."""
    graph = LeafSpine(kind="leaf-spine", leaves=2, spines=2, hosts=hosts, rate=rate_mbit * 1e6).graph
    return Fabric(graph, intent, seed=seed, host_settings=HostSettings())


def plain(buffer_bytes: int = 100_000, **more: Any) -> QosIntent:
    """Tail drop alone."""
    return QosIntent(name="plain", port_buffer=buffer_bytes, **more)


def profiled(queue: int, profiles: Sequence[DropProfile | None], buffer_bytes: int = 400_000) -> QosIntent:
    """One queue with drop profiles."""
    return QosIntent(name="test", port_buffer=buffer_bytes, queues={queue: QueueIntent(profiles=tuple(profiles))})


def udp(
    fabric: Fabric, host: str, *, port: int = 0, tos_byte: int = 0, send_buffer: int = _SEND_BUFFER_BYTES
) -> socket.socket:
    """A UDP socket of a host, bound to its address."""
    with fabric.namespace(host).entered():
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
    made.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, send_buffer)
    made.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos_byte)
    made.bind((fabric.address(host), port))
    return made


class Sink(threading.Thread):
    """Receives until stopped. packets, ce: by sender's address and port; arrivals: (the kernel's time, sender, bytes).

    Times are seconds as time.time() gives them.
    """

    def __init__(self, receiver: socket.socket) -> None:
        super().__init__(daemon=True)
        self._socket = receiver
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket.settimeout(0.05)
        self._stopping = threading.Event()
        self.packets: Counter[str] = Counter()
        self.ce: Counter[str] = Counter()
        self.arrivals: list[tuple[float, str, int]] = []
        self.start()

    def run(self) -> None:
        """Counts until nothing more comes after stop()."""
        while True:
            try:
                data, control, _, sender = self._socket.recvmsg(65536, 128)
            except TimeoutError:
                if self._stopping.is_set():
                    return
                continue
            name = f"{sender[0]}:{sender[1]}"
            self.packets[name] += 1
            for _, kind, value in control:
                if kind == _SO_TIMESTAMPNS:
                    seconds, nanoseconds = struct.unpack("@ll", value)
                    self.arrivals.append((seconds + nanoseconds / 1e9, name, len(data)))
                elif kind == socket.IP_TOS and value[0] & 3 == 3:
                    self.ce[name] += 1

    def stop(self) -> Sink:
        """Waits until the last packet is in."""
        self._stopping.set()
        self.join()
        return self


def name_of(sender: socket.socket) -> str:
    """As a Sink names it."""
    address, port = sender.getsockname()
    return f"{address}:{port}"


def pace(
    sender: socket.socket, to: tuple[str, int], *, rate_mbit: float, seconds: float, payload_bytes: int = 1400
) -> int:
    """Send at a rate of frames on the wire, against absolute deadlines; returns the number of packets sent."""
    payload = bytes(payload_bytes)
    per_second = rate_mbit * 1e6 / 8 / (payload_bytes + UDP_OVERHEAD_BYTES)
    total, sent, start = int(per_second * seconds), 0, time.monotonic()
    while sent < total:
        due = min(total, int((time.monotonic() - start) * per_second) + 1)
        while sent < due:
            sender.sendto(payload, to)
            sent += 1
        time.sleep(0.0005)
    return sent


def together(*calls: Any) -> list[Any]:
    """Run calls at the same time, each in a thread; returns their results in order."""
    results: list[Any] = [None] * len(calls)

    def run(index: int) -> None:
        results[index] = calls[index]()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def at(fabric: Fabric, port: str) -> dict[tuple[int, int], dict[str, Any]]:
    """(queue, precedence) → row of the table `ports`, of one switch port."""
    return {(row["queue"], row["precedence"]): row for row in fabric.counters() if row["port"] == port}
