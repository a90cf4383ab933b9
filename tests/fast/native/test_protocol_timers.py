"""How long a sender waits before it asks, and how often, in virtual time."""

from __future__ import annotations

import numpy as np
import pytest
from test_protocol_loss import contents, index, pair, send, under_way
from virtual_time import MS, US, Packet, World

from dlcp.transport._native import lib

ELEMENTS = 36_000
KEY = (0, 0, 0)
PACKET_NS = 1514 * 80
"""On the link of 100 Mbit/s: a greeting's round trip counts as a full packet's."""


def first_timeout(one_way_ns: int) -> int:
    """After one greeting: srtt + 4 rttvar, where rttvar is half of srtt, and no less than 1 ms."""
    return max(3 * (2 * one_way_ns + PACKET_NS), 1 * MS)


# R78, R79
@pytest.mark.parametrize(
    ("one_way_us", "floor_ms", "timeouts_ns"),
    [
        (300, 0, [first_timeout(300 * US) << min(n, 5) for n in range(8)]),
        (10, 0, [1 * MS << min(n, 5) for n in range(8)]),
        (300, 20, [20 * MS, 40 * MS, 80 * MS, 160 * MS, 250 * MS, 250 * MS]),
        (300, 400, [400 * MS, 400 * MS]),
    ],
)
def test_probes_are_repeated_at_doubling_timeouts(one_way_us: int, floor_ms: int, timeouts_ns: list[int]) -> None:
    """Nothing but greetings is answered, so no packet of the data's queue ever gives a round-trip time."""
    world = pair(ELEMENTS, timer_floor_ns=floor_ms * MS)
    sent_ns: list[int] = []

    def network(w: World, packet: Packet) -> None:
        if packet.queue == lib.DLCP_CONTROL_QUEUE:
            w.deliver(packet, w.now_ns + one_way_us * US)
        else:
            sent_ns.append(w.now_ns)

    world.network = network
    send(world)
    world.run(900 * MS, lambda: len(sent_ns) > len(timeouts_ns))
    assert list(np.diff(sent_ns)[: len(timeouts_ns)]) == timeouts_ns


# R72, R80
def test_a_receiver_that_says_wait_is_asked_at_an_even_pace() -> None:
    """All has arrived, but nobody expects it: 1, 2 and then always 4 timeouts."""
    world = pair(ELEMENTS, bound_ppm=100_000)
    done_ns: list[int] = []
    answers: list[Packet] = []

    def network(w: World, packet: Packet) -> None:
        if packet.type == lib.DLCP_DONE:
            done_ns.append(w.now_ns)
        if packet.type == lib.DLCP_NACK:
            answers.append(packet)
        w.deliver(packet, w.now_ns + 300 * US)

    world.network = network
    world.nodes[0].send(1, KEY, contents(0, KEY, ELEMENTS), 0)
    world.run(2_000 * MS, lambda: len(done_ns) == 10)
    gaps = np.diff(done_ns)
    assert list(gaps) == [gaps[0], 2 * gaps[0], *[4 * gaps[0]] * 7]
    assert len(answers) == 9
    assert all(packet.data[1] & lib.DLCP_FLAG_WAIT for packet in answers)


# R82
def test_a_greeting_leaves_every_second_while_data_flow() -> None:
    world = pair(ELEMENTS, link_bps=3e5, congestion_control=b"fixed", fixed_window=4)
    greeted_ns: list[int] = []

    def network(w: World, packet: Packet) -> None:
        if packet.type == lib.DLCP_PROBE and packet.queue == lib.DLCP_CONTROL_QUEUE and packet.source == 0:
            greeted_ns.append(w.now_ns)
        w.deliver(packet, w.now_ns + 300 * US)

    world.network = network
    send(world)
    world.run(10_000 * MS, lambda: not under_way(world))
    assert len(greeted_ns) == 1 + world.now_ns // (1_000 * MS)
    assert np.diff(greeted_ns) == pytest.approx(1_000 * MS, rel=0.01)


# R55
def test_patience_with_packets_that_take_a_longer_path_grows() -> None:
    """Every tenth packet comes 500 us late, more than the allowance at first: few are taken for lost."""
    world = pair(5 * ELEMENTS, congestion_control=b"fixed", fixed_window=16, ack_delay_ns=US)

    def network(w: World, packet: Packet) -> None:
        late = packet.type == lib.DLCP_DATA and index(packet) % 10 == 0
        w.deliver(packet, w.now_ns + (800 if late else 300) * US)

    world.network = network
    send(world, elements=5 * ELEMENTS)
    world.run(1_000 * MS, lambda: not under_way(world))
    statistics = world.nodes[0].statistics()
    assert 0 < statistics["losses_spurious"] == statistics["losses_detected"] <= 5, "50 packets were late"
