"""Delay of a light flow of high priority during a flood of low priority that overloads its port."""

from __future__ import annotations

import socket
import struct
import threading
import time
from typing import Any

import numpy as np

from dlcp.model.frames import UDP_OVERHEAD_BYTES
from dlcp.model.host_settings import HostSettings
from dlcp.model.qos import QosIntent, QueueIntent
from dlcp.model.topology import Graph, Link
from dlcp.substrates.emulate.fabric import Fabric
from dlcp.traffic.native import Lane, Source, flow_array, whole

PAYLOAD_BYTES = 1400
FLOOD_SHARE = 1.3
LIGHT_SHARE = 0.02
_HOST_BPS = 1e9
_HIGH, _LOW = 6 << 5, 1 << 5
_PORT, _FLOOD_PORT = 9000, 9001
_RECEIVE_BYTES = 16 << 20
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_SETTLE_S = 0.1
_PORT_BUFFER_BYTES = 200_000
_RESERVED_BYTES = 20_000
"""Reserved bytes of the light flow's queue: a flood that fills the port's buffer must not cost it packets."""


class LightFlow:
    """h1 floods queue 1 of the port to h3, h2 sends now and then in queue 6."""

    def __init__(self, rate_bps: float) -> None:
        self._rate_bps = rate_bps
        links = [Link(a="h1", b="s1", rate=_HOST_BPS), Link(a="h2", b="s1", rate=_HOST_BPS)]
        links.append(Link(a="h3", b="s1", rate=rate_bps))
        graph = Graph(hosts=("h1", "h2", "h3"), switches=("s1",), links=tuple(links))
        queues = {_HIGH >> 5: QueueIntent(reserved=_RESERVED_BYTES)}
        intent = QosIntent(name="bench", port_buffer=_PORT_BUFFER_BYTES, queues=queues)
        self._fabric = Fabric(graph, intent, seed=1, host_settings=HostSettings())
        self._fabric.__enter__()
        self._light = self._socket("h2", _HIGH)
        self._receiver = self._socket("h3", 0, _PORT)
        self._receiver.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BYTES)
        self._receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._receiver.setblocking(False)
        self._ignored = self._socket("h3", 0, _FLOOD_PORT)

    def close(self) -> None:
        """End the fabric."""
        self._fabric.__exit__(None, None, None)

    def measure(self, flood: bool, seconds: float, seed: int) -> dict[str, Any]:
        """delays_s: one-way times of the light flow, from before the system call to the kernel's time stamp at h3, at
        exponential gaps. flooded: share of the port's rate that the flood offered."""
        self._fabric.reset_counters()
        thread = threading.Thread(target=self._flood, args=(seconds + 2 * _SETTLE_S,), daemon=True)
        if flood:
            thread.start()
            time.sleep(_SETTLE_S)
        delays = self._send(seconds, np.random.default_rng(seed))
        if flood:
            thread.join()
        unaccounted = self._fabric.conservation()
        counted = (row for row in self._fabric.counters() if row["port"] == "s1-h3" and not row["precedence"])
        rows = {row["queue"]: row for row in counted}
        low = rows[1]["enqueued_bytes"] + rows[1]["dropped_tail_bytes"]
        return {
            "delays_s": delays,
            "flooded": low * 8 / self._rate_bps / (seconds + 2 * _SETTLE_S),
            "high_dropped": rows[6]["dropped_tail_packets"],
            "unaccounted": unaccounted,
        }

    def _flood(self, seconds: float) -> None:
        wanted_bps = FLOOD_SHARE * self._rate_bps
        size = whole(np.array([int(wanted_bps / 8 * seconds)]), PAYLOAD_BYTES)
        lane = Lane(flow_array([0.0], size), tos=_LOW, rate_bps=wanted_bps, datagram_bytes=PAYLOAD_BYTES)
        with self._fabric.namespace("h1").entered():
            source = Source(self._fabric.address("h1"), 0, [lane], [(self._fabric.address("h3"), _FLOOD_PORT)])
        source.start(time.monotonic_ns())
        time.sleep(seconds)
        source.stop()

    def _send(self, seconds: float, random: np.random.Generator) -> list[float]:
        mean_s = (PAYLOAD_BYTES + UDP_OVERHEAD_BYTES) * 8 / (LIGHT_SHARE * self._rate_bps)
        gaps = random.exponential(mean_s, max(1, round(seconds / mean_s)))
        to = (self._fabric.address("h3"), _PORT)
        left_s: list[float] = []
        padding = bytes(PAYLOAD_BYTES - 4)
        due = time.monotonic()
        for number, gap in enumerate(gaps):
            due += gap
            time.sleep(max(0.0, due - time.monotonic()))
            data = struct.pack("=I", number) + padding
            left_s.append(time.time())
            self._light.sendto(data, to)
        time.sleep(_SETTLE_S)
        return self._delays(left_s)

    def _delays(self, left_s: list[float]) -> list[float]:
        delays_s: list[float] = []
        while True:
            try:
                data, control, _, _ = self._receiver.recvmsg(2048, 128)
            except BlockingIOError:
                return delays_s
            seconds, nanoseconds = struct.unpack("@ll", control[0][2])
            delays_s.append(seconds + nanoseconds / 1e9 - left_s[struct.unpack_from("=I", data)[0]])

    def _socket(self, host: str, tos: int, port: int = 0) -> socket.socket:
        with self._fabric.namespace(host).entered():
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        made.bind((self._fabric.address(host), port))
        return made
