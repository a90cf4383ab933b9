"""Control packets that cannot be true, with the right cookie and address: counted or ignored, and nothing breaks.

Cookie and address are no cryptography: whoever can forge a plausible STOP can end a message. What is absurd must not
harm even then.
"""

from __future__ import annotations

import struct

import numpy as np
import pytest
from virtual_time import COOKIE, MS, PACKET_ELEMENTS, US, Done, Floats, Key, Node, Packet, World

from dlcp.transport._native import ffi, lib

PACKETS = 100
ELEMENTS = PACKETS * PACKET_ELEMENTS
KEY = Key(4, 0)


def world_under_way(bound_ppm: int = 0, hold_stop: bool = False) -> tuple[World, Floats]:
    """Rank 0 sends tensor 0 to rank 1; some of it has arrived. hold_stop: no STOP comes before 60 ms."""

    def network(world: World, packet: Packet) -> None:
        late = hold_stop and packet.type == lib.DLCP_STOP and world.now_ns < 60 * MS
        if not late:
            world.deliver(packet, world.now_ns + 300 * US)

    world = World({r: Node(r, [1 - r]) for r in (0, 1)}, network)
    for node in world.nodes.values():
        node.declare(0, ELEMENTS, (bound_ppm, 0))
    got = np.empty(ELEMENTS, np.float32)
    world.nodes[1].receive(0, KEY, got, 0)
    world.nodes[0].send(1, KEY, np.arange(1, ELEMENTS + 1, dtype=np.float32), 0)
    world.run(8 * MS)
    assert all(node.under_way() for node in world.nodes.values())
    return world, got


def control(kind: int, source: int, body: bytes, **fields: int) -> Packet:
    values = {"type": kind, "source": source, "cookie": COOKIE, "iteration": KEY.iteration} | fields
    out = ffi.new("uint8_t[]", lib.DLCP_HEADER_BYTES)
    lib.dlcp_header_encode(ffi.new("struct dlcp_header *", values), out)
    return Packet(source, 1 - source, 0, ffi.buffer(out)[:] + body)


def finish(world: World, got: Floats) -> Done:
    world.run(5_000 * MS, lambda: not any(node.under_way() for node in world.nodes.values()))
    assert np.array_equal(got, np.arange(1, ELEMENTS + 1, dtype=np.float32))
    (done,) = world.nodes[0].done
    return done


def nack(first: int, packets: int, number: int, bits: int = 0) -> bytes:
    return struct.pack(">III", first, packets, number) + bytes([bits]) * (-(-packets // 8))


# R63, R108
@pytest.mark.parametrize(
    "body",
    [
        nack(PACKETS, 8, 1),
        nack(0, PACKETS + 1, 1),
        nack(2**32 - 1, 8, 1),
        nack(2**32 - 4, 8, 1),
        nack(0, 0, 1),
        nack(0, PACKETS, 0),
        nack(0, PACKETS, 2**32 - 1),
        nack(0, PACKETS, 77),
        nack(0, PACKETS, 2**31, 255),
    ],
)
def test_a_nack_with_offsets_or_rounds_that_cannot_be_changes_nothing(body: bytes) -> None:
    """No round was started yet, so every round is in the future; what lies beyond the message is malformed."""
    world, got = world_under_way()
    world.nodes[0].input(control(lib.DLCP_NACK, 1, body), world.now_ns)
    finish(world, got)
    assert world.nodes[0].statistics()["packets_resent"] == 0


# R28
@pytest.mark.parametrize("delivered", [2**64 - 1, ELEMENTS * 4 + 1, 2**63])
def test_a_stop_that_counts_more_than_there_is_does_not_enter_the_books(delivered: int) -> None:
    world, _ = world_under_way()
    world.nodes[0].input(control(lib.DLCP_STOP, 1, struct.pack(">Q", delivered)), world.now_ns)
    (done,) = world.nodes[0].completions()
    assert done.delivered_bytes <= ELEMENTS * 4


def test_a_stop_of_another_message_ends_nothing() -> None:
    world, got = world_under_way()
    for fields in ({"iteration": 5}, {"step": 1}, {"leg": 1}, {"tensor": 65535}):
        world.nodes[0].input(control(lib.DLCP_STOP, 1, bytes(8), **fields), world.now_ns)
    finish(world, got)


# R73, R108
@pytest.mark.parametrize("packets", [0, PACKETS - 1, PACKETS + 1, 2**32 - 1])
@pytest.mark.parametrize("energy", [0.0, float("nan"), -1.0, float("inf")])
def test_a_done_of_another_size_ends_nothing(packets: int, energy: float) -> None:
    world, got = world_under_way(bound_ppm=1_000_000)
    body = struct.pack(">IIdI", packets, 2**32 - 1, energy, 0)
    world.nodes[1].input(control(lib.DLCP_DONE, 0, body), world.now_ns)
    assert world.nodes[1].under_way()
    assert world.nodes[1].statistics()["packets_malformed"] == 1
    finish(world, got)


def test_dones_of_messages_that_never_come_take_a_bounded_room() -> None:
    world, got = world_under_way()
    for iteration in range(5, 40_000):
        body = struct.pack(">IIdI", PACKETS, 1, 1.0, 0)
        world.nodes[1].input(control(lib.DLCP_DONE, 0, body, iteration=iteration), world.now_ns)
    statistics = world.nodes[1].statistics()
    assert statistics["stash_bytes"] <= 16 << 20
    assert statistics["control_dropped"] > 0
    finish(world, got)


@pytest.mark.parametrize("largest", [2**32 - 1, 2**31, 5_000])
def test_an_acknowledgement_of_what_was_never_sent_changes_nothing(largest: int) -> None:
    world, got = world_under_way()
    ack = ffi.new("struct dlcp_ack *", {"source": 1, "cookie": COOKIE, "largest": largest})
    ack.bitmap = b"\xff" * 16
    out = ffi.new("uint8_t[]", lib.DLCP_ACK_BYTES)
    lib.dlcp_ack_encode(ack, out)
    world.nodes[0].input(Packet(1, 0, 0, ffi.buffer(out)[:]), world.now_ns)
    finish(world, got)


def test_every_control_packet_may_come_again_late_and_in_any_order() -> None:
    """All of a message's control packets once more, backwards, while the next message is under way."""
    world, got = world_under_way(hold_stop=True)
    kept: list[Packet] = []
    deliver = world.network

    def network(w: World, packet: Packet) -> None:
        if packet.type != lib.DLCP_DATA:
            kept.append(packet)
        deliver(w, packet)

    world.network = network
    finish(world, got)
    key = KEY._replace(iteration=KEY.iteration + 1)
    world.nodes[1].receive(0, key, got, world.now_ns)
    world.nodes[0].send(1, key, np.arange(1, ELEMENTS + 1, dtype=np.float32), world.now_ns)
    world.run(world.now_ns + 3 * MS)
    for packet in reversed(kept):
        world.deliver(packet, world.now_ns)
    world.run(world.now_ns + 5_000 * MS, lambda: not any(node.under_way() for node in world.nodes.values()))
    assert np.array_equal(got, np.arange(1, ELEMENTS + 1, dtype=np.float32))
    assert {packet.type for packet in kept} >= {lib.DLCP_ACK, lib.DLCP_DONE, lib.DLCP_STOP}
