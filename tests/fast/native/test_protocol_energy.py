"""A bound in energy: what it protects that one in bytes does not, what is reported, and values that are not finite."""

from __future__ import annotations

import numpy as np
import pytest
from dtypes import FLOAT32, energies
from virtual_time import MS, NO_LIMIT, PACKET_ELEMENTS, US, Bound, Done, Floats, Key, Node, Packet, World

from dlcp.transport._native import lib

PACKETS = 100
ELEMENTS = PACKETS * PACKET_ELEMENTS
LIMIT_NS = 5_000 * MS


def gradients(large: set[int]) -> Floats:
    """Ones, and eights in some packets: one of these has 64 times the energy, also by its code."""
    scale = np.where(np.isin(np.arange(ELEMENTS) // PACKET_ELEMENTS, list(large)), 8, 1)
    return scale.astype(np.float32)


def index(packet: Packet) -> int:
    return int.from_bytes(packet.data[16:20], "big") // PACKET_ELEMENTS


def move(
    data: Floats, bound: Bound, lost: set[int], times: int = 1, eager: int = 0, receiver_bound: Bound | None = None
) -> tuple[World, Floats, Done]:
    """One message over a network that loses the packets in `lost` so many times each."""
    left = dict.fromkeys(lost, times)

    def network(world: World, packet: Packet) -> None:
        if packet.type == lib.DLCP_DATA and left.get(index(packet), 0):
            left[index(packet)] -= 1
        else:
            world.deliver(packet, world.now_ns + 300 * US)

    world = World({r: Node(r, [1 - r], eager_stop=eager) for r in (0, 1)}, network)
    for node in world.nodes.values():
        node.declare(0, data.size)
    got = np.empty_like(data)
    world.nodes[1].receive(0, Key(0, 0), got, 0, bound=receiver_bound or bound)
    world.nodes[0].send(1, Key(0, 0), data, 0, bound=bound)
    world.run(LIMIT_NS, lambda: not any(node.under_way() for node in world.nodes.values()))
    assert not any(node.under_way() for node in world.nodes.values())
    (done,) = world.nodes[1].done
    return world, got, done


def missing(got: Floats) -> set[int]:
    return {p for p in range(-(-got.size // PACKET_ELEMENTS)) if not got[p * PACKET_ELEMENTS :][:PACKET_ELEMENTS].any()}


LOST = {10, 11, 12, 50, 51}


# R46, R58
def test_large_gradients_are_sent_again_and_small_ones_are_not() -> None:
    """Two of five lost packets hold nearly all of the lost energy: only they are repaired."""
    data = gradients(large={10, 50})
    world, got, done = move(data, (NO_LIMIT, 50_000), LOST)
    assert missing(got) == {11, 12, 51}
    assert done.lost_bytes == 3 * 1440
    energy = energies(data, FLOAT32)
    assert done.lost_energy_share == pytest.approx(sum(energy[p] for p in (11, 12, 51)) / sum(energy))
    assert world.nodes[0].statistics()["packets_resent"] == 2


def test_a_bound_in_bytes_alone_lets_the_same_loss_stand_and_says_what_it_cost() -> None:
    world, got, done = move(gradients(large={10, 50}), (50_000, NO_LIMIT), LOST)
    assert missing(got) == LOST
    assert done.lost_energy_share == pytest.approx(131 / 226, rel=1e-9)
    assert world.nodes[0].statistics()["packets_resent"] == 0


# R46
def test_both_limits_hold_together() -> None:
    """5 % of the bytes may go, and 1.4 % of the energy: of ten lost packets five small ones may stay lost, and of these
    the energy allows three."""
    data = gradients(large={10, 50})
    _, got, done = move(data, (50_000, 14_000), LOST | {60, 61, 62, 63, 64})
    assert len(missing(got)) == 3
    assert done.lost_energy_share == pytest.approx(3 / 226, rel=1e-9)


# R58
def test_with_a_bound_in_bytes_what_is_sent_again_is_the_largest() -> None:
    """Ten are lost, three may be: the seven that are sent again are the largest."""
    data = gradients(large=set())
    lost = set(range(20, 30))
    for rank, packet in enumerate(sorted(lost)):
        data[packet * PACKET_ELEMENTS : (packet + 1) * PACKET_ELEMENTS] = 2.0 ** (rank * 3 % 10)
    _, got, _ = move(data, (30_000, NO_LIMIT), lost)
    size = {p: data[p * PACKET_ELEMENTS] for p in lost}
    assert len(missing(got)) == 3
    assert max(size[p] for p in missing(got)) < min(size[p] for p in lost - missing(got))


# R30
@pytest.mark.parametrize("eager", [0, 1])
def test_a_complete_message_has_exactly_nothing_missing(eager: int) -> None:
    data = np.random.default_rng(3).normal(size=ELEMENTS).astype(np.float32)
    _, got, done = move(data, (0, NO_LIMIT), {99}, eager=eager)
    assert np.array_equal(got, data)
    assert done.lost_energy_share == 0.0


# R31, R66
def test_eager_stop_knows_the_total_before_the_end() -> None:
    """The header tells the message's energy, so the receiver stops as soon as 60 % of it is there."""
    data = np.ones(ELEMENTS, np.float32)
    world, _, done = move(data, (NO_LIMIT, 400_000), set(), eager=1)
    assert world.nodes[0].statistics()["dones_sent"] == 0
    assert 0.35 <= done.lost_energy_share <= 0.4


def test_zeros_have_no_energy_to_lose() -> None:
    _, _, done = move(np.zeros(ELEMENTS, np.float32), (100_000, 1), LOST)
    assert done.lost_bytes == 5 * 1440
    assert done.lost_energy_share == 0.0


# R49
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, 3e38])
@pytest.mark.parametrize("eager", [0, 1])
def test_values_that_are_not_finite_are_delivered_whole_under_a_bound_in_energy(bad: float, eager: int) -> None:
    """Such a message has no energy to take a share of; the loss of anything may be the loss of what matters."""
    data = gradients(large=set())
    data[50 * PACKET_ELEMENTS + 7] = bad
    _, got, done = move(data, (NO_LIMIT, 300_000), LOST, times=2, eager=eager)
    assert got.tobytes() == data.tobytes()
    assert (done.lost_bytes, done.lost_energy_share) == (0, 0.0)


# R49
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_values_that_are_not_finite_come_first_under_a_bound_in_bytes(bad: float) -> None:
    """Three of five lost packets may stay lost, not the two with a bad value; the share told is that of the bytes."""
    data = gradients(large={11, 12})
    data[10 * PACKET_ELEMENTS] = data[50 * PACKET_ELEMENTS] = bad
    _, got, done = move(data, (30_000, NO_LIMIT), LOST)
    assert missing(got) == {11, 12, 51}
    assert done.lost_energy_share == pytest.approx(0.03)


# R64
@pytest.mark.parametrize("bound", [(0, NO_LIMIT), (NO_LIMIT, 0), (10_000, 1), (20_000, 1_000)])
def test_a_receiver_that_wants_more_than_the_sender_thinks_gets_it(bound: Bound) -> None:
    """The ends disagree about the bound, which they must not: the stricter one gets what it wants, nobody hangs."""
    world, _, done = move(gradients(large=set()), (500_000, NO_LIMIT), LOST, receiver_bound=bound)
    assert done.lost_bytes <= 5 * 1440 * (bound[0] > 0)
    assert world.now_ns < 500 * MS
