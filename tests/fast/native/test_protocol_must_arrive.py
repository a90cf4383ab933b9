"""Packets of the largest gradients inside a bounded message: they arrive, lazy and eager, and cost no more."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from virtual_time import MS, NO_LIMIT, PACKET_ELEMENTS, US, Done, Floats, Key, Node, Packet, World

from dlcp.transport._native import lib

PACKETS = 100
ELEMENTS = PACKETS * PACKET_ELEMENTS
MUST = {10 * i + 5 for i in range(10)}
"""By the largest value; by their energy they are the smallest."""
SHARE_PPM = 100_000
BOUND_PPM = 300_000
ONE_WAY_NS = 300 * US
LIMIT_NS = 5_000 * MS


def gradients() -> Floats:
    """Ones; in the packets that must arrive a single four."""
    data = np.ones(ELEMENTS, np.float32).reshape(PACKETS, PACKET_ELEMENTS)
    data[sorted(MUST)] = 0
    data[sorted(MUST), 7] = 4
    return data.reshape(-1)


def index(packet: Packet) -> int:
    return int.from_bytes(packet.data[16:20], "big") // PACKET_ELEMENTS


def move(lose: Callable[[Packet], bool], eager: int, largest_ppm: int = SHARE_PPM) -> tuple[World, set[int], Done]:
    """One push over a network that loses what it is told; which packets are missing, and the receiver's completion."""

    def network(world: World, packet: Packet) -> None:
        if not lose(packet):
            world.deliver(packet, world.now_ns + ONE_WAY_NS)

    world = World(
        {r: Node(r, [1 - r], eager_stop=eager, magnitude_metric=lib.DLCP_METRIC_MAX) for r in (0, 1)}, network
    )
    for node in world.nodes.values():
        node.declare(0, ELEMENTS, (BOUND_PPM, 0), energy_ppm=(NO_LIMIT, NO_LIMIT), must_arrive_ppm=largest_ppm)
    got = np.empty(ELEMENTS, np.float32)
    world.nodes[1].receive(0, Key(0, 0), got, 0)
    world.nodes[0].send(1, Key(0, 0), gradients(), 0)
    world.run(LIMIT_NS, lambda: not any(node.under_way() for node in world.nodes.values()))
    assert not any(node.under_way() for node in world.nodes.values())
    (done,) = world.nodes[1].done
    there = got.reshape(PACKETS, PACKET_ELEMENTS).any(axis=1)
    return world, {i for i in range(PACKETS) if not there[i]}, done


def lost_at_first(packets: set[int], times: int = 1) -> Callable[[Packet], bool]:
    left = dict.fromkeys(packets, times)

    def lose(packet: Packet) -> bool:
        if packet.type != lib.DLCP_DATA or not left.get(index(packet)):
            return False
        left[index(packet)] -= 1
        return True

    return lose


OTHERS = set(range(10)) - MUST
"""They leave next, so they are found lost together with the last of those."""


# R58
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("must", [{5}, {5, 55, 95}, MUST])
def test_lazy__they_are_sent_again_and_nothing_else_is(must: set[int], times: int) -> None:
    """All that is lost is within the bound; others that are lost have more energy, and stay lost."""
    world, missing, done = move(lost_at_first(must | OTHERS, times), eager=0)
    assert missing == OTHERS
    assert done.lost_bytes == len(OTHERS) * 1440
    assert world.nodes[0].statistics()["packets_resent"] == times * len(must)


# R66
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("must", [{5}, {5, 55, 95}, MUST])
def test_eager__the_message_does_not_end_without_them(must: set[int], times: int) -> None:
    _, missing, done = move(lost_at_first(must | OTHERS, times), eager=1)
    assert not missing & MUST
    assert done.lost_bytes == len(missing) * 1440 <= ELEMENTS * 4 * BOUND_PPM // NO_LIMIT


# R61, R66
def test_eager__the_message_ends_as_soon_as_it_has_them_and_its_bound() -> None:
    """The receiver knows from the start how many they are: it ends with just as many packets as without them."""
    _, with_some, _ = move(lost_at_first(set()), eager=1)
    _, without, _ = move(lost_at_first(set()), eager=1, largest_ppm=0)
    assert len(with_some) == len(without) == PACKETS * BOUND_PPM // NO_LIMIT


@pytest.mark.parametrize("eager", [0, 1])
@pytest.mark.parametrize("dones", [1, 3])
def test_dones_that_tell_their_number_may_be_lost(dones: int, eager: int) -> None:
    left = [dones]
    lose_data = lost_at_first({5, 95} | OTHERS)

    def lose(packet: Packet) -> bool:
        if packet.type == lib.DLCP_DONE and left[0]:
            left[0] -= 1
            return True
        return lose_data(packet)

    _, missing, _ = move(lose, eager)
    assert not missing & MUST
    assert not left[0]


@pytest.mark.parametrize("eager", [0, 1])
def test_a_message_that_was_kept_before_it_was_expected_ends_with_them(eager: int) -> None:
    """Everything but two of them and some others comes early."""
    lose = lost_at_first({5, 95} | OTHERS, times=2)
    world = World(
        {r: Node(r, [1 - r], eager_stop=eager, magnitude_metric=lib.DLCP_METRIC_MAX) for r in (0, 1)},
        lambda w, p: None if lose(p) else w.deliver(p, w.now_ns + ONE_WAY_NS),
    )
    for node in world.nodes.values():
        node.declare(0, ELEMENTS, (BOUND_PPM, 0), must_arrive_ppm=SHARE_PPM)
    world.nodes[0].send(1, Key(0, 0), gradients(), 0)
    world.run(16 * MS)
    got = np.zeros(ELEMENTS, np.float32)
    world.nodes[1].receive(0, Key(0, 0), got, world.now_ns)
    world.run(LIMIT_NS, lambda: not any(node.under_way() for node in world.nodes.values()))
    assert not any(node.under_way() for node in world.nodes.values())
    assert got.reshape(PACKETS, PACKET_ELEMENTS)[sorted(MUST), 7].tolist() == [4] * len(MUST)
