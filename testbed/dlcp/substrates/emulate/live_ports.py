"""The ports of a running fabric as tc has them, and what may be changed of them while packets wait: rates, and queues
that pause or stand still."""

from __future__ import annotations

import math
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

from dlcp.errors import Problem
from dlcp.isolation.netns import Namespace
from dlcp.substrates.emulate.tc_session import TcSession
from dlcp.substrates.emulate.wiring_plan import End
from dlcp.switches import tc
from dlcp.switches.bpf.map_structs import FILLER_ETHERTYPE

LONGEST_STOP_S = 1.0
"""A frozen queue lets one frame out as it begins and at least one after each such time: so long may a thaw take that
comes before its time."""

PAUSED_SHARE = 0.01
"""Of the link's rate, that a paused queue keeps: what HTB does not forgive is then 100 frame times at most."""

_FILLER = bytes(12) + struct.pack("!H", FILLER_ETHERTYPE) + bytes(46)


class LivePorts:
    """Every port, by device, with its namespace; sessions with tc start where they are needed.

    Calls take microseconds once a namespace has its session. Any thread may call.
    """

    def __init__(self, ports: Iterable[tuple[End, tc.Port]], namespaces: Mapping[str, Namespace]) -> None:
        found = list(ports)
        self._ports = {end.device: port for end, port in found}
        self._namespace = {end.device: namespaces[end.node if end.is_host else ""] for end, _ in found}
        self._sessions = {namespace.name: TcSession(namespace) for namespace in self._namespace.values()}
        self._frozen: dict[tuple[str, int], tuple[threading.Timer, tc.Ceiling]] = {}
        self._paused: set[tuple[str, int]] = set()
        self._senders: dict[str, socket.socket] = {}
        """Of fillers, by namespace; kept, for to close one takes the kernel ten milliseconds."""
        self.fillers: Counter[str] = Counter()
        """Sent, by the device that they left by."""
        self._lock = threading.RLock()

    def close(self) -> None:
        """End the sessions."""
        with self._lock:
            for timer, _ in self._frozen.values():
                timer.cancel()
            self._frozen.clear()
            for session in self._sessions.values():
                session.close()
        for sender in self._senders.values():
            sender.close()

    def rest(self, namespaces: Iterable[Namespace]) -> None:
        """End the sessions of some namespaces until they are needed again."""
        for namespace in namespaces:
            self._sessions[namespace.name].close()

    def __getitem__(self, device: str) -> tc.Port:
        """As it should be at this moment."""
        return self._ports[device]

    def session(self, namespace: Namespace) -> TcSession:
        """The session of a namespace."""
        return self._sessions[namespace.name]

    def unchanged(self) -> AbstractContextManager[object]:
        """A block in which other threads' changes wait, so that a port may be compared with what it should be."""
        return self._lock

    def set_rate(self, device: str, rate_bps: float) -> None:
        """Shape to another rate in place."""
        if rate_bps <= 0:
            raise Problem(device, f"cannot run at {rate_bps} bit/s", "cut the link instead")
        with self._lock:
            self._ports[device] = replace(self._ports[device], rate_bps=rate_bps)
            self._run(device, tc.rate_lines(self._with_ceilings(device)))

    def pause(self, device: str, queue: int) -> None:
        """Send next to nothing (PAUSED_SHARE of the rate) from a queue until `resume`."""
        with self._lock:
            self._paused.add((device, queue))
            self._change(device, queue)

    def resume(self, device: str, queue: int) -> None:
        """Send from a paused queue again: after the last frame that went at the low rate is paid for."""
        with self._lock:
            self._paused.discard((device, queue))
            self._change(device, queue)

    def freeze(self, device: str, queue: int, for_s: float) -> None:
        """Send nothing from a queue for so long.

        Each frame out of the queue costs a stop of for_s, or an equal part of it below LONGEST_STOP_S. Fillers, empty
        frames that no switch counts, pay first where nothing waits, so that a queue that is empty when it freezes is
        frozen for its first packet; of one that is not, a packet leaves before each stop.
        """
        if for_s <= 0:
            raise Problem(device, f"cannot be frozen for {for_s} s")
        with self._lock:
            if (device, queue) in self._frozen:
                raise Problem(device, f"queue {queue} is frozen already")
            stops = math.ceil(for_s / LONGEST_STOP_S)
            stop_s = for_s / stops
            timer = threading.Timer(for_s - stop_s / 2, self.thaw, (device, queue))
            timer.daemon = True
            self._frozen[device, queue] = (timer, tc.frozen(stop_s))
            self._change(device, queue)
            self._send_fillers(device, queue, stops)
            timer.start()

    def thaw(self, device: str, queue: int) -> None:
        """Let a frozen queue go on when its present stop is over; nothing if it is not frozen."""
        with self._lock:
            timer, _ = self._frozen.pop((device, queue), (None, None))
            if timer is not None:
                timer.cancel()
                self._change(device, queue)

    def _change(self, device: str, queue: int) -> None:
        self._run(device, [tc.queue_line(self._with_ceilings(device), queue)])

    def _with_ceilings(self, device: str) -> tc.Port:
        """The port with what its frozen and paused queues may send; kept, so that a read-back knows."""
        port = self._ports[device]
        low = tc.Ceiling(PAUSED_SHARE * port.rate_bps)
        ceilings = {queue: low for name, queue in self._paused if name == device}
        ceilings |= {queue: stop for (name, queue), (_, stop) in self._frozen.items() if name == device}
        self._ports[device] = replace(port, ceilings=ceilings)
        return self._ports[device]

    def _run(self, device: str, lines: list[str]) -> None:
        self._sessions[self._namespace[device].name].run(lines)

    def _send_fillers(self, device: str, queue: int, count: int) -> None:
        namespace = self._namespace[device]
        if namespace.name not in self._senders:
            with namespace.entered():
                self._senders[namespace.name] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        sender = self._senders[namespace.name]
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, tc.class_id(queue))
        for _ in range(count):
            sender.sendto(_FILLER, (device, 0))
        self.fillers[device] += count
