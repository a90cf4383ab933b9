"""Background incast: bursts drawn from a seed, sent over UDP at line rate by every source at once, counted at sinks.

The plan is a pure function of the experiment's numbers, the same under every scheme.
"""

from __future__ import annotations

import contextlib
import math
import socket
import struct
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlcp.agents.clock import Deadlines
from dlcp.model.workload import Incast

BACKGROUND_PORT = 5700
PAYLOAD_BYTES = 1_440
FRAME_BYTES = PAYLOAD_BYTES + 42
"""Ethernet, IPv4 and UDP headers: what a shaper counts."""
GROUP_S = 500e-6
"""Line time of the packets handed to the kernel at once: short against a port's buffer."""
LATE_S = 0.005
"""A burst that begins so late no longer meets the same traffic: 40 frame times at 100 Mbit/s."""
SINK_BUFFER_BYTES = 8 << 20
SINK_POLL_S = 0.02
_UDP_SEGMENT = 103
_SO_MEMINFO = 55
_SO_RCVBUFFORCE = 33
_MEMINFO = struct.Struct("=9I")
_MEMINFO_DROPS = 8


@dataclass(frozen=True)
class Burst:
    """One source's part of a burst; time_s counts from the job's start."""

    time_s: float
    source: str
    sink: str
    size_bytes: int


def incast_bursts(incast: Incast, seed: int, horizon_s: float, stream: int = 0) -> list[Burst]:
    """All bursts before horizon_s: exponential gaps, a random sink each, every source but the sink itself sends.

    stream: which of the experiment's background entries it is, so that two of them differ.
    """
    random = np.random.default_rng([seed, 5, stream])
    bursts: list[Burst] = []
    time_s = random.exponential(incast.interval_s)
    while time_s < horizon_s:
        sink = incast.sinks[int(random.integers(len(incast.sinks)))]
        bursts += [Burst(time_s, source, sink, incast.burst_bytes) for source in incast.sources if source != sink]
        time_s += random.exponential(incast.interval_s)
    return bursts


@dataclass(frozen=True)
class Group:
    """Packets sent at once: when (from the job's start), to whom, how many; first: the first of its burst."""

    time_s: float
    sink: str
    packets: int
    first: bool


def pace(bursts: list[tuple[float, str, int]], rate_bps: float) -> list[Group]:
    """(time, sink, bytes) of one source → groups at line rate; a burst that comes during another waits its turn.

    A burst is rounded up to whole packets of 1440 B.
    """
    per_group = max(1, int(GROUP_S * rate_bps / 8 / FRAME_BYTES))
    packet_s = FRAME_BYTES * 8 / rate_bps
    groups: list[Group] = []
    free_s = 0.0
    for time_s, sink, size_bytes in sorted(bursts):
        start_s, left = max(time_s, free_s), math.ceil(size_bytes / PAYLOAD_BYTES)
        first = True
        while left:
            count = min(per_group, left)
            groups.append(Group(start_s, sink, count, first))
            start_s, left, first = start_s + count * packet_s, left - count, False
        free_s = start_s
    return groups


class Source:
    """Sends one host's groups in a thread. tos: the IPv4 TOS byte of the background's queue."""

    def __init__(self, groups: list[Group], addresses: dict[str, str], tos: int) -> None:
        self._groups = groups
        self._addresses = addresses
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        self._socket.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, PAYLOAD_BYTES)
        self._stop = threading.Event()
        self._deadlines = Deadlines()
        self._sent = self._refused = 0.0
        self._bursts = self._late_bursts = 0
        self._start_s = self._end_s = math.inf
        self._thread = threading.Thread(target=self._run, daemon=True, name="background-source")

    def start(self, start_s: float) -> None:
        """Begin; group times count from start_s (CLOCK_MONOTONIC)."""
        self._start_s = start_s
        self._thread.start()

    def stop(self) -> dict[str, Any]:
        """End. planned: payload bytes that were due until now; late_bursts: those that began LATE_S late."""
        self._stop.set()
        self._end_s = min(self._end_s, time.monotonic())
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()
        due = [g for g in self._groups if self._start_s + g.time_s <= self._end_s]
        return {
            "planned_bytes": sum(g.packets for g in due) * PAYLOAD_BYTES,
            "sent_bytes": int(self._sent),
            "refused_bytes": int(self._refused),
            "bursts": self._bursts,
            "late_bursts": self._late_bursts,
            "sched_late_s": self._deadlines.late_s(),
        }

    def _run(self) -> None:
        payload = memoryview(bytes(PAYLOAD_BYTES * max((g.packets for g in self._groups), default=1)))
        for group in self._groups:
            due_s = self._start_s + group.time_s
            self._deadlines_wait(due_s)
            if self._stop.is_set():
                return
            if group.first:
                self._bursts += 1
                self._late_bursts += time.monotonic() - due_s > LATE_S
            size = group.packets * PAYLOAD_BYTES
            try:
                self._socket.sendto(payload[:size], (self._addresses[group.sink], BACKGROUND_PORT))
                self._sent += size
            except OSError:  # no buffer, or an ICMP error that an earlier packet caused: counted, judged by the run
                self._refused += size

    def _deadlines_wait(self, due_s: float) -> None:
        """Long waits end early when stopped; the last stretch is exact."""
        while (left_s := due_s - time.monotonic()) > 2 * SINK_POLL_S:
            if self._stop.wait(left_s - SINK_POLL_S):
                return
        self._deadlines.sleep_until(due_s)


class Sink:
    """Counts what arrives at one host, in a thread that reads in batches."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, SINK_BUFFER_BYTES)
        except PermissionError:  # without the capability the kernel's limit holds; what it drops is counted
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SINK_BUFFER_BYTES)
        self._socket.bind((address, BACKGROUND_PORT))
        self._socket.setblocking(False)
        self._stop = threading.Event()
        self._packets = self._bytes = 0
        self._thread = threading.Thread(target=self._run, daemon=True, name="background-sink")

    def start(self) -> None:
        """Begin to count."""
        self._thread.start()

    def stop(self) -> dict[str, Any]:
        """End: packets and payload bytes that came, packets that a full socket buffer dropped."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._drain()
        info = self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        self._socket.close()
        return {
            "received_packets": self._packets,
            "received_bytes": self._bytes,
            "rx_overflow": _MEMINFO.unpack(info)[_MEMINFO_DROPS],
        }

    def _run(self) -> None:
        while not self._stop.wait(SINK_POLL_S):
            self._drain()

    def _drain(self) -> None:
        scratch = bytearray(1)
        with contextlib.suppress(BlockingIOError):
            while True:
                self._bytes += self._socket.recv_into(scratch, 1, socket.MSG_TRUNC)  # the length, without the copy
                self._packets += 1
