"""Messages of uint8, alike over both transports: bytes that are no numbers."""

from __future__ import annotations

import numpy as np
import pytest
from loopback import DLCP, ranks, take
from virtual_time import MS, NO_LIMIT, US, Key, Node, Packet, World

from dlcp.transport._native import lib
from dlcp.transport.contract.endpoint import (
    Bound,
    Droppable,
    Endpoint,
    Leg,
    MessageKey,
    Placement,
)

SIZES = [1, 3, 1439, 1440, 1441, 250_003]
PUSH = MessageKey(0, 0, Leg.PUSH)


# R113
@pytest.mark.parametrize("bound", [None, Bound(0.1), Bound(0.1, 0.5)])
def test_bytes__arrive_unchanged_whatever_their_length_and_values(pair: list[Endpoint], bound: Bound | None) -> None:
    """Every bit pattern travels: bytes that would be NaN as numbers, too. At a tenth of loss, loopback loses none."""
    worker, server = pair
    random = np.random.default_rng(2)
    sent = [random.integers(0, 256, size, np.uint8) for size in SIZES]
    sent[-1][:2880] = 0xFF
    buffers = [np.zeros(size, np.uint8) for size in SIZES]
    for tensor, size in enumerate(SIZES):
        key = MessageKey(0, tensor, Leg.PUSH)
        for endpoint in pair:
            endpoint.declare(tensor, size, queue=3, dtype="uint8")
        server.receive(0, key, buffers[tensor], bound=bound)
        worker.send(1, key, sent[tensor], bound=bound)
    received = take(server, len(SIZES))
    assert sorted((done.key.tensor, done.bytes, done.delivered_bytes) for done in received) == [
        (tensor, size, size) for tensor, size in enumerate(SIZES)
    ]
    assert all(np.array_equal(one, other) for one, other in zip(sent, buffers, strict=True))
    assert {done.lost_energy_share for done in received} == {0.0}
    take(worker, len(SIZES))


def test_bytes__carry_contributors_one_for_each_1440(pair: list[Endpoint]) -> None:
    worker, server = pair
    for endpoint in pair:
        endpoint.declare(0, 2881, queue=3, dtype="uint8")
    counts = np.zeros(3, np.uint16)
    server.receive(0, PUSH, np.zeros(2881, np.uint8), contributors=counts)
    worker.send(1, PUSH, np.ones(2881, np.uint8), contributors=np.array([5, 6, 7], np.uint16))
    take(server, 1)
    assert counts.tolist() == [5, 6, 7]


# R114
def test_bytes__are_not_added(pair: list[Endpoint]) -> None:
    server = pair[1]
    server.declare(0, 8, queue=3, dtype="uint8")
    with pytest.raises(ValueError, match="tensor 0: uint8 are bytes, not numbers: they cannot be added"):
        server.receive(0, PUSH, np.zeros(8, np.uint8), placement=Placement.ADD)


def test_bytes__cannot_be_droppable_over_dlcp() -> None:
    with ranks(DLCP, 1, 1) as (worker, _), pytest.raises(ValueError, match="uint8 has no magnitude"):
        worker.declare(0, 8, queue=3, dtype="uint8", droppable=Droppable.SMALL)


@pytest.mark.parametrize("bound_ppm", [0, 300_000])
def test_bytes__of_a_network_that_loses_miss_no_more_than_their_bound(bound_ppm: int) -> None:
    """Every fifth packet of data is lost at its first transmission. What is missing is whole packets of zeros."""
    size = 100 * 1440 + 7
    sent = np.random.default_rng(3).integers(1, 256, size, np.uint8)
    got = np.full(size, 9, np.uint8)
    lost: set[int] = set()

    def network(world: World, packet: Packet) -> None:
        offset = int.from_bytes(packet.data[16:20], "big")
        if packet.type == lib.DLCP_DATA and offset % 7200 == 0 and offset not in lost:
            lost.add(offset)
        else:
            world.deliver(packet, world.now_ns + 300 * US)

    world = World({rank: Node(rank, [1 - rank]) for rank in (0, 1)}, network)
    for node in world.nodes.values():
        node.declare(0, size, (bound_ppm, 0), energy_ppm=(NO_LIMIT, NO_LIMIT), dtype=lib.DLCP_UINT8)
    world.nodes[1].receive(0, Key(0, 0), got, 0)
    world.nodes[0].send(1, Key(0, 0), sent, 0)
    world.run(5_000 * MS, lambda: not any(node.under_way() for node in world.nodes.values()))
    (done,) = world.nodes[1].done
    missing = got == 0
    assert len(lost) == 21
    assert np.array_equal(got[~missing], sent[~missing])
    assert missing.sum() == done.lost_bytes == (0 if bound_ppm == 0 else 20 * 1440 + 7)
