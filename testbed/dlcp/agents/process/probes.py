"""Probes: numbered datagrams that a host sends on a plan and another takes down, in the order of their arrival; and the
commands for them.

What they prove of the switches between is not known here (dlcp.verification). Only sockets are used, so it is the same
on an emulated host and on one in a rack. Instants are of CLOCK_MONOTONIC, arrivals of the kernel's CLOCK_REALTIME.
"""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import struct
import threading
import time
from typing import Any

import numpy as np

from dlcp.agents.precise_waits import Deadlines
from dlcp.agents.process.commands import earlier
from dlcp.model.frames import UDP_OVERHEAD_BYTES

SINK_BUFFER_BYTES = 64 << 20
SOURCE_BUFFER_BYTES = 8 << 20
POLL_S = 0.01
NICENESS = -15
_HEADER = struct.Struct("!IIQ")
"""Header of every probe: its train, its number in it, when it was handed to the kernel (CLOCK_REALTIME, ns)."""
ARRIVAL = np.dtype([("train", "<u4"), ("number", "<u4"), ("tos", "u1"), ("sent_ns", "<u8"), ("arrived_ns", "<u8")])
_SO_RCVBUFFORCE, _SO_SNDBUFFORCE = 33, 32
_SO_TIMESTAMPNS = 35
_SO_MEMINFO, _MEMINFO, _MEMINFO_DROPS = 55, struct.Struct("=9I"), 8
_TIMESPEC = struct.Struct("@ll")
_CONTROL_BYTES = 128


def hurry() -> None:
    """Before others on this host, where that is allowed: a train that is late proves nothing."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)


class Probes:
    """Commands for a source and a sink of probes."""

    def __init__(self) -> None:
        self._source: Source | None = None
        self._sink: Sink | None = None

    def open_probes(self, address: str, port: int) -> dict[str, Any]:
        """Be a source and a sink of probes; both ends use the same UDP port."""
        hurry()
        self._source, self._sink = Source(address, port), Sink(address, port)
        return {}

    def send_probes(self, trains: list[dict[str, Any]], at: float) -> dict[str, Any]:
        """Send trains of probes from the instant `at` on; returns when all are sent."""
        return earlier(self._source, "open_probes comes before send_probes").send(trains, at)

    def collect_probes(self) -> dict[str, Any]:
        """The probes that arrived since the last time."""
        return earlier(self._sink, "open_probes comes before collect_probes").collect()


class Source:
    """Sends trains. One socket a flow: a flow is a source port. Lives as long as its agent."""

    def __init__(self, address: str, port: int) -> None:
        self._address, self._port = address, port
        self._flows: list[socket.socket] = []

    def send(self, trains: list[dict[str, Any]], at: float) -> dict[str, Any]:
        """Send all, in order; returns when the last datagram is with the kernel.

        A train: at_s after the instant `at`, to an address, `pattern` (TOS byte, frame bytes) `repeat` times. rate_bps
        of frames, 0 = at once; a paced probe that is late puts all later ones off, so that none are bunched, unless
        catch_up says that the mean rate matters more. `burst` probes in a row share a pace's step, and a flow before
        the next of `flows` takes its turn.
        """
        deadlines, sent = Deadlines(), 0
        worst_s = 0.0
        for train in trains:
            due_s = at + train["at_s"]
            deadlines.sleep_until(due_s)
            worst_s = max(worst_s, time.monotonic() - due_s)
            sent += self._train(train)
        return {"sent": sent, "sched_late_s": deadlines.late_s(), "worst_late_s": worst_s}

    def _train(self, train: dict[str, Any]) -> int:
        to, name, burst, rate_bps = (train["to"], self._port), train["train"], train["burst"], train["rate_bps"]
        flows = self._open(train["flows"])
        pattern = [
            (
                [(socket.IPPROTO_IP, socket.IP_TOS, struct.pack("=i", tos))],
                bytes(size - UDP_OVERHEAD_BYTES - _HEADER.size),
            )
            for tos, size in train["pattern"]
        ]
        steps = [size * 8 / rate_bps if rate_bps else 0.0 for _, size in train["pattern"]]
        count, due_s, owed_s = len(pattern), time.monotonic(), 0.0
        for number in range(count * train["repeat"]):
            if rate_bps and number % burst == 0:
                due_s += owed_s
                owed_s = 0.0
                if (left_s := due_s - time.monotonic()) > 0:
                    time.sleep(left_s)
                elif not train["catch_up"]:
                    due_s -= left_s
            control, padding = pattern[number % count]
            owed_s += steps[number % count]
            header = _HEADER.pack(name, number, time.time_ns())
            flows[number // burst % len(flows)].sendmsg([header, padding], control, 0, to)
        return count * int(train["repeat"])

    def _open(self, flows: int) -> list[socket.socket]:
        while len(self._flows) < flows:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._flows.append(made)
            try:
                made.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, SOURCE_BUFFER_BYTES)
            except PermissionError:  # without the capability the kernel's limit holds, and sends wait for room
                made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOURCE_BUFFER_BYTES)
            made.bind((self._address, 0))
        return self._flows[:flows]


class Sink:
    """Takes down every probe that comes to an address and port, in a thread, as long as its agent lives."""

    def __init__(self, address: str, port: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, SINK_BUFFER_BYTES)
        except PermissionError:  # without the capability the kernel's limit holds; what it drops is reported
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SINK_BUFFER_BYTES)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket.bind((address, port))
        self._socket.setblocking(False)
        self._lock = threading.Lock()
        self._arrivals: list[tuple[int, int, int, int, int]] = []
        self._dropped = 0
        threading.Thread(target=self._run, daemon=True, name="probe-sink").start()

    def collect(self) -> dict[str, Any]:
        """Return the probes that arrived since the last time, in its order (base64 of ARRIVAL), and how many a full
        buffer dropped.
        """
        self._drain()
        with self._lock:
            arrivals, self._arrivals = self._arrivals, []
        drops = _MEMINFO.unpack(self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))[_MEMINFO_DROPS]
        dropped, self._dropped = drops - self._dropped, drops
        packed = np.array(arrivals, ARRIVAL).tobytes()
        return {"arrivals": base64.b64encode(packed).decode(), "rx_overflow": dropped}

    def _run(self) -> None:
        while True:
            time.sleep(POLL_S)
            self._drain()

    def _drain(self) -> None:
        with self._lock, contextlib.suppress(BlockingIOError):
            while True:
                data, control, _, _ = self._socket.recvmsg(_HEADER.size, _CONTROL_BYTES)
                if len(data) == _HEADER.size:
                    self._arrivals.append(_row(data, control))


def _row(data: bytes, control: list[tuple[int, int, bytes]]) -> tuple[int, int, int, int, int]:
    train, number, sent_ns = _HEADER.unpack(data)
    tos = arrived_ns = 0
    for level, kind, value in control:
        if level == socket.IPPROTO_IP and kind == socket.IP_TOS:
            tos = value[0]
        elif level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = _TIMESPEC.unpack(value)
            arrived_ns = seconds * 1_000_000_000 + nanoseconds
    return train, number, tos, sent_ns, arrived_ns
