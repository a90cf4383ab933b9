"""Data of messages that nobody expects yet: kept, within limits, and used when they are."""

from __future__ import annotations

import numpy as np
import pytest
from virtual_time import MS, PACKET_ELEMENTS, US, Floats, Key, Node, Packet, World

from dlcp.transport._native import lib

PACKETS = 40
ELEMENTS = PACKETS * PACKET_ELEMENTS
BUFFER = np.empty(ELEMENTS, np.float32)


def deliver(world: World, packet: Packet) -> None:
    world.deliver(packet, world.now_ns + 300 * US)


def star(senders: int = 1, bound_ppm: int = 0, **options: object) -> World:
    """Ranks 1 … n send tensor 0 to rank 0."""
    ranks = range(1, senders + 1)
    world = World({0: Node(0, list(ranks), **options)} | {r: Node(r, [0], **options) for r in ranks}, deliver)
    for node in world.nodes.values():
        node.declare(0, ELEMENTS, (bound_ppm, 0))
    return world


def values(number: int) -> Floats:
    return np.full(ELEMENTS, number, np.float32)


# R74
def test_a_message_that_came_whole_is_over_as_soon_as_it_is_expected() -> None:
    world = star()
    receiver = world.nodes[0]
    world.nodes[1].send(0, Key(0, 0), values(7), 0)
    world.run(50 * MS)
    before = receiver.statistics()
    got = BUFFER.copy()
    receiver.receive(1, Key(0, 0), got, world.now_ns)
    (done,) = receiver.completions()
    assert (done.key, done.end_ns, done.lost_bytes) == (Key(0, 0), world.now_ns, 0)
    assert (got == 7).all()
    assert (before["packets_stashed"], before["packets_stash_full"]) == (PACKETS, 0)
    world.run(world.now_ns + 10 * MS)
    assert not world.nodes[1].under_way()
    assert world.nodes[1].statistics()["packets_resent"] == 0


# R74
def test_a_done_that_came_before_is_remembered() -> None:
    """Two packets were lost, within the bound: the DONE that nobody could judge ends the message at once."""
    world = star(bound_ppm=100_000)
    world.network = lambda w, p: None if p.type == lib.DLCP_DATA and p.data[18:20] == b"\x07\x08" else deliver(w, p)
    world.nodes[1].send(0, Key(0, 0), values(7), 0)
    world.run(100 * MS)
    receiver = world.nodes[0]
    receiver.receive(1, Key(0, 0), BUFFER.copy(), world.now_ns)
    (done,) = receiver.completions()
    assert (done.end_ns, done.lost_bytes) == (world.now_ns, 1440)


# R77
def test_a_message_that_the_stash_could_not_hold_is_asked_for_at_once() -> None:
    """The DONE found no room of its own, and took a packet's: the NACK leaves with the registration, without a wait."""
    world = star(stash_bytes=40 * 1560)
    receiver = world.nodes[0]
    world.nodes[1].send(0, Key(0, 0), values(7), 0)
    world.run(100 * MS)
    assert receiver.statistics()["packets_stash_full"] > 0
    got = BUFFER.copy()
    receiver.receive(1, Key(0, 0), got, world.now_ns)
    answers = receiver.poll(world.now_ns)
    assert lib.DLCP_NACK in {packet.type for packet in answers}
    for packet in answers:
        deliver(world, packet)
    world.run(world.now_ns + 1_000 * MS, lambda: not any(n.under_way() for n in world.nodes.values()))
    assert (got == 7).all()


# R71, R74
def test_the_done_that_asks_is_kept_when_the_one_of_round_0_comes_later() -> None:
    """That one travels with the data, in a queue that may be slow. It asks nothing and gets no answer."""
    world = star(bound_ppm=100_000, stash_bytes=40 * 1560)
    receiver = world.nodes[0]
    passed: list[Packet] = []

    def network(w: World, packet: Packet) -> None:
        if packet.type == lib.DLCP_DONE and packet.data[36:40] == bytes(4):
            passed.append(packet)
        elif packet.type != lib.DLCP_DATA or packet.data[18:20] != b"\x07\x08":
            deliver(w, packet)

    world.network = network
    world.nodes[1].send(0, Key(0, 0), values(7), 0)
    world.run(100 * MS)
    receiver.poll(world.now_ns)
    (late,) = passed
    receiver.input(late, world.now_ns)
    assert not receiver.poll(world.now_ns)
    receiver.receive(1, Key(0, 0), BUFFER.copy(), world.now_ns)
    assert lib.DLCP_NACK in {packet.type for packet in receiver.poll(world.now_ns)}


# R63
@pytest.mark.parametrize("lost", [0, 3])
def test_a_nack_that_comes_twice_does_not_undo_what_was_repaired_since(lost: int) -> None:
    """Data found no room, so a NACK names packets that were acknowledged. It comes once more when they have come:
    neither these nor others, of which so many are lost within the bound, are sent again."""
    world = star(bound_ppm=100_000, stash_bytes=40 * 1560)
    sender, receiver = world.nodes[1], world.nodes[0]
    nacks: list[Packet] = []

    def network(w: World, packet: Packet) -> None:
        if packet.type == lib.DLCP_NACK and not packet.data[1] & lib.DLCP_FLAG_WAIT:
            nacks.append(packet)
        gone = packet.type == lib.DLCP_DATA and int.from_bytes(packet.data[16:20], "big") < lost * PACKET_ELEMENTS
        if not gone and (packet.type != lib.DLCP_STOP or w.now_ns > 200 * MS):
            deliver(w, packet)

    world.network = network
    sender.send(0, Key(0, 0), values(7), 0)
    world.run(100 * MS)
    receiver.receive(1, Key(0, 0), BUFFER.copy(), world.now_ns)
    world.run(150 * MS)
    assert receiver.statistics()["messages_received"] == 1
    resent = sender.statistics()["packets_resent"]
    assert resent > 0
    assert nacks
    for packet in nacks:
        world.deliver(packet, world.now_ns)
    world.run(1_000 * MS, lambda: not sender.under_way())
    assert not sender.under_way()
    assert sender.statistics()["packets_resent"] == resent


# R8, R74
def test_early_packets_of_a_tensor_that_is_declared_later_are_kept_and_checked_then() -> None:
    world = World({0: Node(0, [1]), 1: Node(1, [0])}, deliver)
    sender, receiver = world.nodes[1], world.nodes[0]
    for tensor in (300, 301):
        sender.declare(tensor, ELEMENTS)
        sender.send(0, Key(0, tensor), values(tensor), 0)
    world.run(50 * MS)
    assert receiver.statistics()["packets_stashed"] == 2 * PACKETS
    receiver.declare(300, ELEMENTS)
    receiver.declare(301, ELEMENTS - 5)  # not what the sender said
    got, other = BUFFER.copy(), np.empty(ELEMENTS - 5, np.float32)
    receiver.receive(1, Key(0, 300), got, world.now_ns)
    assert (got == 300).all()
    assert len(receiver.completions()) == 1
    receiver.receive(1, Key(0, 301), other, world.now_ns)
    assert receiver.statistics()["packets_malformed"] == 1, "the last packet has five elements too many"
    assert receiver.statistics()["messages_received"] == 1


# R75
@pytest.mark.parametrize("senders", [1, 3])
def test_no_peer_can_fill_it_for_all_and_no_cap_is_passed(senders: int) -> None:
    """Each takes at most what is free: one alone a half, three a quarter each; a newcomer still finds room."""
    slots = 48
    stash_bytes = slots * 1560
    world = star(senders + 1, stash_bytes=stash_bytes)
    receiver = world.nodes[0]
    for rank in range(1, senders + 1):
        for iteration in range(5):
            world.nodes[rank].send(0, Key(iteration, 0), values(rank), 0)
    world.run(500 * MS)
    full = receiver.statistics()
    assert full["packets_stash_full"] > 0
    assert full["stash_bytes"] <= stash_bytes
    assert slots * senders / (senders + 1) - senders <= full["packets_stashed"] <= slots * senders / (senders + 1) + 1
    world.nodes[senders + 1].send(0, Key(0, 0), values(9), world.now_ns)
    world.run(world.now_ns + 200 * MS)
    assert receiver.statistics()["packets_stashed"] - full["packets_stashed"] >= slots / (senders + 2) / 2
    for iteration in range(5):
        for rank in range(1, senders + 1):
            receiver.receive(rank, Key(iteration, 0), BUFFER.copy(), world.now_ns)
    receiver.receive(senders + 1, Key(0, 0), BUFFER.copy(), world.now_ns)
    world.run(world.now_ns + 5_000 * MS, lambda: not any(n.under_way() for n in world.nodes.values()))
    assert receiver.statistics()["messages_received"] == 5 * senders + 1
    assert receiver.statistics()["stash_bytes"] <= stash_bytes


def test_room_is_given_back() -> None:
    """Twenty messages early, one after the other, through a stash that holds one and a half."""
    world = star(stash_bytes=2 * PACKETS * 1560 + 40 * 1560)
    receiver = world.nodes[0]
    for iteration in range(20):
        got = BUFFER.copy()
        world.nodes[1].send(0, Key(iteration, 0), values(iteration), world.now_ns)
        world.run(world.now_ns + 50 * MS)
        receiver.receive(1, Key(iteration, 0), got, world.now_ns)
        assert (got == iteration).all()
        world.run(world.now_ns + 10 * MS)
    assert receiver.statistics()["packets_stash_full"] == 0


# R76
def test_what_can_never_be_expected_any_more_makes_room() -> None:
    """Iteration 0 comes early and is skipped: when iteration 1 is over, nothing of 0 is kept."""
    world = star(stash_bytes=2 * PACKETS * 1560 + 20 * 1560)
    receiver = world.nodes[0]
    world.nodes[1].send(0, Key(0, 0), values(5), 0)
    world.run(50 * MS)
    receiver.receive(1, Key(1, 0), BUFFER.copy(), world.now_ns)
    world.nodes[1].send(0, Key(1, 0), values(6), world.now_ns)
    world.run(world.now_ns + 50 * MS)
    world.nodes[1].send(0, Key(2, 0), values(8), world.now_ns)
    world.run(world.now_ns + 50 * MS)
    assert receiver.statistics()["packets_stashed"] == 2 * PACKETS
    assert receiver.statistics()["packets_stash_full"] == 0


# R67, R76
def test_a_late_packet_of_a_message_that_is_over_is_not_kept() -> None:
    kept: list[Packet] = []
    world = star()
    world.network = lambda w, p: (kept.append(p) if p.type == lib.DLCP_DATA else None, deliver(w, p))  # type: ignore[func-returns-value]
    world.nodes[0].receive(1, Key(3, 0), BUFFER.copy(), 0)
    world.nodes[1].send(0, Key(3, 0), values(1), 0)
    world.run(50 * MS)
    older = bytearray(kept[0].data)
    older[8:12] = (2).to_bytes(4, "big")
    for data in (kept[0].data, bytes(older)):
        world.nodes[0].input(Packet(1, 0, 0, data), world.now_ns)
    statistics = world.nodes[0].statistics()
    assert (statistics["packets_late"], statistics["packets_stashed"]) == (2, 0)


# R69
def test_early_packets_are_added_once() -> None:
    """Some came early, twice; the rest, and some again, after the message was expected."""
    world = star(bound_ppm=0)
    world.network = lambda w, p: (deliver(w, p), deliver(w, p))  # type: ignore[func-returns-value]
    world.nodes[1].send(0, Key(0, 0), values(2), 0)
    world.run(5 * MS)
    receiver = world.nodes[0]
    assert 0 < receiver.statistics()["packets_stashed"] < 2 * PACKETS
    got = values(1)
    receiver.receive(1, Key(0, 0), got, world.now_ns, placement=lib.DLCP_PLACE_ADD)
    world.run(world.now_ns + 100 * MS)
    assert (got == 3).all()
    assert not world.nodes[1].under_way()
