"""When acknowledgements leave, what they say, and what a sender takes from them, in virtual time."""

from __future__ import annotations

import numpy as np
import pytest
from test_protocol_loss import contents, index, lossless, pair, send, under_way
from virtual_time import COOKIE, MS, US, Key, Node, Packet, World

from dlcp.transport._native import ffi, lib

ELEMENTS = 36_000
ACK_LIMIT_NS = 500 * US


def packet(kind: int, source: int, sequence: int, flags: int = 0) -> Packet:
    """One packet to rank 0; DATA of one element, of a message that nobody expects."""
    fields = {"type": kind, "flags": flags, "source": source, "cookie": COOKIE, "sequence": sequence}
    fields |= {"count": 1} if kind == lib.DLCP_DATA else {}
    out = ffi.new("uint8_t[]", lib.DLCP_HEADER_BYTES)
    lib.dlcp_header_encode(ffi.new("struct dlcp_header *", fields), out)
    return Packet(source, 0, 0, ffi.buffer(out)[:] + bytes(4 if kind == lib.DLCP_DATA else 0))


def acks(node: Node, now_ns: int) -> list[Packet]:
    return [one for one in node.poll(now_ns) if one.type == lib.DLCP_ACK]


def ack(largest: int, delay_us: int = 0) -> Packet:
    """Rank 1's acknowledgement of one packet."""
    told = ffi.new("struct dlcp_ack *", {"source": 1, "cookie": COOKIE, "largest": largest, "delay_us": delay_us})
    told.bitmap[0] = 1
    out = ffi.new("uint8_t[]", lib.DLCP_ACK_BYTES)
    lib.dlcp_ack_encode(told, out)
    return Packet(1, 0, 0, ffi.buffer(out)[:])


# R18, R20
def test_who_asks_is_answered_at_once_and_others_within_half_a_millisecond() -> None:
    node = Node(0, [1])
    node.input(packet(lib.DLCP_DATA, 1, 0), 1 * MS)
    assert not acks(node, 1 * MS)
    assert node.next_timer(1 * MS) == 1 * MS + ACK_LIMIT_NS
    assert len(acks(node, 1 * MS + ACK_LIMIT_NS)) == 1
    node.input(packet(lib.DLCP_DATA, 1, 1, lib.DLCP_FLAG_ACK_NOW), 2 * MS)
    assert len(acks(node, 2 * MS)) == 1
    node.input(packet(lib.DLCP_PROBE, 1, 2), 3 * MS)
    assert len(acks(node, 3 * MS)) == 1


# R19
@pytest.mark.parametrize(("rate_bps", "most"), [(1e8, 8), (1e9, 8), (4e9, 33), (1e10, 64), (1e11, 64)])
def test_an_acknowledgement_stands_for_so_many_packets_at_most(rate_bps: float, most: int) -> None:
    node = Node(0, [1], link_bps=rate_bps)
    for sequence in range(most):
        assert not acks(node, 1 * MS)
        node.input(packet(lib.DLCP_DATA, 1, sequence), 1 * MS)
    assert len(acks(node, 1 * MS)) == 1


# R13
def test_a_number_far_behind_the_largest_is_told_beside_it() -> None:
    node = Node(0, [1])
    for sequence in (1_000, 1_000 - lib.DLCP_ACK_WINDOW, 5):
        node.input(packet(lib.DLCP_DATA, 1, sequence), 1 * MS)
    told = [int.from_bytes(one.data[8:12], "big") for one in acks(node, 1 * MS + ACK_LIMIT_NS)]
    assert told == [5, 1_000]


# R87
@pytest.mark.parametrize("window", [0.25, 1.0])
def test_with_a_window_below_one_a_single_packet_is_in_flight(window: float) -> None:
    world = pair(ELEMENTS, congestion_control=b"fixed", fixed_window=window)
    in_flight: list[int] = [0]

    def network(w: World, one: Packet) -> None:
        sent = one.source == 0 and one.type in (lib.DLCP_DATA, lib.DLCP_PROBE)
        acknowledged = one.source == 1 and one.type == lib.DLCP_ACK
        in_flight.append(in_flight[-1] + sent - acknowledged)
        lossless(w, one)

    world.network = network
    send(world)
    world.run(1_000 * MS, lambda: not under_way(world))
    assert max(in_flight) == 1
    assert world.nodes[0].statistics()["packets_resent"] == 0


# R22
def test_an_acknowledgement_counts_the_ranks_that_send() -> None:
    node = Node(0, [1, 2, 3])
    told = []
    for source, at_ns in ((1, 1 * MS), (2, 1 * MS), (3, 2 * MS), (3, 20 * MS)):
        node.input(packet(lib.DLCP_DATA, source, at_ns // MS, lib.DLCP_FLAG_ACK_NOW), at_ns)
        (answer,) = (one for one in acks(node, at_ns) if one.destination == source)
        told.append(answer.data[1])
    assert told == [1, 2, 3, 1], "the first two were not heard for 18 ms"


# R12
def test_every_transmission_takes_the_next_sequence_number() -> None:
    world = pair(ELEMENTS)
    numbers: list[int] = []
    again: list[int] = []

    def network(w: World, one: Packet) -> None:
        if one.source == 0 and one.type in (lib.DLCP_DATA, lib.DLCP_PROBE):
            numbers.append(int.from_bytes(one.data[24:28], "big"))
        resent = one.type == lib.DLCP_DATA and one.data[1] & lib.DLCP_FLAG_RETRANSMISSION
        again.extend([index(one)] if resent else [])
        if one.type != lib.DLCP_DATA or resent or index(one) % 10:
            lossless(w, one)

    world.network = network
    send(world)
    world.run(1_000 * MS, lambda: not under_way(world))
    assert len(again) == 10
    assert numbers == list(range(len(numbers)))


def sender() -> Node:
    """Rank 0 with data in flight since 1 ms: sequence number 0 was a greeting, 1 and more are data."""
    node = Node(0, [1], congestion_control=b"fixed", fixed_window=8)
    node.declare(0, ELEMENTS)
    node.send(1, Key(0, 0), contents(0, (0, 0, 0), ELEMENTS), 0)
    assert [one.type for one in node.poll(0)] == [lib.DLCP_PROBE]
    node.input(ack(0), 1 * MS)
    assert len([one for one in node.poll(1 * MS) if one.type == lib.DLCP_DATA]) >= 2
    return node


# R14
def test_only_news_gives_a_round_trip_time() -> None:
    node = sender()
    node.input(ack(2), 3 * MS)
    before = node.peer(1)["srtt_ns"]
    node.input(ack(1), 90 * MS)
    assert node.peer(1)["srtt_ns"] == before


# R16
@pytest.mark.parametrize("largest", [1_000, 2**31 - 1])
def test_an_acknowledgement_of_what_was_never_sent_is_no_news(largest: int) -> None:
    """What comes after it gives round-trip times as before."""
    node = sender()
    node.input(ack(largest), 2 * MS)
    before = node.peer(1)["srtt_ns"]
    node.input(ack(2), 40 * MS)
    assert node.peer(1)["srtt_ns"] > before


# R15
def test_the_time_that_an_acknowledgement_was_held_back_does_not_count() -> None:
    node = sender()
    node.input(ack(1, delay_us=1_500), 3 * MS)
    assert node.peer(1)["min_rtt_ns"] == 500 * US


# R21
@pytest.mark.parametrize(("window", "most_between"), [(1, 1), (8, 4), (16, 8)])
def test_a_sender_asks_about_twice_a_window_and_with_its_last_packet(window: int, most_between: int) -> None:
    world = pair(ELEMENTS, congestion_control=b"fixed", fixed_window=window)
    asks: list[bool] = []

    def network(w: World, one: Packet) -> None:
        if one.type == lib.DLCP_DATA:
            asks.append(bool(one.data[1] & lib.DLCP_FLAG_ACK_NOW))
        lossless(w, one)

    world.network = network
    send(world)
    world.run(1_000 * MS, lambda: not under_way(world))
    places = [-1, *np.flatnonzero(asks)]
    assert max(np.diff(places)) <= most_between
    assert asks[-1]
