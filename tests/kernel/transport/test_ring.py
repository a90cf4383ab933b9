"""Ring all-reduce over real sockets: what every rank ends with, whatever the sizes, the order and the losses."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from loopback import TCP, ring, together

from dlcp.model.transport.settings import TransportSettings
from dlcp.transport.aggregation.ring import (
    SEGMENT_HOP_BYTES,
    AllReduced,
    Holes,
    RingAllReduce,
    chunk_cuts,
    connects_to,
    hop_bound,
    neighbours,
    segment_cuts,
)
from dlcp.transport.contract.endpoint import (
    RELIABLE,
    Bound,
    Counts,
    Dtype,
    Endpoint,
    Leg,
    MessageKey,
    TransportError,
    Values,
)
from dlcp.transport.contract.mailbox import Mailbox
from dlcp.transport.contract.values import packet_elements

DLCP = TransportSettings(kind="dlcp")
TRANSPORTS = [pytest.param(TCP, id="tcp"), pytest.param(DLCP, id="dlcp")]
SIZES = [1, 7, 360, 361, 4 * 360, 5_000, 100_001]


def whole_numbers(rank: int, elements: int, dtype: Dtype = "float32") -> Values:
    """Small whole numbers: sums of a few are exact in every dtype, in every order."""
    found = np.random.default_rng([rank, elements]).integers(-8, 9, elements).astype(np.float32)
    return (found.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bfloat16" else found.astype(dtype)


def as_float(values: Values, dtype: Dtype) -> Values:
    return (values.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else values.astype(np.float32)


def take(ring: RingAllReduce, count: int, timeout_s: float = 20.0) -> list[AllReduced]:
    found: list[AllReduced] = []
    deadline_s = time.monotonic() + timeout_s
    while len(found) < count:
        assert time.monotonic() < deadline_s, f"{ring.missing()} after {timeout_s} s"
        found += ring.wait(1.0)
    return found


def reduce_all(
    endpoints: list[Endpoint], arrays: list[list[Values]], dtype: Dtype = "float32", **options: Any
) -> list[list[AllReduced]]:
    """All-reduce arrays[rank][tensor] in place, all tensors at once."""
    size = len(endpoints)
    reducers = [RingAllReduce(Mailbox(one), rank, size, **options) for rank, one in enumerate(endpoints)]
    for reducer in reducers:
        for tensor, data in enumerate(arrays[0]):
            reducer.declare(tensor, data.size, dtype=dtype)

    def one(rank: int) -> list[AllReduced]:
        reducer = reducers[rank]
        for tensor in reversed(range(len(arrays[rank]))):
            reducer.start(tensor, 0, arrays[rank][tensor])
        return take(reducer, len(arrays[rank]))

    return together([lambda rank=rank: one(rank) for rank in range(len(endpoints))])


@pytest.mark.parametrize("settings", TRANSPORTS)
@pytest.mark.parametrize(("size", "shared"), [(1, False), (2, False), (3, False), (5, False), (5, True), (8, True)])
def test_sum__of_every_size_is_exact_at_every_rank(settings: TransportSettings, size: int, shared: bool) -> None:
    arrays = [[whole_numbers(rank, elements) for elements in SIZES] for rank in range(size)]
    expected = [sum(whole_numbers(rank, elements) for rank in range(size)) for elements in SIZES]
    with ring(settings, size) as endpoints:
        found = reduce_all(endpoints, arrays, shared_numbers=shared)
    for rank in range(size):
        for data, wanted in zip(arrays[rank], expected, strict=True):
            np.testing.assert_array_equal(data, wanted)
        assert sorted(one.tensor for one in found[rank]) == list(range(len(SIZES)))
        assert all(one.lost_bytes == 0 and one.start_s <= one.end_s <= time.monotonic() for one in found[rank])


@pytest.mark.parametrize("settings", TRANSPORTS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_average__is_divided_once_so_all_ranks_hold_the_same_bits(settings: TransportSettings, dtype: Dtype) -> None:
    size, elements = 3, 10_000
    arrays = [[whole_numbers(rank, elements, dtype)] for rank in range(size)]
    total = sum(as_float(whole_numbers(rank, elements, dtype), dtype) for rank in range(size))
    with ring(settings, size) as endpoints:
        reduce_all(endpoints, arrays, dtype, average=True)
    for rank in range(1, size):
        np.testing.assert_array_equal(arrays[rank][0], arrays[0][0])
    digits = {"float32": 24, "float16": 11, "bfloat16": 8}[dtype]
    np.testing.assert_allclose(as_float(arrays[0][0], dtype), total / size, rtol=2.0**-digits)


@pytest.mark.parametrize("settings", TRANSPORTS)
@pytest.mark.parametrize(("size", "shared"), [(3, False), (6, True)])
def test_iterations__follow_each_other_while_other_threads_start(
    settings: TransportSettings, size: int, shared: bool
) -> None:
    """A thread starts, as a backward pass does; another waits. Ranks run apart by up to an iteration."""
    elements, iterations = 4_000, 12

    def one(reducer: RingAllReduce) -> list[float]:
        data, over = np.zeros(elements, np.float32), threading.Semaphore(1)
        sums: list[float] = []

        def begin() -> None:
            for iteration in range(iterations):
                over.acquire()
                data[:] = reducer.rank + iteration
                reducer.start(5, iteration, data)

        thread = threading.Thread(target=begin)
        thread.start()
        for iteration in range(iterations):
            (found,) = take(reducer, 1)
            assert (found.tensor, found.iteration) == (5, iteration)
            assert data.min() == data.max()
            sums.append(float(data[0]))
            over.release()
        thread.join()
        return sums

    with ring(settings, size) as endpoints:
        reducers = [
            RingAllReduce(Mailbox(one), rank, size, shared_numbers=shared) for rank, one in enumerate(endpoints)
        ]
        for reducer in reducers:
            reducer.declare(5, elements)
        found = together([lambda reducer=reducer: one(reducer) for reducer in reducers])
    assert found == [[sum(range(size)) + float(size * iteration) for iteration in range(iterations)]] * size


class Hole:
    """An endpoint that never delivers one packet of what it pushes for one endpoint tensor, as a lossy leg does."""

    def __init__(self, below: Endpoint, tensor: int, packet: int) -> None:
        self._below, self._tensor, self._packet = below, tensor, packet

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    def send(
        self,
        peer: int,
        key: MessageKey,
        data: Values,
        *,
        bound: Bound | None = None,
        contributors: Counts | None = None,
    ) -> None:
        if (key.tensor, key.leg) == (self._tensor, Leg.PUSH):
            data = data.copy()
            width = packet_elements("float32")
            data[self._packet * width : (self._packet + 1) * width] = 0
            if contributors is not None:
                contributors = contributors.copy()
                contributors[self._packet] = 0
        self._below.send(peer, key, data, bound=bound, contributors=contributors)


@pytest.mark.parametrize(("holes", "kept"), [("zero", 2 / 4), ("rescale", 1.0)])
def test_holes__are_decided_once_by_the_owner(holes: Holes, kept: float) -> None:
    """Rank 3 pushes chunk 1 on with the sum of ranks 2 and 3: lose one packet, and two of four are missing."""
    size, width = 4, packet_elements("float32")
    arrays = [[np.ones(size * 4 * width, np.float32)] for _ in range(size)]
    with ring(TCP, size) as endpoints:
        endpoints[3] = Hole(endpoints[3], tensor=1, packet=2)  # type: ignore[call-overload]
        reduce_all(endpoints, arrays, holes=holes, average=True)
    expected = np.ones(size * 4 * width, np.float32)
    expected[(4 + 2) * width : (4 + 3) * width] = kept
    for rank in range(size):
        np.testing.assert_array_equal(arrays[rank][0], expected)


def test_loss__of_an_eager_stop_leaves_all_ranks_with_the_same_bits() -> None:
    """Real holes: each hop stops as soon as its bound is met. What is lost is told, and within the bound."""
    size, elements, share = 4, 400 * 360, 0.6
    arrays = [[whole_numbers(rank, elements)] for rank in range(size)]
    with ring(TransportSettings(kind="dlcp", stop="eager"), size) as endpoints:
        found = reduce_all(endpoints, arrays, holes="rescale", average=True, bound=Bound(share))
    lost = [one[0].lost_bytes for one in found]
    assert sum(lost) > 0
    assert all(each <= share / 2 / size * elements * 4 for each in lost)
    assert all(0 <= one[0].lost_energy_share < share for one in found)
    for rank in range(1, size):
        np.testing.assert_array_equal(arrays[rank][0], arrays[0][0])


def test_mistakes__are_refused() -> None:
    with ring(TCP, 2) as endpoints:
        reducer = RingAllReduce(Mailbox(endpoints[0]), 0, 2)
        reducer.declare(0, 10)
        with pytest.raises(ValueError, match="tensor 1 was not declared"):
            reducer.start(1, 0, np.zeros(10, np.float32))
        for wrong in (np.zeros(11, np.float32), np.zeros(10, np.float16), np.zeros(20, np.float32)[::2]):
            with pytest.raises(ValueError, match="10 contiguous float32"):
                reducer.start(0, 0, wrong)
        reducer.start(0, 0, np.zeros(10, np.float32))
        with pytest.raises(ValueError, match="tensor 0 is under way"):
            reducer.start(0, 1, np.zeros(10, np.float32))
        with pytest.raises(ValueError, match="nothing to reduce"):
            reducer.declare(1, 0)
    with pytest.raises(ValueError, match="has no rank 2"):
        RingAllReduce(Mailbox(endpoints[0]), 2, 2)


def test_a_rank_that_never_starts__is_named_with_the_tensor() -> None:
    with ring(TCP, 2) as endpoints:
        reducers = [RingAllReduce(Mailbox(endpoint), rank, 2) for rank, endpoint in enumerate(endpoints)]
        for reducer in reducers:
            reducer.declare(3, 1_000)
        reducers[0].start(3, 7, np.zeros(1_000, np.float32))
        assert reducers[0].wait(0.2) == []
        names = reducers[0].missing()
        assert "the reduce-scatter of tensor 3 (iteration 7), chunk 0, from rank 1" in names
        endpoints[1].close()
        with pytest.raises(TransportError, match="rank 1 is gone"):
            reducers[0].wait(5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("size", [1, 2, 7])
def test_chunks__are_whole_packets_that_differ_by_one_at_most(dtype: Dtype, size: int) -> None:
    width = packet_elements(dtype)
    for elements in (1, width, 5 * width + 1, 100 * width):
        cuts = chunk_cuts(elements, size, dtype)
        assert (cuts[0], cuts[-1], len(cuts)) == (0, elements, size + 1)
        assert all(cut % width == 0 for cut in cuts[:-1] if cut < elements)
        counts = [-(-(b - a) // width) for a, b in pairwise(cuts)]
        assert max(counts) - min(counts) <= 1


def test_segments__make_hops_of_about_the_wanted_size() -> None:
    elements, size = 100 * 2**20 // 4, 4
    cuts = segment_cuts(elements, size)
    hops = [(b - a) * 4 / size for a, b in pairwise(cuts)]
    assert (cuts[0], cuts[-1]) == (0, elements)
    assert all(SEGMENT_HOP_BYTES / 2 < hop < SEGMENT_HOP_BYTES * 2 for hop in hops)
    assert segment_cuts(100, size) == [0, 100]


def test_hop_bound__adds_up_to_less_than_the_whole() -> None:
    assert hop_bound(Bound(0.1, 0.3), 4) == Bound(0.1 / 6, 0.3 / 6)
    assert hop_bound(Bound(0.1), 4).energy_share == 1, "no limit stays none"
    assert hop_bound(RELIABLE, 1) == RELIABLE


def test_neighbours__every_pair_is_connected_once() -> None:
    for size in (1, 2, 3, 8):
        pairs = [frozenset((rank, peer)) for rank in range(size) for peer in connects_to(rank, size)]
        assert len(pairs) == len(set(pairs))
        assert set(pairs) == {frozenset((rank, peer)) for rank in range(size) for peer in neighbours(rank, size)}
