"""Which packets are tagged how, seen on the packets that leave."""

from __future__ import annotations

import numpy as np
import pytest
from virtual_time import MS, PACKET_ELEMENTS, US, Floats, Node, Packet, World

from dlcp.transport._native import lib

PACKETS = 40
ELEMENTS = PACKETS * PACKET_ELEMENTS
PUSH, PULL = 0, 1
QUEUE = 5


def uneven(scale: float = 1.0) -> Floats:
    """Packet i's mean |g| is i + 1 (times scale): distinct, so half of the packets lie below the median."""
    signs = np.where(np.arange(ELEMENTS) % 2, 1, -1)
    return (scale * signs * (1 + np.arange(ELEMENTS) // PACKET_ELEMENTS)).astype(np.float32)


def first_pass(
    mode: int,
    leg: int = PUSH,
    droppable: int = lib.DLCP_DROPPABLE_SMALL,
    rounds: int = 1,
    data: Floats | None = None,
    metric: int = lib.DLCP_METRIC_MEAN,
    **shape: int,
) -> dict[int, Packet]:
    """The DATA packets of the last of some iterations, by their place in the tensor; in order of leaving."""
    left: list[Packet] = []

    def network(world: World, packet: Packet) -> None:
        if packet.type == lib.DLCP_DATA:
            left.append(packet)
        world.deliver(packet, world.now_ns + 300 * US)

    world = World({r: Node(r, [1 - r], selective_drop=mode, magnitude_metric=metric) for r in (0, 1)}, network)
    for node in world.nodes.values():
        node.declare(0, ELEMENTS, (100_000, 0), QUEUE, droppable=droppable, **shape)
    for iteration in range(rounds):
        left.clear()
        world.nodes[1].receive(0, (iteration, 0, leg), np.empty(ELEMENTS, np.float32), world.now_ns)
        world.nodes[0].send(1, (iteration, 0, leg), uneven(0.9**iteration) if data is None else data, world.now_ns)
        world.run(world.now_ns + 1000 * MS, lambda: not any(n.under_way() for n in world.nodes.values()))
    return {int.from_bytes(p.data[16:20], "big") // PACKET_ELEMENTS: p for p in left}


def tos(precedence: int, ecn: int = 0) -> int:
    return (QUEUE << 3 | precedence << 1) << 2 | ecn


# R36, R40
def test_wred_sends_small_packets_with_precedence_2_and_the_rest_with_1() -> None:
    packets = first_pass(lib.DLCP_DROP_WRED)
    assert {i for i, p in packets.items() if p.tos == tos(2)} == set(range(PACKETS // 2))
    assert {i for i, p in packets.items() if p.tos == tos(1)} == set(range(PACKETS // 2, PACKETS))


# R36
def test_ect_protects_large_packets_by_ect0() -> None:
    packets = first_pass(lib.DLCP_DROP_ECT)
    assert {i for i, p in packets.items() if p.tos == tos(0)} == set(range(PACKETS // 2))
    assert {p.tos for i, p in packets.items() if i >= PACKETS // 2} == {tos(0, lib.DLCP_ECN_ECT0)}


# R39
@pytest.mark.parametrize(
    ("mode", "options", "expected"),
    [
        (lib.DLCP_DROP_OFF, {}, {tos(0)}),
        (lib.DLCP_DROP_WRED, {"leg": PULL}, {tos(0)}),
        (lib.DLCP_DROP_WRED, {"must_arrive": 1}, {tos(0)}),
        (lib.DLCP_DROP_WRED, {"droppable": 0}, {tos(1)}),
    ],
)
def test_what_may_not_be_dropped_is_not_tagged(mode: int, options: dict[str, int], expected: set[int]) -> None:
    assert {p.tos for p in first_pass(mode, **options).values()} == expected


# R38
def test_classes_leave_in_order_of_importance() -> None:
    order = [p.tos for p in first_pass(lib.DLCP_DROP_WRED).values()]
    assert order == sorted(order)


BELOW, ABOVE = set(range(PACKETS // 2)), set(range(PACKETS // 2, PACKETS))


# R39
@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (0, set()),
        (lib.DLCP_DROPPABLE_SMALL, BELOW),
        (lib.DLCP_DROPPABLE_LARGE, ABOVE),
        (lib.DLCP_DROPPABLE_SMALL | lib.DLCP_DROPPABLE_LARGE, BELOW | ABOVE),
    ],
)
def test_a_tensor_s_mask_says_which_magnitudes_are_droppable(mask: int, expected: set[int]) -> None:
    packets = first_pass(lib.DLCP_DROP_WRED, droppable=mask)
    assert {i for i, p in packets.items() if p.tos == tos(2)} == expected


# R40
def test_the_metric_decides_what_is_small() -> None:
    """Three kinds of packets whose order by mean, by root mean square and by the largest value differs."""
    kinds = np.zeros((3, PACKET_ELEMENTS), np.float32)
    kinds[0] = 2.0  # mean 2, rms 2, largest 2
    kinds[1, :90] = 6.0  # mean 1.5, rms 3, largest 6
    kinds[2, :10] = 10.0  # mean 0.28, rms 1.7, largest 10
    kind = np.arange(PACKETS) % 3
    data = kinds[kind].reshape(-1)
    smallest = {lib.DLCP_METRIC_MEAN: {2}, lib.DLCP_METRIC_L2: {2}, lib.DLCP_METRIC_MAX: {0}}
    largest = {lib.DLCP_METRIC_MEAN: {0}, lib.DLCP_METRIC_L2: {1}, lib.DLCP_METRIC_MAX: {2}}
    for metric in smallest:
        for mask, kinds_of in ((lib.DLCP_DROPPABLE_SMALL, smallest), (lib.DLCP_DROPPABLE_LARGE, largest)):
            packets = first_pass(lib.DLCP_DROP_WRED, data=data, metric=metric, droppable=mask)
            tagged = {int(kind[i]) for i, p in packets.items() if p.tos == tos(2)}
            assert kinds_of[metric] <= tagged
            assert not tagged & (largest if mask == lib.DLCP_DROPPABLE_SMALL else smallest)[metric]


# R32, R41
@pytest.mark.parametrize("bad", [np.inf, np.nan])
@pytest.mark.parametrize("mask", [1, 2, 3])
def test_of_exploded_gradients_nothing_is_droppable(bad: float, mask: int) -> None:
    data = uneven()
    data[5 * PACKET_ELEMENTS] = bad
    packets = first_pass(lib.DLCP_DROP_WRED, droppable=mask, data=data)
    assert {p.tos for p in packets.values()} == {tos(1)}
    assert packets[5].data[15] == lib.DLCP_CODE_NOT_FINITE
    assert {p.data[30:32] for p in packets.values()} == {b"\xff\xff"}


# R43
@pytest.mark.parametrize(("share_ppm", "largest"), [(0, 0), (100_000, 4), (1_000_000, PACKETS)])
@pytest.mark.parametrize("mask", [0, 3])
def test_the_largest_gradients_may_be_told_to_arrive(share_ppm: int, largest: int, mask: int) -> None:
    packets = first_pass(lib.DLCP_DROP_WRED, droppable=mask, must_arrive_ppm=share_ppm)
    must = set(range(PACKETS - largest, PACKETS))
    assert {i for i, p in packets.items() if p.tos == tos(0)} == must
    assert {i for i, p in packets.items() if p.data[1] & lib.DLCP_FLAG_MUST_ARRIVE} == must
    assert set(list(packets)[:largest]) == must, "they leave first"
    assert all(bool(p.data[1] & lib.DLCP_FLAG_SOME_MUST_ARRIVE) == (largest > 0) for p in packets.values())


# R43
@pytest.mark.parametrize("where", [{0, 1, 2}, {20, 30, 39}, {37, 38, 39}])
def test_the_largest_gradients_must_arrive_among_many_that_are_equal(where: set[int]) -> None:
    """Sparse gradients: all packets but three are zeros. A tenth must arrive: these three, and one of the others."""
    data = np.where(np.isin(np.arange(ELEMENTS) // PACKET_ELEMENTS, list(where)), 1, 0).astype(np.float32)
    packets = first_pass(lib.DLCP_DROP_WRED, data=data, must_arrive_ppm=100_000)
    must = {i for i, p in packets.items() if p.data[1] & lib.DLCP_FLAG_MUST_ARRIVE}
    assert where < must
    assert len(must) == 4


# R30, R31
def test_every_packet_tells_the_message_s_energy() -> None:
    packets = first_pass(lib.DLCP_DROP_WRED)
    (code,) = {int.from_bytes(p.data[30:32], "big") for p in packets.values()}
    told = sum(360 * lib.dlcp_code_energy(p.data[15]) for p in packets.values())
    assert told <= lib.dlcp_energy_decode(code) <= told * 2 ** (1.01 / 256)
    exact = float(np.sum(uneven().astype(np.float64) ** 2))
    assert told == pytest.approx(exact, rel=0.05)


# R40
def test_shrinking_gradients_stay_half_droppable_on_the_running_median() -> None:
    """Gradients shrink by a tenth each iteration: the median follows, so not all packets become small."""
    packets = first_pass(lib.DLCP_DROP_WRED, rounds=12)
    share = sum(p.tos == tos(2) for p in packets.values()) / PACKETS
    assert 0.4 < share < 0.7


def test_magnitude_codes_rise_by_four_an_octave() -> None:
    packets = first_pass(lib.DLCP_DROP_WRED)
    codes = {i: p.data[15] for i, p in packets.items()}
    assert codes[1] - codes[0] == codes[3] - codes[1] == codes[7] - codes[3] == 4
