"""What becomes of chosen losses, one case at a time, in virtual time."""

from __future__ import annotations

import numpy as np
from virtual_time import MS, PACKET_ELEMENTS, US, Floats, Key, Node, Packet, World

from dlcp.transport._native import lib


def contents(source: int, key: Key | tuple[int, ...], elements: int) -> Floats:
    """Values that no other message has, none of them zero, of uneven magnitude."""
    name = 1 + source + 10 * (key[0] + 10 * (key[1] + 10 * key[2]))
    scale = 2.0 ** ((np.arange(elements) // PACKET_ELEMENTS * 7) % 5)
    return (scale * (name + np.arange(elements) / 2**20)).astype(np.float32)


def under_way(world: World) -> int:
    return sum(node.under_way() for node in world.nodes.values())


def lossless(world: World, packet: Packet) -> None:
    world.deliver(packet, world.now_ns + 300 * US)


def index(packet: Packet) -> int:
    """Which packet of its message a DATA packet is."""
    return int.from_bytes(packet.data[16:20], "big") // PACKET_ELEMENTS


def pair(elements: int, bound_ppm: int = 0, **options: object) -> World:
    """Ranks 0 and 1 with tensor 0; rank 1 expects iteration 0 of it from rank 0."""
    world = World({0: Node(0, [1], **options), 1: Node(1, [0], **options)}, lossless)
    for node in world.nodes.values():
        node.declare(0, elements, (bound_ppm, 0), droppable=True)
    return world


def send(world: World, iteration: int = 0, elements: int = 36_000) -> Floats:
    key = (iteration, 0, 0)
    buffer = np.empty(elements, np.float32)
    world.nodes[1].receive(0, key, buffer, world.now_ns)
    world.nodes[0].send(1, key, contents(0, key, elements), world.now_ns)
    return buffer


# R54, R59
def test_a_clean_network_loses_and_resends_nothing() -> None:
    world = pair(36_000, bound_ppm=100_000)
    buffer = send(world)
    world.run(1_000 * MS, lambda: not under_way(world))
    assert np.array_equal(buffer, contents(0, (0, 0, 0), 36_000))
    statistics = world.nodes[0].statistics()
    assert statistics["packets_resent"] == statistics["losses_detected"] == statistics["dones_sent"] == 0


# R58, R59, R66
def test_loss_within_the_bound_is_not_repaired() -> None:
    """5 % of the packets vanish under a bound of 10 %: nothing is sent twice, one DONE ends it."""
    world = pair(36_000, bound_ppm=100_000)
    world.network = lambda w, p: None if p.type == lib.DLCP_DATA and index(p) % 20 == 7 else lossless(w, p)
    buffer = send(world)
    world.run(1_000 * MS, lambda: not under_way(world))
    assert 0 < world.nodes[1].done[0].lost_bytes <= 14_400
    assert np.count_nonzero(buffer == 0) * 4 == world.nodes[1].done[0].lost_bytes
    assert world.nodes[0].statistics()["packets_resent"] == 0
    assert world.nodes[0].done[0].probes == 1


# R11, R60
def test_a_tail_lost_within_the_bound_ends_without_waiting_for_proof() -> None:
    """Nothing leaves after the last packets, so nothing proves them lost; the end of the pass is said behind them."""
    world = pair(36_000, bound_ppm=100_000)
    left: list[int] = []

    def network(w: World, packet: Packet) -> None:
        if packet.type == lib.DLCP_DATA:
            left.append(w.now_ns)
        if packet.type == lib.DLCP_DONE:
            assert packet.queue != lib.DLCP_CONTROL_QUEUE, "it would overtake the data that it speaks of"
        if packet.type != lib.DLCP_DATA or len(left) <= 95:
            lossless(w, packet)

    world.network = network
    send(world)
    world.run(1_000 * MS, lambda: not under_way(world))
    done = world.nodes[1].done[0]
    assert done.lost_bytes == 5 * 1440
    assert done.end_ns < left[-1] + 3 * 600 * US, "three round trips"
    sender = world.nodes[0].statistics()
    assert (sender["losses_detected"], sender["packets_resent"]) == (0, 0)


# R60
def test_what_is_late_by_less_than_a_round_trip_still_counts() -> None:
    """The end of a pass is not told before what was sprayed over a longer path had time to come."""
    world = pair(36_000, bound_ppm=100_000)
    sent: list[int] = []

    def network(w: World, packet: Packet) -> None:
        if packet.type == lib.DLCP_DATA:
            sent.append(index(packet))
        late_ns = 500 * US if packet.type == lib.DLCP_DATA and len(sent) > 96 else 0
        w.deliver(packet, w.now_ns + 300 * US + late_ns)

    world.network = network
    buffer = send(world)
    world.run(1_000 * MS, lambda: not under_way(world))
    assert world.nodes[1].done[0].lost_bytes == 0
    assert np.array_equal(buffer, contents(0, (0, 0, 0), 36_000))


# R54
def test_a_reliable_message_is_repaired_from_acknowledgements_alone() -> None:
    """One packet lost in the middle: resent once, within a few round trips, with no DONE and no NACK."""
    world = pair(36_000)
    lost = []

    def network(w: World, packet: Packet) -> None:
        if packet.type == lib.DLCP_DATA and not lost and index(packet) == 50:
            lost.append(w.now_ns)
        else:
            lossless(w, packet)

    world.network = network
    buffer = send(world)
    world.run(1_000 * MS, lambda: not under_way(world))
    assert np.array_equal(buffer, contents(0, (0, 0, 0), 36_000))
    statistics = world.nodes[0].statistics()
    assert (statistics["packets_resent"], statistics["dones_sent"]) == (1, 0)
    assert world.nodes[1].statistics()["nacks_sent"] == 0


# R56
def test_a_whole_flight_lost_recovers_within_tens_of_milliseconds() -> None:
    world = pair(36_000)
    dark = (5 * MS, 9 * MS)
    world.network = lambda w, p: None if dark[0] <= w.now_ns < dark[1] else lossless(w, p)
    send(world)
    world.run(1_000 * MS, lambda: not under_way(world))
    assert world.nodes[1].done
    assert world.nodes[1].done[0].end_ns < 60 * MS


# R6, R71
def test_a_nack_of_several_parts_names_every_packet() -> None:
    """Two NACKs a round, for a message that was acknowledged but thrown away since nobody expected it yet."""
    packets = lib.DLCP_NACK_PACKETS + 50
    elements = packets * PACKET_ELEMENTS
    world = pair(elements, congestion_control=b"fixed", fixed_window=512, link_bps=1e10, stash_bytes=1)
    key = (0, 0, 0)
    data, buffer = contents(0, key, elements), np.empty(elements, np.float32)
    world.nodes[0].send(1, key, data, 0)
    world.run(60 * MS)
    sender, receiver = world.nodes[0], world.nodes[1]
    assert receiver.statistics()["packets_stash_full"] == packets
    receiver.receive(0, key, buffer, world.now_ns)
    world.run(10_000 * MS, lambda: not under_way(world))
    assert buffer.tobytes() == data.tobytes()
    assert receiver.statistics()["nacks_sent"] >= 3, "one WAIT at least, then two parts"
    assert sender.statistics()["packets_resent"] == packets


# R17, R59, R68
def test_a_lost_stop_is_said_again() -> None:
    world = pair(360)
    stops = []

    def network(w: World, packet: Packet) -> None:
        if packet.type == lib.DLCP_STOP:
            stops.append(w.now_ns)
        if packet.type != lib.DLCP_STOP or len(stops) > 2:
            lossless(w, packet)

    world.network = network
    send(world, elements=360)
    world.run(1_000 * MS, lambda: not under_way(world))
    assert len(stops) == 3
    assert world.nodes[0].done[0].probes == 2


# R67
def test_packets_of_an_earlier_iteration_never_count() -> None:
    world = pair(36_000)
    kept: list[Packet] = []
    world.network = lambda w, p: (kept.append(p) if p.type == lib.DLCP_DATA else None, lossless(w, p))  # type: ignore[func-returns-value]
    send(world)
    world.run(1_000 * MS, lambda: not under_way(world))
    buffer = np.zeros(36_000, np.float32)
    receiver = world.nodes[1]
    receiver.receive(0, (1, 0, 0), buffer, world.now_ns)
    for packet in kept:
        receiver.input(packet, world.now_ns)
    assert not buffer.any()
    assert receiver.statistics()["packets_late"] == len(kept)


def test_a_step_that_is_over_does_not_end_the_one_before() -> None:
    """Both are expected; the second arrives first. The DONEs and data of the first find their message all the same."""
    world = pair(3_600, congestion_control=b"fixed")
    got = {step: np.empty(3_600, np.float32) for step in (0, 1)}

    def network(w: World, packet: Packet) -> None:
        late = packet.type == lib.DLCP_DATA and packet.data[22:24] == bytes(2)
        w.deliver(packet, max(w.now_ns + 300 * US, 60 * MS if late else 0))

    world.network = network
    for step in (0, 1):
        world.nodes[1].receive(0, Key(0, 0, 0, step), got[step], 0)
        world.nodes[0].send(1, Key(0, 0, 0, step), np.full(3_600, step + 1, np.float32), 0)
    world.run(5_000 * MS, lambda: not under_way(world))
    assert [done.key.step for done in world.nodes[1].done] == [1, 0]
    assert [int(got[step].min()) for step in (0, 1)] == [1, 2]


# R84
def test_a_silent_peer_is_gone_after_the_limit_and_named() -> None:
    world = pair(36_000, silence_ns=2_000 * MS, first_contact_ns=2_000 * MS)
    world.network = lambda w, p: None if w.now_ns > 3 * MS else lossless(w, p)
    send(world)
    sender = world.nodes[0]
    world.run(5_000 * MS, lambda: lib.dlcp_protocol_gone(sender.native) >= 0)
    assert lib.dlcp_protocol_gone(sender.native) == 1
    assert 2_000 * MS <= world.now_ns < 2_100 * MS


# R83
def test_a_peer_that_answers_but_computes_for_long_is_not_gone() -> None:
    """Rank 0 waits for 60 virtual seconds for a message that rank 1 has not sent yet."""
    world = pair(360)
    world.nodes[0].receive(1, (0, 0, 0), np.empty(360, np.float32), 0)
    world.run(60_000 * MS)
    assert lib.dlcp_protocol_gone(world.nodes[0].native) == -1


# R42
def test_a_cut_tail_is_not_always_the_same_range() -> None:
    """The packet sent last of each class differs from iteration to iteration."""
    world = pair(36_000, bound_ppm=100_000)
    last: dict[int, int] = {}

    def network(w: World, packet: Packet) -> None:
        if packet.type == lib.DLCP_DATA:
            iteration = int.from_bytes(packet.data[8:12], "big")
            last[iteration] = index(packet)
        lossless(w, packet)

    world.network = network
    for iteration in range(5):
        send(world, iteration)
        world.run(world.now_ns + 1_000 * MS, lambda: not under_way(world))
    assert len(set(last.values())) == 5
