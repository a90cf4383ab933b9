"""A rank that is started again in the same job: nothing that it sends may be confirmed by what it sent before."""

from __future__ import annotations

import numpy as np
import pytest
from virtual_time import COOKIE, MS, US, Key, Node, Packet, World

from dlcp.transport._native import ffi, lib

ELEMENTS = 5_000
ROUNDS = 3
FIRST, SECOND, RECEIVERS = 11, 22, 33


def deliver(world: World, packet: Packet) -> None:
    world.deliver(packet, world.now_ns + 300 * US)


def sender(incarnation: int) -> Node:
    node = Node(0, [1], incarnation=incarnation)
    node.declare(0, ELEMENTS)
    return node


def world_with_history() -> World:
    """Rank 0 has sent a few iterations to rank 1."""
    world = World({0: sender(FIRST), 1: Node(1, [0], incarnation=RECEIVERS)}, deliver)
    world.nodes[1].declare(0, ELEMENTS)
    for iteration in range(ROUNDS):
        world.nodes[1].receive(0, Key(iteration, 0), np.empty(ELEMENTS, np.float32), world.now_ns)
        world.nodes[0].send(1, Key(iteration, 0), np.ones(ELEMENTS, np.float32), world.now_ns)
        world.run(world.now_ns + 1_000 * MS, lambda: not any(node.under_way() for node in world.nodes.values()))
    return world


def error(node: Node) -> str:
    assert lib.dlcp_protocol_gone(node.native) >= 0
    return str(ffi.string(lib.dlcp_protocol_error(node.native)).decode())


# R23, R24, R26
@pytest.mark.parametrize("iteration", range(ROUNDS))
@pytest.mark.parametrize("lost_greetings", [0, 2])
def test_a_restarted_sender__is_not_told_that_its_data_arrived(iteration: int, lost_greetings: int) -> None:
    """Of whichever message that was over before. No data leave before a greeting was answered."""
    world = world_with_history()
    world.nodes[0] = sender(SECOND)
    greetings = iter(range(1000))

    def network(world: World, packet: Packet) -> None:
        if packet.type != lib.DLCP_PROBE or next(greetings) >= lost_greetings:
            deliver(world, packet)

    world.network = network
    world.nodes[0].send(1, Key(iteration, 0), np.full(ELEMENTS, 99, np.float32), world.now_ns)
    start_ns = world.now_ns
    world.run(start_ns + 5_000 * MS, lambda: lib.dlcp_protocol_gone(world.nodes[0].native) >= 0)
    assert world.nodes[0].done == []
    assert "rank 1 knows this rank from an earlier start" in error(world.nodes[0])
    assert "rank 0 was started again under the cookie of the same job" in error(world.nodes[1])
    assert world.now_ns - start_ns < 1_000 * MS, "long before silence would tell"


# R26
def test_a_message_under_way__is_not_completed_by_another_start_of_its_sender() -> None:
    world = world_with_history()
    world.nodes[0] = sender(SECOND)
    got = np.zeros(2 * ELEMENTS, np.float32)
    world.nodes[1].declare(1, 2 * ELEMENTS)
    world.nodes[1].receive(0, Key(0, 1), got, world.now_ns)
    world.nodes[0].declare(1, 2 * ELEMENTS)
    world.nodes[0].send(1, Key(0, 1), np.full(2 * ELEMENTS, 99, np.float32), world.now_ns)
    world.run(world.now_ns + 5_000 * MS, lambda: lib.dlcp_protocol_gone(world.nodes[0].native) >= 0)
    assert world.nodes[0].done == []
    assert "started again" in error(world.nodes[1])


# R25
def test_a_stop_that_names_no_incarnation__ends_nothing() -> None:
    world = World({0: sender(FIRST), 1: Node(1, [0], incarnation=RECEIVERS)}, deliver)
    world.nodes[1].declare(0, ELEMENTS)
    world.nodes[0].send(1, Key(0, 0), np.ones(ELEMENTS, np.float32), 0)
    world.run(20 * MS)
    head = ffi.new("uint8_t[]", lib.DLCP_HEADER_BYTES)
    lib.dlcp_header_encode(
        ffi.new("struct dlcp_header *", {"type": lib.DLCP_STOP, "source": 1, "cookie": COOKIE}), head
    )
    world.nodes[0].input(Packet(1, 0, 0, ffi.buffer(head)[:] + bytes(8)), world.now_ns)
    assert world.nodes[0].under_way()
    world.nodes[1].receive(0, Key(0, 0), np.empty(ELEMENTS, np.float32), world.now_ns)
    world.run(1_000 * MS, lambda: not any(node.under_way() for node in world.nodes.values()))
    (done,) = world.nodes[0].done
    assert done.delivered_bytes == ELEMENTS * 4


# R27
def test_a_stop_that_is_said_again__counts_what_was_delivered_and_not_what_was_acknowledged() -> None:
    """The receiver's deadline closes the message before anything came, and its first STOP is lost."""
    stops: list[Packet] = []

    def network(world: World, packet: Packet) -> None:
        if packet.type == lib.DLCP_STOP:
            stops.append(packet)
            if len(stops) == 1:
                return
        deliver(world, packet)

    world = World({0: sender(FIRST), 1: Node(1, [0], incarnation=RECEIVERS)}, network)
    world.nodes[1].declare(0, ELEMENTS)
    world.nodes[1].receive(0, Key(0, 0), np.empty(ELEMENTS, np.float32), 0, deadline={"at_ns": 1 * MS})
    world.run(10 * MS)
    (closed,) = world.nodes[1].completions()
    assert closed.delivered_bytes == 0
    world.nodes[0].send(1, Key(0, 0), np.ones(ELEMENTS, np.float32), world.now_ns)
    world.run(1_000 * MS, lambda: bool(world.nodes[0].done))
    (done,) = world.nodes[0].done
    assert len(stops) > 1
    assert done.delivered_bytes == 0
