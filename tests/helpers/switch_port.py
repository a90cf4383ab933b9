"""A modelled switch port in virtual time: strict priorities over one shared, shallow buffer."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace

from virtual_time import US, Packet, World


@dataclass
class Port:
    """The port towards one host. Packets to other hosts pass with the delay alone.

    bound_for: the host behind the port. delay_ns: one way, beside queueing and transmission. jitter_ns: of the
    delay, uniform, as a busy software switch has it; order is kept. mark_bytes: ECT packets that find more than this
    waiting are marked CE; 0 = never.
    """

    bound_for: int
    rate_bps: float = 1e8
    buffer_bytes: int = 40_000
    delay_ns: int = 350 * US
    jitter_ns: int = 0
    mark_bytes: int = 0
    seed: int = 1
    backlog_bytes: int = 0
    dropped: int = 0
    marked: int = 0
    sent_bytes: int = 0
    busy_ns: int = 0
    peak_bytes: int = 0
    samples: list[int] = field(default_factory=list)
    blocked_until_ns: int = 0
    _queues: list[deque[Packet]] = field(default_factory=lambda: [deque() for _ in range(8)])
    _sending: bool = False
    _last_ns: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def __call__(self, world: World, packet: Packet) -> None:
        delay = self.delay_ns + (self._random.randrange(self.jitter_ns) if self.jitter_ns else 0)
        pair = (packet.source, packet.destination)
        at = max(world.now_ns + delay, self._last_ns.get(pair, 0))
        self._last_ns[pair] = at
        if packet.destination == self.bound_for:
            world.at(at, lambda: self._enqueue(world, packet))
        else:
            world.deliver(packet, at)

    def _enqueue(self, world: World, packet: Packet) -> None:
        if self.backlog_bytes + packet.frame_bytes > self.buffer_bytes:
            self.dropped += 1
            return
        if self.mark_bytes and self.backlog_bytes > self.mark_bytes and packet.tos & 3:
            packet = replace(packet, tos=packet.tos | 3)
            self.marked += 1
        self.backlog_bytes += packet.frame_bytes
        self.peak_bytes = max(self.peak_bytes, self.backlog_bytes)
        self.samples.append(self.backlog_bytes)
        self._queues[packet.queue].append(packet)
        if not self._sending:
            self._send_next(world)

    def _send_next(self, world: World) -> None:
        if world.now_ns < self.blocked_until_ns:
            self._sending = True
            world.at(self.blocked_until_ns, lambda: self._send_next(world))
            return
        queue = next((queue for queue in reversed(self._queues) if queue), None)
        self._sending = queue is not None
        if queue is None:
            return
        packet = queue.popleft()
        time_ns = round(packet.frame_bytes * 8e9 / self.rate_bps)
        self.busy_ns += time_ns
        self.sent_bytes += packet.frame_bytes

        def sent() -> None:
            self.backlog_bytes -= packet.frame_bytes
            world.deliver(packet, world.now_ns)
            self._send_next(world)

        world.at(world.now_ns + time_ns, sent)
