"""Protocol instances in virtual time: no socket, no clock, every loss and delay chosen by the test."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlcp.model.transport.settings import TransportSettings
from dlcp.transport._native import ffi, lib
from dlcp.transport.dlcp_endpoint import configure

US = 1_000
MS = 1_000_000
COOKIE = 0x0D1C0FFE
PACKET_ELEMENTS = lib.DLCP_PACKET_ELEMENTS
NO_LIMIT = lib.DLCP_PPM

Floats = npt.NDArray[np.float32]
Values = npt.NDArray[Any]
Counts = npt.NDArray[np.uint16]
Bound = tuple[int, int]
"""Parts per million of bytes and of energy."""
Deadline = tuple[int, int, int]
"""As struct dlcp_deadline: an instant, or so long after the first packet (ns; 0 = none), ppm of the bytes."""


class Key(NamedTuple):
    iteration: int
    tensor: int
    leg: int = 0
    step: int = 0


AnyKey = Key | tuple[int, ...]
"""Iteration, tensor, leg, and step if it is not 0."""


@dataclass(frozen=True)
class Packet:
    """One datagram on its way."""

    source: int
    destination: int
    tos: int
    data: bytes

    @property
    def queue(self) -> int:
        return int(lib.dlcp_dscp_queue(self.tos >> 2))

    @property
    def precedence(self) -> int:
        """The drop precedence that a switch sees."""
        return int(lib.dlcp_dscp_precedence(self.tos >> 2))

    @property
    def ecn(self) -> int:
        return self.tos & 3

    @property
    def frame_bytes(self) -> int:
        return len(self.data) + 42

    @property
    def type(self) -> int:
        return self.data[0] & 15


@dataclass(frozen=True)
class Done:
    """A message that is over at one end."""

    peer: int
    key: Key
    received: bool
    delivered_bytes: int
    lost_bytes: int
    resent_bytes: int
    probes: int
    end_ns: int
    lost_energy_share: float
    first_ns: int
    bytes: int


class Node:
    """One rank."""

    def __init__(
        self, rank: int, peers: list[int], settings: TransportSettings | None = None, **overrides: object
    ) -> None:
        config = ffi.new("struct dlcp_config *")
        config.cookie = COOKIE
        config.rank = rank
        config.selective_drop = lib.DLCP_DROP_WRED
        config.link_bps = 1e8
        config.congestion_control = b"timely"
        if settings is not None:
            configure(config, settings)
        for name, value in overrides.items():
            setattr(config, name, value)
        error = ffi.new("char[]", lib.DLCP_ERROR_BYTES)
        protocol = lib.dlcp_protocol_new(config, error, lib.DLCP_ERROR_BYTES)
        assert protocol != ffi.NULL, ffi.string(error)
        self.rank = rank
        self.native = ffi.gc(protocol, lib.dlcp_protocol_free)
        self.done: list[Done] = []
        self.largest_burst = 0
        self.timer_ns: int | None = None
        self._held: dict[tuple[bool, int, Key], tuple[object, ...]] = {}
        self._burst = ffi.new("struct dlcp_burst *")
        self._completion = ffi.new("struct dlcp_completion *")
        for peer in peers:
            self.check(lib.dlcp_protocol_add_peer(self.native, peer, 0))

    def check(self, code: int) -> None:
        assert code == 0, ffi.string(lib.dlcp_protocol_error(self.native)).decode()

    def declare(
        self,
        tensor: int,
        elements: int,
        bound_ppm: tuple[int, int] = (0, 0),
        queue: int = 3,
        energy_ppm: tuple[int, int] = (NO_LIMIT, NO_LIMIT),
        **more: object,
    ) -> None:
        shape = ffi.new("struct dlcp_tensor *", {"elements": elements, "queue": queue, **more})
        shape.bound = list(zip(bound_ppm, energy_ppm, strict=True))
        self.check(lib.dlcp_protocol_declare(self.native, tensor, shape))

    def receive(
        self,
        peer: int,
        key: AnyKey,
        buffer: Values,
        now_ns: int,
        *,
        placement: int = lib.DLCP_PLACE_ZERO,
        bound: Bound | None = None,
        deadline: Deadline | list[Deadline] | None = None,
        contributors: Counts | None = None,
    ) -> None:
        to = ffi.new("struct dlcp_destination *", {"elements": buffer.size, "placement": placement})
        to.buffer = ffi.cast("void *", buffer.ctypes.data)
        to.bound = own = _bound(bound)
        given = deadline if isinstance(deadline, list) else [] if deadline is None else [deadline]
        to.deadlines = until = ffi.new("struct dlcp_deadline[]", given)
        to.deadline_count = len(given)
        to.contributors = _counts(contributors)
        self._held[True, peer, Key(*key)] = (buffer, contributors, own, until)
        self.check(lib.dlcp_protocol_receive(self.native, peer, _key(key), to, now_ns))

    def send(
        self,
        peer: int,
        key: AnyKey,
        data: Values,
        now_ns: int,
        *,
        bound: Bound | None = None,
        contributors: Counts | None = None,
    ) -> None:
        source = ffi.new("struct dlcp_source *", {"elements": data.size})
        source.data = ffi.cast("void *", data.ctypes.data)
        source.bound = own = _bound(bound)
        source.contributors = _counts(contributors)
        self._held[False, peer, Key(*key)] = (data, own)
        self.check(lib.dlcp_protocol_send(self.native, peer, _key(key), source, now_ns))

    def input(self, packet: Packet, now_ns: int) -> None:
        lib.dlcp_protocol_input(self.native, packet.data, len(packet.data), packet.tos, now_ns, now_ns, 0)

    def poll(self, now_ns: int) -> list[Packet]:
        """Everything that may leave."""
        found = []
        burst = self._burst
        while lib.dlcp_protocol_poll_transmit(self.native, now_ns, burst):
            self.largest_burst = max(self.largest_burst, burst.packets)
            for i in range(burst.packets):
                data = ffi.buffer(burst.head[i], burst.head_bytes)[:]
                if burst.payload_bytes[i]:
                    data += ffi.buffer(burst.payload[i], burst.payload_bytes[i])[:]
                found.append(Packet(self.rank, burst.peer, burst.tos, data))
        return found

    def next_timer(self, now_ns: int) -> int | None:
        at: int = lib.dlcp_protocol_next_timer(self.native, now_ns)
        return None if at == 2**64 - 1 else at

    def completions(self) -> list[Done]:
        found = []
        one = self._completion
        while lib.dlcp_protocol_poll_completion(self.native, one):
            key = Key(one.key.iteration, one.key.tensor, one.key.leg, one.key.step)
            self._held.pop((bool(one.received), one.peer, key))
            found.append(
                Done(
                    one.peer,
                    key,
                    bool(one.received),
                    one.delivered_bytes,
                    one.lost_bytes,
                    one.resent_bytes,
                    one.probes,
                    one.end_ns,
                    one.lost_energy_share,
                    one.first_ns,
                    one.bytes,
                )
            )
        self.done += found
        return found

    def under_way(self) -> int:
        return int(lib.dlcp_protocol_sending(self.native) + lib.dlcp_protocol_receiving(self.native))

    def statistics(self) -> dict[str, int]:
        native = ffi.new("struct dlcp_statistics *")
        lib.dlcp_protocol_statistics(self.native, native)
        return {name: getattr(native, name) for name, _ in ffi.typeof("struct dlcp_statistics").fields}

    def peer(self, rank: int) -> dict[str, float]:
        native = ffi.new("struct dlcp_peer_statistics *")
        self.check(lib.dlcp_protocol_peer_statistics(self.native, rank, native))
        return {name: getattr(native, name) for name, _ in ffi.typeof("struct dlcp_peer_statistics").fields}

    def describe(self, now_ns: int) -> str:
        text = ffi.new("char[]", 4096)
        lib.dlcp_protocol_describe(self.native, now_ns, text, 4096)
        return str(ffi.string(text).decode())


def _key(key: AnyKey) -> object:
    return ffi.new("struct dlcp_key *", Key(*key)._asdict())


def _bound(bound: Bound | None) -> Any:
    return ffi.NULL if bound is None else ffi.new("struct dlcp_bound *", bound)


def _counts(counts: Counts | None) -> Any:
    return ffi.NULL if counts is None else ffi.cast("uint16_t *", counts.ctypes.data)


Network = Callable[["World", Packet], None]
"""Decides a packet's fate: calls world.deliver(packet, at_ns) any number of times."""


@dataclass
class World:
    """Nodes, a network, and virtual time."""

    nodes: dict[int, Node]
    network: Network
    now_ns: int = 0
    trace: int = 0
    _events: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _order: count[int] = field(default_factory=count)
    on_done: Callable[[Node, Done], None] = lambda node, done: None

    def at(self, at_ns: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(at_ns, self.now_ns), next(self._order), action))

    def deliver(self, packet: Packet, at_ns: int) -> None:
        """Let a packet arrive."""
        self.at(at_ns, lambda: self._arrive(packet))

    def _arrive(self, packet: Packet) -> None:
        node = self.nodes[packet.destination]
        node.input(packet, self.now_ns)
        self.run_node(node)

    def run_node(self, node: Node) -> None:
        """Let a node hand out what it can, and set its timer."""
        for done in node.completions():
            self.on_done(node, done)
        for packet in node.poll(self.now_ns):
            self.trace = zlib.crc32(packet.data + bytes([packet.tos, packet.destination]), self.trace)
            self.network(self, packet)
        at = node.next_timer(self.now_ns)
        if at is not None and at != node.timer_ns:
            assert at > self.now_ns, "a timer in the past: the engine would spin"
            node.timer_ns = at
            self.at(at, lambda: self._timer(node, at))

    def _timer(self, node: Node, at_ns: int) -> None:
        if node.timer_ns == at_ns:
            node.timer_ns = None
            self.run_node(node)

    def run(self, until_ns: int, finished: Callable[[], bool] = lambda: False) -> None:
        """Until the time, or until `finished`, or until nothing is left to happen."""
        for node in self.nodes.values():
            self.run_node(node)
        while self._events and self._events[0][0] <= until_ns and not finished():
            self.now_ns, _, action = heapq.heappop(self._events)
            action()
