"""When a receiver closes a message before its bound is met, in virtual time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from test_protocol_loss import contents, index, lossless, pair, send, under_way
from virtual_time import MS, US, Deadline, Floats, Packet, World

from dlcp.transport._native import lib

ELEMENTS = 36_000
PACKETS = 100
KEY = (0, 0, 0)
Packets = Callable[[Packet], bool]
LIMIT_NS = 5_000 * MS


def sent_to(world: World, deadline: Deadline) -> Floats:
    """One message from rank 0 to rank 1, which has a deadline."""
    buffer = np.full(ELEMENTS, np.nan, np.float32)
    world.nodes[1].receive(0, KEY, buffer, world.now_ns, deadline=deadline)
    world.nodes[0].send(1, KEY, contents(0, KEY, ELEMENTS), world.now_ns)
    return buffer


def finish(world: World) -> None:
    world.run(world.now_ns + LIMIT_NS, lambda: not under_way(world))
    assert not under_way(world)
    for node in world.nodes.values():  # what a timer ended is handed out
        world.run_node(node)


def never(lost: set[int]) -> object:
    """A network through which certain packets never come, however often they are sent."""

    def network(world: World, packet: Packet) -> None:
        if packet.type != lib.DLCP_DATA or index(packet) not in lost:
            lossless(world, packet)

    return network


# R50
def test_before_the_deadline_the_bound_rules() -> None:
    """Everything is asked for, nothing is lost: the message ends when it is complete, long before the deadline."""
    world = pair(ELEMENTS)
    buffer = sent_to(world, (1_000 * MS, 0, 100_000))
    finish(world)
    done = world.nodes[1].done[0]
    assert done.lost_bytes == 0
    assert 0 < done.first_ns < done.end_ns < 100 * MS
    assert np.array_equal(buffer, contents(0, KEY, ELEMENTS))


# R50
def test_after_the_deadline_its_share_is_enough() -> None:
    """Ten packets never come: the message closes at the deadline exactly, and both ends are free."""
    world = pair(ELEMENTS, resend_last=1)
    world.network = never(set(range(40, 50)))  # type: ignore[assignment]
    buffer = sent_to(world, (200 * MS, 0, 800_000))
    finish(world)
    done = world.nodes[1].done[0]
    assert done.end_ns == 200 * MS
    assert done.lost_bytes == 10 * 1440
    assert not buffer[40 * 360 : 50 * 360].any(), "the holes are zeroed"
    assert np.array_equal(buffer[: 40 * 360], contents(0, KEY, ELEMENTS)[: 40 * 360])
    assert world.nodes[0].done[0].delivered_bytes == 90 * 1440, "the sender is told"


# R50
def test_with_less_than_its_share_the_message_goes_on_until_it_has_it() -> None:
    """Half the packets come only after 400 ms: the one that makes the share enough ends the message."""
    world = pair(ELEMENTS)

    def network(w: World, packet: Packet) -> None:
        if packet.type != lib.DLCP_DATA or index(packet) >= 50 or w.now_ns > 400 * MS:
            lossless(w, packet)

    world.network = network
    sent_to(world, (100 * MS, 0, 800_000))
    finish(world)
    done = world.nodes[1].done[0]
    assert done.end_ns > 400 * MS
    assert done.lost_bytes == 20 * 1440


@pytest.mark.parametrize("share_ppm", [1, 800_000])
def test_a_share_of_a_byte_is_a_packet(share_ppm: int) -> None:
    """Nothing comes before the deadline; then one packet is enough for a millionth, not for 80 %."""
    world = pair(ELEMENTS)

    def network(w: World, packet: Packet) -> None:
        if packet.type != lib.DLCP_DATA or w.now_ns > 300 * MS:
            lossless(w, packet)

    world.network = network
    sent_to(world, (100 * MS, 0, share_ppm))
    finish(world)
    assert world.nodes[1].done[0].lost_bytes == (99 if share_ppm == 1 else 20) * 1440


# R50
def test_a_share_of_zero_closes_a_message_of_which_nothing_came() -> None:
    """Its sender is told that it is over when it sends in the end."""
    world = pair(ELEMENTS, tag_all=1)
    buffer = np.full(ELEMENTS, np.nan, np.float32)
    world.nodes[1].receive(0, KEY, buffer, 0, deadline=(100 * MS, 0, 0))
    world.at(300 * MS, lambda: world.nodes[0].send(1, KEY, contents(0, KEY, ELEMENTS), world.now_ns))
    world.at(300 * MS, lambda: world.run_node(world.nodes[0]))
    world.run(LIMIT_NS, lambda: world.now_ns > 300 * MS and not under_way(world))
    done = world.nodes[1].done[0]
    assert (done.end_ns, done.first_ns) == (100 * MS, 0)
    assert (done.lost_bytes, done.lost_energy_share) == (ELEMENTS * 4, 1.0)
    assert not buffer.any()
    assert not under_way(world)
    assert world.nodes[0].statistics()["data_packets_sent"] < PACKETS / 2, "STOP ended it early"


# R51
def test_a_deadline_counts_from_the_first_packet() -> None:
    """Registered long before anything is sent: only the time since the first packet came counts."""
    world = pair(ELEMENTS)
    world.network = never({99})  # type: ignore[assignment]
    world.nodes[1].receive(0, KEY, np.empty(ELEMENTS, np.float32), 0, deadline=(0, 50 * MS, 900_000))
    world.at(500 * MS, lambda: world.nodes[0].send(1, KEY, contents(0, KEY, ELEMENTS), world.now_ns))
    world.at(500 * MS, lambda: world.run_node(world.nodes[0]))
    world.run(500 * MS)
    finish(world)
    done = world.nodes[1].done[0]
    assert done.first_ns > 500 * MS
    assert done.end_ns == done.first_ns + 50 * MS
    assert done.lost_bytes == 1440


def test_a_deadline_that_is_over_counts_what_had_come_early() -> None:
    """All packets but one wait in the stash when the message is registered: none of them is given away."""
    world = pair(ELEMENTS)
    world.network = never({7})  # type: ignore[assignment]
    world.nodes[0].send(1, KEY, contents(0, KEY, ELEMENTS), 0)
    world.run(300 * MS)
    world.nodes[1].receive(0, KEY, np.empty(ELEMENTS, np.float32), world.now_ns, deadline=(1, 0, 0))
    begun_ns = world.now_ns
    world.run_node(world.nodes[1])
    finish(world)
    done = world.nodes[1].done[0]
    assert done.end_ns == begun_ns
    assert done.lost_bytes == 1440


# R51
@pytest.mark.parametrize(("lost", "ends_ms", "lost_packets"), [(5, 150, 5), (30, 400, 30)])
def test_of_two_deadlines_the_first_that_has_its_share_closes(lost: int, ends_ms: int, lost_packets: int) -> None:
    """An early one that asks for 90 %, a hard one that asks for nothing."""
    world = pair(ELEMENTS, resend_last=1)
    world.network = never(set(range(lost)))  # type: ignore[assignment]
    buffer = np.empty(ELEMENTS, np.float32)
    world.nodes[1].receive(0, KEY, buffer, 0, deadline=[(150 * MS, 0, 900_000), (400 * MS, 0, 0)])
    world.nodes[0].send(1, KEY, contents(0, KEY, ELEMENTS), 0)
    finish(world)
    assert world.nodes[1].done[0].end_ns == ends_ms * MS
    assert world.nodes[1].done[0].lost_bytes == lost_packets * 1440


# R52
def test_a_tensor_that_must_arrive_ignores_deadlines() -> None:
    world = pair(ELEMENTS)
    for node in world.nodes.values():
        node.declare(1, ELEMENTS, must_arrive=True)
    network = never(set(range(50)))
    world.network = lambda w, p: (network if w.now_ns < 400 * MS else lossless)(w, p)  # type: ignore[operator]
    world.nodes[1].receive(0, (0, 1, 0), np.empty(ELEMENTS, np.float32), 0, deadline=(100 * MS, 0, 0))
    world.nodes[0].send(1, (0, 1, 0), contents(0, KEY, ELEMENTS), 0)
    finish(world)
    assert world.nodes[1].done[0].lost_bytes == 0
    assert world.nodes[1].done[0].end_ns > 400 * MS


# R53
def test_the_largest_gradients_are_waited_for_after_the_deadline() -> None:
    """Of a reliable message whose receiver may close early, a tenth of the packets must arrive."""
    world = pair(ELEMENTS, tag_all=1)
    for node in world.nodes.values():
        node.declare(1, ELEMENTS, must_arrive_ppm=100_000)
    data = contents(0, KEY, ELEMENTS)
    data[40 * 360 : 50 * 360] *= 1_000
    network = never(set(range(45, 60)))
    world.network = lambda w, p: (network if w.now_ns < 400 * MS else lossless)(w, p)  # type: ignore[operator]
    buffer = np.empty(ELEMENTS, np.float32)
    world.nodes[1].receive(0, (0, 1, 0), buffer, 0, deadline=(100 * MS, 0, 800_000))
    world.nodes[0].send(1, (0, 1, 0), data, 0)
    finish(world)
    done = world.nodes[1].done[0]
    assert done.end_ns > 400 * MS
    assert np.array_equal(buffer[40 * 360 : 50 * 360], data[40 * 360 : 50 * 360])
    assert 0 < done.lost_bytes <= 20 * 1440, "the others were not waited for"


def push_of_largest(
    late: Packets, *, tag_all: int = 1, value: float = 1_000.0, share_ppm: int = 0, bound_ppm: int = 0
) -> tuple[World, Floats]:
    """A push of which packets 40 to 49 must arrive; its receiver's deadline is 100 ms. late: what comes after 300 ms
    only; packets 60 to 69 come after 1 s."""
    world = pair(ELEMENTS, tag_all=tag_all, resend_last=1)
    for node in world.nodes.values():
        node.declare(1, ELEMENTS, (bound_ppm, 0), must_arrive_ppm=100_000)
    data = contents(0, KEY, ELEMENTS)
    data[40 * 360 : 50 * 360] *= value

    def network(w: World, packet: Packet) -> None:
        slow = packet.type == lib.DLCP_DATA and index(packet) in range(60, 70)
        if w.now_ns >= (1_000 if slow else 300 if late(packet) else 0) * MS:
            lossless(w, packet)

    world.network = network
    buffer = np.full(ELEMENTS, np.nan, np.float32)
    world.nodes[1].receive(0, (0, 1, 0), buffer, 0, deadline=(100 * MS, 0, share_ppm))
    world.nodes[0].send(1, (0, 1, 0), data, 0)
    finish(world)
    return world, buffer


# R53, R61
@pytest.mark.parametrize("share_ppm", [0, 100_000])
@pytest.mark.parametrize("late", ["everything", "data"])
def test_what_must_arrive_is_waited_for_though_nothing_came(late: str, share_ppm: int) -> None:
    """A share of 0 is of what may be missing. That some packets may not is declared at both ends."""
    world, buffer = push_of_largest(lambda p: late == "everything" or p.type == lib.DLCP_DATA, share_ppm=share_ppm)
    done = world.nodes[1].done[0]
    assert done.end_ns > 300 * MS
    assert buffer[40 * 360 : 50 * 360].all()
    if late == "data":  # the DONE that says how many they are came first
        assert done.end_ns < 1_000 * MS
        assert done.lost_bytes >= 10 * 1440, "the others are not waited for"


# R62
@pytest.mark.parametrize("bound_ppm", [0, 50_000])
def test_a_deadline_closes_though_the_first_word_of_what_must_arrive_is_lost(bound_ppm: int) -> None:
    """A DONE of round 1 leaves only when packets 60 to 69 have come, after 1 s."""
    dones: list[int] = []

    def late(packet: Packet) -> bool:
        if packet.type == lib.DLCP_DONE:
            dones.append(int.from_bytes(packet.data[36:40], "big"))
        return packet.type == lib.DLCP_DONE and len(dones) == 1

    world, buffer = push_of_largest(late, bound_ppm=bound_ppm)
    done = world.nodes[1].done[0]
    assert dones == [0, 0]
    assert done.end_ns == 100 * MS
    assert done.lost_bytes == 10 * 1440
    assert buffer[40 * 360 : 50 * 360].all()


# R53
@pytest.mark.parametrize(("tag_all", "value"), [(1, np.inf), (0, 1.0)])
def test_a_sender_that_marks_nothing_has_nothing_to_wait_for(tag_all: int, value: float) -> None:
    """Gradients that are not finite, or messages that nobody measures: the first packet says that none must arrive."""
    world, _ = push_of_largest(lambda p: True, tag_all=tag_all, value=value)
    done = world.nodes[1].done[0]
    assert 300 * MS < done.end_ns == done.first_ns


def test_pulls_of_such_a_tensor_close_at_once() -> None:
    """Only pushes have packets that must arrive."""
    world = pair(ELEMENTS, tag_all=1)
    for node in world.nodes.values():
        node.declare(1, ELEMENTS, must_arrive_ppm=100_000)
    world.nodes[1].receive(0, (0, 1, 1), np.empty(ELEMENTS, np.float32), 0, deadline=(100 * MS, 0, 0))
    world.run(200 * MS)
    world.run_node(world.nodes[1])
    assert [done.end_ns for done in world.nodes[1].done] == [100 * MS]


# R33
@pytest.mark.parametrize("tag_all", [0, 1])
def test_lost_energy_is_told_where_it_is_measured(tag_all: int) -> None:
    """A reliable message is measured only if receivers may close early; else the share of the bytes stands in."""
    world = pair(ELEMENTS, tag_all=tag_all, resend_last=1)
    world.network = never({2})  # type: ignore[assignment]
    sent_to(world, (300 * MS, 0, 0))
    finish(world)
    parts = np.square(contents(0, KEY, ELEMENTS), dtype=np.float64).reshape(PACKETS, 360).sum(axis=1)
    expected = parts[2] / parts.sum() if tag_all else 1 / PACKETS
    assert world.nodes[1].done[0].lost_energy_share == pytest.approx(expected, rel=0.2)
    assert parts[2] / parts.sum() != pytest.approx(1 / PACKETS, rel=0.2)


def test_the_next_message_is_not_harmed_by_what_is_still_under_way() -> None:
    """Late packets of a closed message arrive while the next one of the same tensor is received."""
    world = pair(ELEMENTS)

    def network(w: World, packet: Packet) -> None:
        late = packet.type == lib.DLCP_DATA and index(packet) % 10 == 0 and packet.data[11] == 0
        w.deliver(packet, w.now_ns + (60 * MS if late else 300 * US))

    world.network = network
    sent_to(world, (40 * MS, 0, 500_000))
    world.run(LIMIT_NS, lambda: len(world.nodes[1].done) == 1)
    assert world.nodes[1].done[0].lost_bytes > 0
    buffer = send(world, iteration=1)
    finish(world)
    assert np.array_equal(buffer, contents(0, (1, 0, 0), ELEMENTS))
    assert world.nodes[1].statistics()["packets_late"] > 0
