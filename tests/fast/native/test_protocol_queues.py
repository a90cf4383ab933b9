"""Several queues at once, in virtual time: higher ones overtake, starved ones survive, the link stays busy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from switch_port import Port
from virtual_time import COOKIE, MS, PACKET_ELEMENTS, US, Floats, Node, Packet, World

from dlcp.transport._native import ffi, lib

LOW, HIGH, URGENT = 0, 1, 2
LOW_QUEUE, HIGH_QUEUE = 2, 6
FRAME_NS = 1514 * 80
"""Time of a full packet at 100 Mbit/s."""
SLOW_BURST_PACKETS = 8
"""At 100 Mbit/s, where GSO could take more."""
MOST_AHEAD_NS = (3 + SLOW_BURST_PACKETS) * FRAME_NS + 500 * US
"""A burst begins while less than four packets wait for the link, which may have caught up half a millisecond."""
LIMIT_NS = 20_000 * MS


@dataclass
class Queues:
    """Senders 1 … n to rank 0, over one network. packets: of tensor LOW, of HIGH, of URGENT, which has HIGH's queue."""

    senders: int
    packets: tuple[int, ...]
    network: Callable[[World, Packet], None]
    options: dict[str, object] = field(default_factory=dict)
    end_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    """(Sender, tensor) → when its message was whole at rank 0."""

    def __post_init__(self) -> None:
        ranks = range(1, self.senders + 1)
        nodes = {0: Node(0, list(ranks), **self.options)} | {r: Node(r, [0], **self.options) for r in ranks}
        self.world = World(nodes, self.network)
        for node in nodes.values():
            for tensor, packets in enumerate(self.packets):
                node.declare(tensor, packets * PACKET_ELEMENTS, queue=LOW_QUEUE if tensor == LOW else HIGH_QUEUE)
        self.got: dict[tuple[int, int], Floats] = {}
        self.world.on_done = lambda node, done: (
            self.end_ns.update({(done.peer, done.key[1]): self.world.now_ns}) if done.received else None
        )

    def submit(self, tensor: int, *ranks: int) -> None:
        """One message of a tensor from some ranks, or from all."""
        nodes = self.world.nodes
        for rank in ranks or range(1, self.senders + 1):
            self.got[rank, tensor] = np.empty(self.packets[tensor] * PACKET_ELEMENTS, np.float32)
            nodes[0].receive(rank, (0, tensor, 0), self.got[rank, tensor], self.world.now_ns)
            nodes[rank].send(0, (0, tensor, 0), values(rank, self.packets[tensor]), self.world.now_ns)
        for node in nodes.values():
            self.world.run_node(node)

    def run(self) -> None:
        """Until every message that was submitted is over at both ends."""
        self.world.run(LIMIT_NS, lambda: not any(node.under_way() for node in self.world.nodes.values()))
        for node in self.world.nodes.values():
            assert not node.under_way(), node.describe(self.world.now_ns)
        for (rank, tensor), got in self.got.items():
            assert np.array_equal(got, values(rank, self.packets[tensor]))

    def total(self, name: str) -> int:
        return sum(node.statistics()[name] for rank, node in self.world.nodes.items() if rank)


def values(rank: int, packets: int) -> Floats:
    numbers: Floats = np.random.default_rng(rank).normal(size=packets * PACKET_ELEMENTS).astype(np.float32)
    return numbers


# R86, R92
@pytest.mark.parametrize("high_packets", [20, 50, 300])
def test_a_high_queue_is_not_held_up_by_low_ones_that_fill_the_port(high_packets: int) -> None:
    """Eight senders' high messages take at most 1.25 times what the link needs for them alone, though low ones' packets
    wait in the port; 10 ms later the low ones have the link again; all together lose 5 % of the time at most."""
    senders, low_packets, start_ns = 8, 400, 150 * MS
    port = Port(0)
    queues = Queues(senders, (low_packets, high_packets), port)
    world = queues.world
    ideal_ns = senders * high_packets * FRAME_NS
    queues.submit(LOW)
    world.run(start_ns)
    assert port.backlog_bytes > 4 * 1514, "the low queue does not fill the port"
    queues.submit(HIGH)
    world.run(LIMIT_NS, lambda: len(queues.end_ns) == senders)
    assert {tensor for _, tensor in queues.end_ns} == {HIGH}
    assert world.now_ns - start_ns <= 1.25 * ideal_ns
    world.run(world.now_ns + 10 * MS)
    sent, since_ns = port.sent_bytes, world.now_ns
    world.run(since_ns + 50 * MS)
    assert (port.sent_bytes - sent) * 8e9 / (world.now_ns - since_ns) >= 0.95 * port.rate_bps
    queues.run()
    assert max(queues.end_ns.values()) <= 1.05 * senders * (low_packets + high_packets) * FRAME_NS
    assert port.dropped <= 0.01 * queues.total("data_packets_sent")


# R86
def test_a_sender_whose_low_packets_are_stuck_still_gets_its_share_above() -> None:
    """Seven senders keep the link busy above the eighth's low packets, which fill what it may have in flight. Its short
    high message takes at most 2.5 times what an eighth of the link needs for it."""
    senders, urgent_packets = 8, 10
    queues = Queues(senders, (400, 300, urgent_packets), Port(0))
    queues.submit(LOW)
    queues.world.run(150 * MS)
    queues.submit(HIGH, *range(1, senders))
    queues.world.run(200 * MS)
    queues.submit(URGENT, senders)
    queues.run()
    assert queues.end_ns[senders, URGENT] - 200 * MS <= 2.5 * senders * urgent_packets * FRAME_NS
    assert min(end for (_, tensor), end in queues.end_ns.items() if tensor == HIGH) > 300 * MS, "the link was not busy"


# R57
def test_a_queue_that_is_starved_for_long_stops_nobody() -> None:
    """More packets overtake the low queue's than a sender can remember: the high one keeps the link, all ends."""
    queues = Queues(2, (2400, 6000), Port(0))
    queues.submit(LOW)
    queues.world.run(100 * MS)
    queues.submit(HIGH)
    queues.run()
    high_ns = max(end for (_, tensor), end in queues.end_ns.items() if tensor == HIGH) - 100 * MS
    assert high_ns <= 1.05 * 2 * 6000 * FRAME_NS
    assert max(queues.end_ns.values()) <= 1.05 * 2 * 8400 * FRAME_NS


# R54
def test_packets_that_hundreds_overtook_are_acknowledged_and_not_sent_again() -> None:
    """300 packets of the high queue pass those of the low one, which come 60 ms late: more than a bitmap tells."""

    def network(world: World, packet: Packet) -> None:
        starved = packet.queue == LOW_QUEUE and 20 * MS < world.now_ns < 80 * MS
        world.deliver(packet, 80 * MS if starved else world.now_ns + 300 * US)

    queues = Queues(1, (400, 300), network)
    queues.submit(LOW)
    queues.world.run(21 * MS)
    queues.submit(HIGH)
    queues.run()
    assert queues.end_ns[1, HIGH] < 80 * MS < queues.end_ns[1, LOW]
    assert queues.total("losses_detected") == queues.total("packets_resent") == 0


@pytest.mark.parametrize("leap", [1000, 2**30, 2**31 - 1])
def test_a_forged_sequence_number_does_not_end_the_conversation(leap: int) -> None:
    queues = Queues(1, (400, 1), lambda world, packet: world.deliver(packet, world.now_ns + 300 * US))
    queues.submit(LOW)
    queues.submit(HIGH)
    queues.world.run(10 * MS)
    fields = {"type": lib.DLCP_PROBE, "source": 1, "cookie": COOKIE, "sequence": leap}
    out = ffi.new("uint8_t[]", lib.DLCP_HEADER_BYTES)
    lib.dlcp_header_encode(ffi.new("struct dlcp_header *", fields), out)
    queues.world.deliver(Packet(1, 0, 0, ffi.buffer(out)[:]), 10 * MS)
    queues.run()
    assert queues.world.now_ns < 300 * MS
    assert queues.total("packets_resent") == 0


@dataclass
class HostLink:
    """What a host's link makes of the packets that it is fed, and when it was fed them."""

    delay_ns: int = 300 * US
    free_ns: float = 0
    idle_ns: float = 0
    ahead_ns: float = 0
    fed: list[tuple[int, int, float]] = field(default_factory=list)
    """(When, queue, time until it begins to leave) of each data packet."""

    def __call__(self, world: World, packet: Packet) -> None:
        if packet.source == 1:
            if packet.type == lib.DLCP_DATA:
                self.idle_ns += max(world.now_ns - self.free_ns, 0) if self.fed else 0
                self.ahead_ns = max(self.ahead_ns, self.free_ns - world.now_ns)
                self.fed.append((world.now_ns, packet.queue, max(self.free_ns - world.now_ns, 0)))
            self.free_ns = max(self.free_ns, world.now_ns) + packet.frame_bytes * 80
        world.deliver(packet, world.now_ns + self.delay_ns)


WIDE: dict[str, object] = {"congestion_control": b"fixed", "fixed_window": 64}
"""The link alone limits the sender."""


# R89, R93
def test_a_link_with_work_queued_is_never_idle_and_fed_only_a_little_ahead() -> None:
    link = HostLink()
    queues = Queues(1, (2000, 1), link, WIDE)
    queues.submit(LOW)
    queues.submit(HIGH)
    queues.run()
    assert link.idle_ns < FRAME_NS, "time without a packet while there were some to send"
    assert link.ahead_ns <= MOST_AHEAD_NS


# R93
def test_one_wake_up_feeds_several_packets_though_bursts_are_small() -> None:
    """A window of 4 lets one packet leave at once; without feeding ahead each would need a wake-up of its own."""
    link = HostLink(delay_ns=50 * US)
    queues = Queues(1, (2000, 1), link, WIDE | {"fixed_window": 4})
    queues.submit(LOW)
    queues.submit(HIGH)
    queues.run()
    wakes = len({at for at, _, _ in link.fed})
    assert link.idle_ns < FRAME_NS
    assert len(link.fed) >= 2.5 * wakes


# R92, R93
def test_a_higher_queue_leaves_next_whatever_waits_below() -> None:
    """With no burst in between, and behind no more than the link was fed ahead."""
    link = HostLink()
    queues = Queues(1, (2000, 100), link, WIDE)
    queues.submit(LOW)
    queues.world.run(50 * MS)
    before = len(link.fed)
    queues.submit(HIGH)
    queues.run()
    at_ns, queue, wait_ns = link.fed[before]
    assert queue == HIGH_QUEUE
    assert at_ns - 50 * MS + wait_ns <= MOST_AHEAD_NS
    high = [at for at, queue, _ in link.fed if queue == HIGH_QUEUE]
    between = [at for at, queue, _ in link.fed if queue == LOW_QUEUE and high[0] < at < high[-1]]
    assert len(between) <= 64, "only what the high one's window leaves of the link"


# R88
@pytest.mark.parametrize(("rate_bps", "most"), [(1e8, 8), (1e9, 8), (4e9, 33), (1e10, 44), (1e11, 44)])
def test_a_burst_takes_100_us_of_a_fast_link_and_8_packets_of_a_slow_one(rate_bps: float, most: int) -> None:
    queues = Queues(1, (400, 1), HostLink(), {**WIDE, "fixed_window": 400, "link_bps": rate_bps})
    queues.submit(LOW)
    queues.submit(HIGH)
    queues.run()
    assert queues.world.nodes[1].largest_burst == most


# R88
@pytest.mark.parametrize(("window", "most"), [(1, 1), (4, 1), (8, 2), (9, 3), (32, 8)])
def test_a_burst_is_a_quarter_of_the_window_at_most(window: int, most: int) -> None:
    queues = Queues(1, (100, 1), HostLink(), {**WIDE, "fixed_window": window})
    queues.submit(LOW)
    queues.submit(HIGH)
    queues.run()
    assert queues.world.nodes[1].largest_burst == most
