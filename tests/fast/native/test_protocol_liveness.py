"""Who counts as gone: silence, and a path that lets only small packets through."""

from __future__ import annotations

import numpy as np
import pytest
from virtual_time import MS, US, Key, Node, Packet, World

from dlcp.transport._native import ffi, lib

ELEMENTS = 36_000
QUEUE = 3
LIMIT_NS = 2_000 * MS


def pair(**options: object) -> World:
    """Rank 0 sends tensor 0 to rank 1, over a network that a test may replace."""
    world = World({r: Node(r, [1 - r], silence_ns=LIMIT_NS, **options) for r in (0, 1)}, deliver)
    for node in world.nodes.values():
        node.declare(0, ELEMENTS, (100_000, 0), QUEUE)
    return world


def deliver(world: World, packet: Packet) -> None:
    world.deliver(packet, world.now_ns + 300 * US)


def send(world: World, iteration: int = 0, *, expected: bool = True) -> None:
    if expected:
        world.nodes[1].receive(0, Key(iteration, 0), np.empty(ELEMENTS, np.float32), world.now_ns)
    world.nodes[0].send(1, Key(iteration, 0), np.ones(ELEMENTS, np.float32), world.now_ns)


def gone(node: Node) -> int:
    return int(lib.dlcp_protocol_gone(node.native))


def error(node: Node) -> str:
    assert gone(node) >= 0
    return str(ffi.string(lib.dlcp_protocol_error(node.native)).decode())


def until_gone(world: World) -> None:
    world.run(60_000 * MS, lambda: any(gone(node) >= 0 for node in world.nodes.values()))


# R85
@pytest.mark.parametrize("largest_datagram", [1471, 1000, 100])
@pytest.mark.parametrize("good_iterations", [0, 3])
def test_a_path_that_lets_only_small_packets_through_is_an_error(largest_datagram: int, good_iterations: int) -> None:
    """From the first message on, or after some that went well: the error comes in time and says what to look at."""
    world = pair()
    for iteration in range(good_iterations):
        send(world, iteration)
        world.run(world.now_ns + 1_000 * MS, lambda: not any(n.under_way() for n in world.nodes.values()))
    start_ns = world.now_ns
    world.network = lambda w, p: deliver(w, p) if len(p.data) <= largest_datagram else None
    send(world, good_iterations)
    until_gone(world)
    assert LIMIT_NS <= world.now_ns - start_ns <= LIMIT_NS + 100 * MS
    assert gone(world.nodes[0]) == 1
    text = error(world.nodes[0])
    assert "rank 1 answers, but for 2.0 s no data got through to it" in text
    assert f"tensor 0 of iteration {good_iterations} (push)" in text
    assert "100 packets sent, 0 acknowledged" in text
    assert text.endswith("Small packets pass, full ones do not: path MTU or a filter?")


# R85
def test_a_queue_that_lets_nothing_through_is_another_error() -> None:
    world = pair()
    world.network = lambda w, p: deliver(w, p) if p.queue != QUEUE else None
    send(world)
    until_gone(world)
    assert LIMIT_NS <= world.now_ns <= LIMIT_NS + 100 * MS
    assert "is the queue of the data starved or filtered?" in error(world.nodes[0])


def test_who_lets_through_one_packet_in_twenty_is_waited_for() -> None:
    """Progress, however slow, is progress."""
    world = pair()
    count = iter(range(1_000_000))
    world.network = lambda w, p: deliver(w, p) if p.type != lib.DLCP_DATA or next(count) % 20 == 0 else None
    send(world)
    world.run(20_000 * MS, lambda: any(gone(node) >= 0 for node in world.nodes.values()))
    assert world.now_ns > 10_000 * MS or not any(n.under_way() for n in world.nodes.values())
    assert [gone(node) for node in world.nodes.values()] == [-1, -1]


def test_an_end_whose_last_packets_were_lost_is_not_held_against_the_peer() -> None:
    """Eager stop: rank 1 has enough. Before its STOP is here, but after its last acknowledgement, the rest leaves and
    vanishes: no acknowledgement of data comes any more, and the two have nothing to say to each other for long."""
    world = pair(eager_stop=1, ack_delay_ns=US)
    left: list[int] = []
    acknowledged: list[int] = []

    def network(w: World, packet: Packet) -> None:
        late_ns = 600 * US if packet.type == lib.DLCP_STOP else 0
        if packet.type == lib.DLCP_DATA:
            left.append(w.now_ns)
        if packet.type == lib.DLCP_ACK:
            acknowledged.append(w.now_ns + 300 * US)
        if packet.type != lib.DLCP_DATA or len(left) <= 90:
            w.deliver(packet, w.now_ns + 300 * US + late_ns)

    world.network = network
    send(world)
    world.run(100 * MS, lambda: not any(n.under_way() for n in world.nodes.values()))
    assert not any(n.under_way() for n in world.nodes.values())
    assert left[-1] > acknowledged[-1]
    world.run(3 * LIMIT_NS)
    assert [gone(node) for node in world.nodes.values()] == [-1, -1]
    world.network = deliver
    send(world, 1)
    world.run(world.now_ns + 1_000 * MS, lambda: not any(n.under_way() for n in world.nodes.values()))
    assert not any(n.under_way() for n in world.nodes.values())


def test_a_message_that_nobody_expects_for_long_is_waited_for() -> None:
    """Its last packets are lost, within the bound, so no acknowledgement of theirs ever comes."""
    world = pair()
    sent: list[Packet] = []

    def network(w: World, packet: Packet) -> None:
        if packet.type == lib.DLCP_DATA:
            sent.append(packet)
        if packet.type != lib.DLCP_DATA or len(sent) <= 95:
            deliver(w, packet)

    world.network = network
    send(world, expected=False)
    world.run(30_000 * MS)
    assert gone(world.nodes[0]) == -1
    world.nodes[1].receive(0, Key(0, 0), np.empty(ELEMENTS, np.float32), world.now_ns)
    world.run(world.now_ns + 1_000 * MS, lambda: not any(n.under_way() for n in world.nodes.values()))
    assert world.nodes[1].done[0].lost_bytes == 5 * 1440
