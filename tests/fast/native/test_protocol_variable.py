"""Messages of variable length: their last packet tells where they end, whatever comes first and whatever is lost."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from dtypes import FLOAT32, full_packet
from virtual_time import COOKIE, MS, NO_LIMIT, US, Counts, Key, Node, Packet, Values, World

from dlcp.transport._native import ffi, lib

UINT8 = lib.DLCP_UINT8
FULL = full_packet(UINT8)
MOST = 40 * FULL + 5
LENGTHS = [1, FULL - 1, FULL, FULL + 1, 2 * FULL, 20 * FULL + 3, MOST - 5, MOST]
KEY = Key(7, 0)
BEFORE, COUNTED = 9, 10
"""Content of buffers, of bytes and of contributors, before anything comes."""
ACK_NOW = lib.DLCP_FLAG_ACK_NOW


def content(length: int) -> Values:
    return np.random.default_rng(length).integers(10, 256, length, np.uint8)


def offset_of(packet: Packet) -> int:
    return int.from_bytes(packet.data[16:20], "big")


def fair(world: World, packet: Packet) -> None:
    world.deliver(packet, world.now_ns + 300 * US)


def hostile(seed: int, loss: float) -> Callable[[World, Packet], None]:
    """A network that loses and reorders packets of every type, and doubles some."""
    numbers = random.Random(seed)

    def network(world: World, packet: Packet) -> None:
        for _ in range((numbers.random() >= loss) + (numbers.random() < 0.1)):
            world.deliver(packet, world.now_ns + 200 * US + numbers.randrange(3_000) * US)

    return network


def pair(network: Callable[[World, Packet], None] = fair, **more: object) -> World:
    """Rank 0 sends tensor 0, a variable one of bytes, to rank 1."""
    world = World({rank: Node(rank, [1 - rank]) for rank in (0, 1)}, network)
    for node in world.nodes.values():
        node.declare(0, MOST, dtype=UINT8, must_arrive=True, variable=True, **more)
    return world


def finish(world: World) -> None:
    world.run(world.now_ns + 60_000 * MS, lambda: not any(node.under_way() for node in world.nodes.values()))
    for node in world.nodes.values():
        assert not node.under_way(), node.describe(world.now_ns)


def buffers() -> tuple[Values, Counts]:
    return np.full(MOST, BEFORE, np.uint8), np.full(-(-MOST // FULL), COUNTED, np.uint16)


def check(world: World, length: int, got: Values, counts: Counts) -> None:
    """Both ends tell the length; the buffer holds the message, and what it held behind it."""
    packets = -(-length // FULL)
    assert np.array_equal(got[:length], content(length))
    assert (got[length:] == BEFORE).all()
    assert counts.tolist() == [3] * packets + [0] * (counts.size - packets)
    for rank, node in world.nodes.items():
        (done,) = node.done
        assert (done.bytes, done.delivered_bytes, done.lost_bytes) == (length, length, 0), rank


def counts_of(length: int) -> Counts:
    return np.full(-(-length // FULL), 3, np.uint16)


# R115, R117, R119
@pytest.mark.parametrize("loss", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("length", LENGTHS)
def test_a_message_of_any_length_arrives_whole_over_a_network_that_loses_and_reorders(length: int, loss: float) -> None:
    for seed in range(3):
        world = pair(hostile(seed, loss))
        got, counts = buffers()
        world.nodes[1].receive(0, KEY, got, 0, contributors=counts)
        world.nodes[0].send(1, KEY, content(length), 0, contributors=counts_of(length))
        finish(world)
        check(world, length, got, counts)


# R74, R117
@pytest.mark.parametrize("loss", [0.0, 0.3])
@pytest.mark.parametrize("length", LENGTHS)
def test_what_came_before_the_message_was_expected_tells_its_length_too(length: int, loss: float) -> None:
    world = pair(hostile(1, loss))
    got, counts = buffers()
    world.nodes[0].send(1, KEY, content(length), 0, contributors=counts_of(length))
    world.run(400 * MS)
    world.nodes[1].receive(0, KEY, got, world.now_ns, contributors=counts)
    if not loss:
        assert len(world.nodes[1].completions()) == 1, "all of it had come"
    finish(world)
    check(world, length, got, counts)


# R119
@pytest.mark.parametrize("length", [1, 359, 360, 361, 3000])
def test_what_arrives_is_added_and_nothing_behind_it(length: int) -> None:
    world = World({rank: Node(rank, [1 - rank]) for rank in (0, 1)}, hostile(5, 0.3))
    for node in world.nodes.values():
        node.declare(0, 3000, dtype=FLOAT32, must_arrive=True, variable=True)
    got, counts = np.full(3000, 0.5, np.float32), np.full(9, COUNTED, np.uint16)
    world.nodes[1].receive(0, KEY, got, 0, placement=lib.DLCP_PLACE_ADD, contributors=counts)
    world.nodes[0].send(1, KEY, np.arange(length, dtype=np.float32), 0)
    finish(world)
    assert np.array_equal(got, np.where(np.arange(3000) < length, np.arange(3000) + 0.5, 0.5))
    packets = -(-length // 360)
    assert counts.tolist() == [COUNTED + 1] * packets + [COUNTED] * (9 - packets)


def test_lengths_differ_from_message_to_message() -> None:
    """20 times as long and as short again, of both ends' reused memory."""
    world = pair(hostile(3, 0.2))
    lengths = [1, 20, MOST, 100, MOST // 20, MOST, 5]
    got = [buffers()[0] for _ in lengths]
    for iteration, (length, buffer) in enumerate(zip(lengths, got, strict=True)):
        world.nodes[1].receive(0, Key(iteration, 0), buffer, world.now_ns)
        world.nodes[0].send(1, Key(iteration, 0), content(length), world.now_ns)
        if iteration % 2:
            finish(world)
    finish(world)
    for length, buffer in zip(lengths, got, strict=True):
        assert np.array_equal(buffer[:length], content(length))
        assert (buffer[length:] == BEFORE).all()
    completed = {(done.key.iteration, done.bytes) for done in world.nodes[1].done}
    assert completed == set(enumerate(lengths))


# R116
@pytest.mark.parametrize("length", LENGTHS)
def test_the_last_packet_and_no_other_carries_the_flag_each_time(length: int) -> None:
    """The first two transmissions of the last packet, and of one other, are lost."""
    last, sent = (length - 1) // FULL * FULL, list[Packet]()

    def network(world: World, packet: Packet) -> None:
        if packet.type == lib.DLCP_DATA:
            sent.append(packet)
            if offset_of(packet) in (0, last) and sum(offset_of(p) == offset_of(packet) for p in sent) <= 2:
                return
        fair(world, packet)

    world = pair(network)
    got, _ = buffers()
    world.nodes[1].receive(0, KEY, got, 0)
    world.nodes[0].send(1, KEY, content(length), 0)
    finish(world)
    assert np.array_equal(got[:length], content(length))
    assert sum(offset_of(packet) == last for packet in sent) >= 3
    assert all(bool(p.data[1] & lib.DLCP_FLAG_LAST) == (offset_of(p) == last) for p in sent)


# R117
def test_a_nack_describes_as_many_packets_as_the_done_told() -> None:
    """The stash held no more than ten of 31 packets, and not the last one: only the DONE tells how many there are."""
    length, nacks = 30 * FULL + 1, set[tuple[int, int]]()

    def network(world: World, packet: Packet) -> None:
        if packet.type == lib.DLCP_NACK and not packet.data[1] & lib.DLCP_FLAG_WAIT:
            nacks.add(struct.unpack(">II", packet.data[32:40]))
        fair(world, packet)

    world = World({rank: Node(rank, [1 - rank], stash_bytes=20 * 1560) for rank in (0, 1)}, network)
    for node in world.nodes.values():
        node.declare(0, MOST, dtype=UINT8, must_arrive=True, variable=True)
    got, counts = buffers()
    first = Key(0, 0)
    world.nodes[0].send(1, first, content(length), 0, contributors=counts_of(length))
    world.run(100 * MS)
    assert world.nodes[1].statistics()["packets_stash_full"] > 0
    world.nodes[1].receive(0, first, got, world.now_ns, contributors=counts)
    assert "of at most 31 packets have arrived" in world.nodes[1].describe(world.now_ns)
    finish(world)
    assert nacks == {(0, 31)}
    check(world, length, got, counts)


def header(kind: int, **fields: int) -> bytes:
    values = {"type": kind, "source": 0, "cookie": COOKIE, "iteration": KEY.iteration} | fields
    out = ffi.new("uint8_t[]", lib.DLCP_HEADER_BYTES)
    lib.dlcp_header_encode(ffi.new("struct dlcp_header *", values), out)
    return bytes(ffi.buffer(out)[:])


def data_packet(number: int, count: int = FULL, *, last: bool = False, dtype: int = UINT8) -> Packet:
    """Return the packet of a number, of the message that `content(MOST)` would be."""
    flags = lib.DLCP_FLAG_MUST_ARRIVE | (lib.DLCP_FLAG_LAST if last else 0)
    start = number * full_packet(dtype)
    head = header(lib.DLCP_DATA, flags=flags, dtype=dtype, offset=start, count=count, sequence=number, contributors=3)
    size = count * lib.dlcp_element_bytes(dtype)
    return Packet(0, 1, 0, head + content(MOST).tobytes()[start : start + size].ljust(size, b"\0"))


def done_packet(packets: int, round_: int = 1) -> Packet:
    return Packet(0, 1, 0, header(lib.DLCP_DONE) + struct.pack(">IIdI", packets, round_, 0.0, 0))


LAST = -(-MOST // FULL) - 1
"""Number of the last packet of a message as long as may be, of 5 elements."""

BROKEN = {
    "short, not the last": ([], data_packet(2, FULL - 1)),
    "the last there may be, without the flag": ([], data_packet(LAST, 5)),
    "longer than declared": ([], data_packet(LAST, 6, last=True)),
    "full behind what is declared": ([], data_packet(LAST + 1)),
    "an end behind what is declared": ([], data_packet(LAST + 1, 1, last=True)),
    "an end before what came": ([data_packet(5)], data_packet(4, 7, last=True)),
    "an end where a packet came that was not the last": ([data_packet(5)], data_packet(5, last=True)),
    "behind the end": ([data_packet(4, 7, last=True)], data_packet(5)),
    "an end behind the end": ([data_packet(4, 7, last=True)], data_packet(5, 7, last=True)),
    "an end before the end": ([data_packet(4, 7, last=True)], data_packet(3, 7, last=True)),
    "a longer message, at its end": ([data_packet(4, 7, last=True)], data_packet(4, 8, last=True)),
    "a shorter message, at its end": ([data_packet(4, 7, last=True)], data_packet(4, 6, last=True)),
    "the end without the flag": ([data_packet(4, last=True)], data_packet(4)),
    "behind what a DONE told": ([done_packet(4)], data_packet(4)),
    "the last of a DONE, without the flag": ([done_packet(4)], data_packet(3)),
    "an end behind what a DONE told": ([done_packet(4)], data_packet(4, 7, last=True)),
    "an end before what a DONE told": ([done_packet(4)], data_packet(2, 7, last=True)),
    "a DONE of none": ([], done_packet(0)),
    "a DONE of more than is declared": ([], done_packet(LAST + 2)),
    "a DONE of fewer than came": ([data_packet(5)], done_packet(6)),
    "a DONE of fewer than there are": ([data_packet(4, 7, last=True)], done_packet(4)),
    "a DONE of more than there are": ([data_packet(4, 7, last=True)], done_packet(6)),
    "a DONE of another number": ([done_packet(4)], done_packet(5, 2)),
    "another dtype": ([], data_packet(0, 7, last=True, dtype=FLOAT32)),
}


# R73, R118
@pytest.mark.parametrize("case", BROKEN)
def test_what_contradicts_the_length_is_malformed_and_writes_nothing(case: str) -> None:
    before, broken = BROKEN[case]
    world = pair()
    receiver = world.nodes[1]
    got, counts = buffers()
    receiver.receive(0, KEY, got, 0, contributors=counts)
    for packet in before:
        receiver.input(packet, MS)
    assert receiver.statistics()["packets_malformed"] == 0
    held, held_counts = got.copy(), counts.copy()
    for _ in range(2):
        receiver.input(broken, MS)
    assert receiver.statistics()["packets_malformed"] == 2
    assert receiver.under_way()
    assert np.array_equal(got, held)
    assert np.array_equal(counts, held_counts)


# R117
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [3, 3, 1, 1, 0, 2]])
@pytest.mark.parametrize("done_at", [None, 0, 2, 3])
def test_the_order_of_packets_and_done_does_not_matter(order: list[int], done_at: int | None) -> None:
    world = pair()
    receiver = world.nodes[1]
    got, counts = buffers()
    receiver.receive(0, KEY, got, 0, contributors=counts)
    for place, number in enumerate(order):
        if place == done_at:
            receiver.input(done_packet(4), MS)
        assert not receiver.completions()
        receiver.input(data_packet(number, 7 if number == 3 else FULL, last=number == 3), MS)
    (done,) = receiver.completions()
    length = 3 * FULL + 7
    assert (done.bytes, done.delivered_bytes) == (length, length)
    assert np.array_equal(got[:length], content(MOST)[:length])
    assert (got[length:] == BEFORE).all()
    assert counts.tolist() == [3] * 4 + [0] * (counts.size - 4)
    assert receiver.statistics()["packets_malformed"] == 0


# R116, R118
def test_a_tensor_of_fixed_length_takes_no_packet_with_the_flag() -> None:
    world = World({rank: Node(rank, [1 - rank]) for rank in (0, 1)}, fair)
    receiver = world.nodes[1]
    receiver.declare(0, 2 * FULL, dtype=UINT8)
    receiver.receive(0, KEY, np.zeros(2 * FULL, np.uint8), 0)
    for packet in (data_packet(1, last=True), data_packet(0, last=True), data_packet(0, 9, last=True)):
        receiver.input(packet, MS)
    assert receiver.statistics()["packets_malformed"] == 3
    assert receiver.describe(MS).startswith("rank 0: tensor 0 of iteration 7 (push): 2 of 2 packets have not arrived")


def test_what_is_missing_of_a_message_whose_length_is_not_known_is_described() -> None:
    world = pair()
    receiver = world.nodes[1]
    receiver.receive(0, KEY, buffers()[0], 0)
    receiver.input(data_packet(2), MS)
    assert receiver.describe(MS).startswith(
        f"rank 0: tensor 0 of iteration 7 (push): 1 of at most {LAST + 1} packets have arrived"
    )
    receiver.input(data_packet(4, 7, last=True), MS)
    assert receiver.describe(MS).startswith("rank 0: tensor 0 of iteration 7 (push): 3 of 5 packets have not arrived")


# R115
def test_a_variable_tensor_must_arrive_and_is_declared_alike() -> None:
    node = Node(0, [1])
    with pytest.raises(AssertionError, match="messages of variable length must arrive"):
        node.declare(0, MOST, variable=True)
    node.declare(0, MOST, variable=True, must_arrive=True)
    node.declare(0, MOST, variable=True, must_arrive=True)
    with pytest.raises(AssertionError, match="declared otherwise"):
        node.declare(0, MOST, must_arrive=True)


# R115
@pytest.mark.parametrize("length", [0, MOST + 1])
def test_a_length_that_was_not_agreed_is_refused(length: int) -> None:
    world = pair()
    with pytest.raises(AssertionError, match=f"tensor 0 with {length} elements"):
        world.nodes[0].send(1, KEY, np.zeros(length, np.uint8), 0)


def test_a_buffer_has_room_for_the_longest_message() -> None:
    world = pair()
    with pytest.raises(AssertionError, match=f"tensor 0 with {MOST - 1} elements"):
        world.nodes[1].receive(0, KEY, np.zeros(MOST - 1, np.uint8), 0)


# R115
def test_a_bound_and_a_deadline_do_not_shorten_it() -> None:
    """Half of it is lost at first, and half of it would be enough."""
    length, lost = 10 * FULL, set[int]()

    def network(world: World, packet: Packet) -> None:
        if packet.type == lib.DLCP_DATA and offset_of(packet) // FULL % 2 and offset_of(packet) not in lost:
            lost.add(offset_of(packet))
        else:
            fair(world, packet)

    half = NO_LIMIT // 2
    world = pair(network, bound_ppm=(half, half), must_arrive_ppm=NO_LIMIT)
    got, counts = buffers()
    world.nodes[1].receive(0, KEY, got, 0, bound=(half, NO_LIMIT), deadline=(5 * MS, 0, 0), contributors=counts)
    world.nodes[0].send(1, KEY, content(length), 0, bound=(half, NO_LIMIT), contributors=counts_of(length))
    finish(world)
    assert len(lost) == 5
    check(world, length, got, counts)


# R116
def test_a_message_of_fixed_length_has_no_packet_with_the_flag() -> None:
    """Byte by byte: 361 float32 of which nothing may be missing are two packets, without the flag."""
    sent: list[Packet] = []

    def network(world: World, packet: Packet) -> None:
        if packet.type == lib.DLCP_DATA:
            sent.append(packet)
        fair(world, packet)

    world = World({rank: Node(rank, [1 - rank]) for rank in (0, 1)}, network)
    for node in world.nodes.values():
        node.declare(0, 361)
    values = np.arange(361, dtype=np.float32)
    world.nodes[1].receive(0, KEY, np.zeros(361, np.float32), 0)
    world.nodes[0].send(1, KEY, values, 0)
    finish(world)
    sent.sort(key=offset_of)
    head = struct.Struct(">BBHIIHBBIHHIHH")
    for packet, (start, stop) in zip(sent, pairwise([0, 360, 361]), strict=True):
        (sequence,) = struct.unpack(">I", packet.data[24:28])
        flags = lib.DLCP_FLAG_MUST_ARRIVE | packet.data[1] & ACK_NOW
        expected = head.pack(0x31, flags, 0, COOKIE, 7, 0, 0, 0, start, stop - start, 0, sequence, 1, 0)
        assert packet.data == expected + values[start:stop].tobytes()
    assert len({packet.data[24:28] for packet in sent}) == 2
