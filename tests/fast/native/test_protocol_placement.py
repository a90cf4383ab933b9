"""Where the elements of a packet go: every dtype, placement and count of contributors, holes included."""

from __future__ import annotations

import numpy as np
import pytest
from dtypes import BFLOAT16, DTYPES, FLOAT16, FLOAT32, added, floats, full_packet, held, split
from virtual_time import MS, NO_LIMIT, US, Key, Node, Packet, World

from dlcp.transport._native import lib

ZERO, KEEP, ADD = lib.DLCP_PLACE_ZERO, lib.DLCP_PLACE_KEEP, lib.DLCP_PLACE_ADD
PACKETS = 10
HOLES = {3, 7, 9}


def elements_of(dtype: int) -> int:
    return PACKETS * full_packet(dtype) - 5


def world_of(dtype: int, lost: set[int] = HOLES, bound_ppm: int = 0) -> World:
    """Two ranks with tensor 0; packets in `lost` never arrive, all others twice."""

    def network(world: World, packet: Packet) -> None:
        index = int.from_bytes(packet.data[16:20], "big") // full_packet(dtype)
        if packet.type != lib.DLCP_DATA or index not in lost:
            for copy in range(1 + (packet.type == lib.DLCP_DATA)):
                world.deliver(packet, world.now_ns + (300 + 40 * copy) * US)

    world = World({r: Node(r, [1 - r]) for r in (0, 1)}, network)
    for node in world.nodes.values():
        node.declare(0, elements_of(dtype), (bound_ppm, 0), dtype=dtype)
    return world


def finish(world: World) -> None:
    world.run(world.now_ns + 2000 * MS, lambda: not any(n.under_way() for n in world.nodes.values()))
    assert not any(n.under_way() for n in world.nodes.values())


# R34, R69, R70
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("placement", [ZERO, KEEP, ADD])
@pytest.mark.parametrize("counted", [True, False])
def test_packets_and_holes_are_placed_once_as_asked(dtype: int, placement: int, counted: bool) -> None:
    """40 % may be missing and 30 % is: what came is there exactly once, though every packet came twice."""
    world = world_of(dtype)
    numbers = np.random.default_rng(dtype)
    before = held(numbers.normal(size=elements_of(dtype)).astype(np.float32), dtype)
    sent = held(numbers.normal(size=elements_of(dtype)).astype(np.float32), dtype)
    got = before.copy()
    sent_counts = np.arange(1, PACKETS + 1, dtype=np.uint16)
    got_counts = np.full(PACKETS, 100, np.uint16)
    bound = (400_000, NO_LIMIT)
    world.nodes[1].receive(
        0, Key(0, 0), got, 0, placement=placement, bound=bound, contributors=got_counts if counted else None
    )
    world.nodes[0].send(1, Key(0, 0), sent, 0, bound=bound, contributors=sent_counts if counted else None)
    sent_counts = sent_counts.copy()
    finish(world)
    arrived = {ZERO: sent, KEEP: sent, ADD: added(before, sent, dtype)}[placement]
    hole = np.zeros_like(sent) if placement == ZERO else before
    parts = zip(split(got, dtype), split(arrived, dtype), split(hole, dtype), strict=True)
    for packet, (found, there, missing) in enumerate(parts):
        assert found.tobytes() == (missing if packet in HOLES else there).tobytes(), packet
    if counted:
        base = 100 if placement == ADD else 0
        assert got_counts.tolist() == [base + (0 if p in HOLES else p + 1) for p in range(PACKETS)]
    lost = sum(part.nbytes for packet, part in enumerate(split(sent, dtype)) if packet in HOLES)
    assert world.nodes[1].done[0].lost_bytes == lost


# R34
def test_without_word_of_it_a_packet_sums_up_one_rank() -> None:
    world = world_of(FLOAT32, lost=set())
    counts = np.zeros(PACKETS, np.uint16)
    data = np.ones(elements_of(FLOAT32), np.float32)
    world.nodes[1].receive(0, Key(0, 0), np.empty_like(data), 0, contributors=counts)
    world.nodes[0].send(1, Key(0, 0), data, 0)
    finish(world)
    assert counts.tolist() == [1] * PACKETS


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
@pytest.mark.parametrize("elements", [5, 720])
def test_sums_of_16_bit_types_are_rounded_like_the_reference(dtype: int, elements: int) -> None:
    """Every bit pattern meets an arbitrary one: subnormal, infinite, not a number, overflow. 5 elements are too few for
    vectors."""
    numbers = np.random.default_rng(1)
    patterns = np.arange(65536, dtype=np.uint16)
    others = numbers.permutation(patterns)
    world = World({r: Node(r, [1 - r], link_bps=1e11) for r in (0, 1)}, lambda w, p: w.deliver(p, w.now_ns + US))
    for node in world.nodes.values():
        node.declare(0, elements, dtype=dtype)
    chosen = range(0, 65536 - elements, elements if elements > 5 else 997)
    for iteration, start in enumerate(chosen):
        a, b = patterns[start : start + elements].copy(), others[start : start + elements].copy()
        if dtype == FLOAT16:
            a, b = a.view(np.float16), b.view(np.float16)
        expected = floats(added(a, b, dtype), dtype)
        world.nodes[1].receive(0, Key(iteration, 0), a, world.now_ns, placement=ADD)
        world.nodes[0].send(1, Key(iteration, 0), b, world.now_ns)
        finish(world)
        np.testing.assert_array_equal(floats(a, dtype), expected)


# R9, R108
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_packet_of_another_dtype_is_malformed(dtype: int) -> None:
    kept: list[Packet] = []
    world = world_of(dtype, lost=set())
    deliver = world.network
    world.network = lambda w, p: (kept.append(p) if p.type == lib.DLCP_DATA else None, deliver(w, p))  # type: ignore[func-returns-value]
    data = held(np.ones(elements_of(dtype), np.float32), dtype)
    world.nodes[1].receive(0, Key(0, 0), np.empty_like(data), 0)
    world.nodes[0].send(1, Key(0, 0), data, 0)
    finish(world)
    buffer = np.full_like(data, 1)
    receiver = world.nodes[1]
    receiver.receive(0, Key(1, 0), buffer, world.now_ns, placement=KEEP)
    forged = bytearray(kept[0].data)
    forged[8:12] = (1).to_bytes(4, "big")
    forged[14] = ((dtype + 1) % 3) << 4
    count = 100
    forged[20:22] = count.to_bytes(2, "big")
    size = 4 if (dtype + 1) % 3 == FLOAT32 else 2
    before = receiver.statistics()["packets_malformed"]
    receiver.input(Packet(0, 1, 0, bytes(forged[: 32 + count * size])), world.now_ns)
    assert receiver.statistics()["packets_malformed"] == before + 1
    assert (buffer == 1).all()


def test_steps_of_one_tensor_are_messages_of_their_own() -> None:
    """Three hops of a ring at once, registered in another order than they are sent in."""
    world = world_of(FLOAT32, lost=set())
    elements = elements_of(FLOAT32)
    got = [np.empty(elements, np.float32) for _ in range(3)]
    for step in (2, 0, 1):
        world.nodes[1].receive(0, Key(5, 0, 0, step), got[step], 0)
    for step in range(3):
        world.nodes[0].send(1, Key(5, 0, 0, step), np.full(elements, step + 1, np.float32), 0)
    finish(world)
    assert [set(values.tolist()) for values in got] == [{1.0}, {2.0}, {3.0}]
    assert sorted(done.key.step for done in world.nodes[1].done) == [0, 1, 2]
