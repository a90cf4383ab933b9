"""Transpose all-reduce over real sockets: what every rank ends with, whatever the sizes, the order and the losses."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from loopback import TCP, mailboxes, together, transpose

from dlcp.model.transport.settings import TransportSettings
from dlcp.model.transport.stages import TimeBounds
from dlcp.patterns.base import Traffic
from dlcp.transport.aggregation.optireduce_timeouts import StageTimes
from dlcp.transport.aggregation.ring import AllReduced
from dlcp.transport.aggregation.transpose import TransposeAllReduce
from dlcp.transport.aggregation.transpose_worker import TransposeWorker
from dlcp.transport.contract.endpoint import (
    Completion,
    Droppable,
    Endpoint,
    Floats,
    Leg,
    MessageKey,
    TransportError,
    Values,
)
from dlcp.transport.contract.mailbox import Mailbox
from dlcp.transport.contract.optimizer import Sgd
from dlcp.transport.contract.tensors import Tensor, plan_tensors

DLCP = TransportSettings(kind="dlcp")
TRANSPORTS = [pytest.param(TCP, id="tcp"), pytest.param(DLCP, id="dlcp")]
SIZES = [1, 7, 360, 361, 4 * 360, 5_000, 100_001]
ITERATIONS = 4


def whole_numbers(rank: int, elements: int) -> Floats:
    """Small whole numbers: sums of a few are exact."""
    return np.random.default_rng([rank, elements]).integers(-8, 9, elements).astype(np.float32)


def take(reducer: TransposeAllReduce, tensors: int, timeout_s: float = 20.0) -> list[AllReduced]:
    """The next so many results, and the end of all that was sent."""
    found: list[AllReduced] = []
    deadline_s = time.monotonic() + timeout_s
    while len(found) < tensors or reducer.missing():
        assert time.monotonic() < deadline_s, f"{reducer.missing()} after {timeout_s} s"
        found += reducer.wait(1.0)
    return found


def reducers_of(
    endpoints: list[Endpoint], sizes: list[int], settings: TransportSettings, **options: Any
) -> list[TransposeAllReduce]:
    tensors = [Tensor(0, elements, 0, 0, 0, queue=3, droppable=Droppable.NONE) for elements in sizes]
    boxes = mailboxes(endpoints, "transpose", Traffic(len(endpoints), 0, tensors, settings, ITERATIONS))
    found = [TransposeAllReduce(box, rank, len(endpoints), **options) for rank, box in enumerate(boxes)]
    for reducer in found:
        for tensor, elements in enumerate(sizes):
            reducer.add(tensor, elements)
    return found


def reduce_all(reducers: list[TransposeAllReduce], arrays: list[list[Floats]], iteration: int = 0) -> list[Any]:
    """All-reduce arrays[rank][tensor], all tensors at once: of each rank what it is told and what it holds."""

    def one(rank: int) -> tuple[list[AllReduced], list[Floats]]:
        for tensor in reversed(range(len(arrays[rank]))):
            reducers[rank].start(tensor, iteration, arrays[rank][tensor])
        over = take(reducers[rank], len(arrays[rank]))
        return over, [reducers[rank].result(tensor).copy() for tensor in range(len(arrays[rank]))]

    return together([lambda rank=rank: one(rank) for rank in range(len(reducers))])


@pytest.mark.parametrize("settings", TRANSPORTS)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_mean__of_every_size_is_the_same_at_every_rank(settings: TransportSettings, size: int) -> None:
    """Tensors of fewer packets than ranks leave some ranks without a chunk of their own."""
    arrays = [[whole_numbers(rank, elements) for elements in SIZES] for rank in range(size)]
    expected = [sum(whole_numbers(rank, elements) for rank in range(size)) / np.float32(size) for elements in SIZES]
    with transpose(settings, size) as endpoints:
        found = reduce_all(reducers_of(endpoints, SIZES, settings), arrays)
    for over, results in found:
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, wanted)
        assert sorted(one.tensor for one in over) == list(range(len(SIZES)))
        assert all(one.lost_bytes == 0 and one.start_s <= one.end_s <= time.monotonic() for one in over)
    for rank, (_, arrays_after) in enumerate(found):
        assert arrays[rank][0] is not arrays_after[0]
        np.testing.assert_array_equal(arrays[rank][-1], whole_numbers(rank, SIZES[-1])), "what is sent stays as it is"


@pytest.mark.parametrize("settings", TRANSPORTS)
def test_messages__go_from_their_origin_to_their_owner_and_back(settings: TransportSettings) -> None:
    size, elements = 4, 40 * 360
    with transpose(settings, size) as endpoints:
        reducers = reducers_of(endpoints, [elements], settings)
        reduce_all(reducers, [[whole_numbers(rank, elements)] for rank in range(size)])
    for rank, reducer in enumerate(reducers):
        moved = sorted((c.key.leg, c.received, c.peer, c.key.tensor, c.bytes) for c in reducer.completions)
        piece = elements * 4 // size
        others = [other for other in range(size) if other != rank]
        assert moved == sorted(
            [(Leg.PUSH, False, other, other, piece) for other in others]
            + [(Leg.PUSH, True, other, rank, piece) for other in others]
            + [(Leg.PULL, False, other, rank, piece) for other in others]
            + [(Leg.PULL, True, other, other, piece) for other in others]
        )


@pytest.mark.parametrize("holes", ["zero", "rescale", "last"])
def test_holes__in_pieces_leave_all_ranks_with_the_same_bits(holes: Any) -> None:
    """An eager stop loses about what it may lose. All contribute ones: a mean is how many of the ranks arrived."""
    settings = TransportSettings(kind="dlcp", loss_bound=0.4, stop="eager", holes=holes)
    size, elements = 3, 90 * 360
    lost = 0
    with transpose(settings, size) as endpoints:
        reducers = reducers_of(endpoints, [elements], settings, holes=holes)
        for iteration in range(ITERATIONS):
            ones = [[np.ones(elements, np.float32)] for _ in range(size)]
            found = reduce_all(reducers, ones, iteration)
            np.testing.assert_array_equal(found[1][1][0], found[0][1][0])
            np.testing.assert_array_equal(found[2][1][0], found[0][1][0])
            lost += sum(one.lost_bytes for over, _ in found for one in over)
            values = set(np.unique((found[0][1][0] * size).round(4)))
            assert values <= {"zero": {1, 2, 3}, "rescale": {3}, "last": {1, 2, 3}}[holes], "own values always count"
    assert lost > 0
    assert all(c.lost_bytes == 0 for r in reducers for c in r.completions if c.key.leg is Leg.PULL)


def test_last__fills_a_hole_with_the_values_of_the_iteration_before() -> None:
    settings = TransportSettings(kind="dlcp", loss_bound_schedule=((0.0, 0.0), (0.25, 0.4)), stop="eager", holes="last")
    size, elements = 2, 90 * 360
    with transpose(settings, size) as endpoints:
        reducers = reducers_of(endpoints, [elements], settings, holes="last")
        reduce_all(reducers, [[np.full(elements, 8, np.float32)] for _ in range(size)])
        found = reduce_all(reducers, [[np.full(elements, 2, np.float32)] for _ in range(size)], 1)
    assert set(np.unique(found[0][1][0])) == {2.0, 5.0}, "2 and 2, or 2 and the 8 of before"


def test_times__of_a_measured_result_begin_when_this_rank_has_its_own_sum() -> None:
    """The legs follow each other: measured, both together take no longer than the whole."""
    time_bounds = TimeBounds(warmup_iterations=1)
    settings = TransportSettings(kind="dlcp", time_bounds=time_bounds, must_arrive_below_packets=0)
    size, elements = 3, 30 * 360
    times = [StageTimes(time_bounds) for _ in range(size)]
    with transpose(settings, size) as endpoints:
        reducers = [reducers_of(endpoints, [elements], settings, times=times[rank])[rank] for rank in range(size)]
        found = reduce_all(reducers, [[np.full(elements, rank + 1, np.float32)] for rank in range(size)])
    for (over, _), one in zip(found, times, strict=True):
        assert one.hard_s(Leg.PUSH) > 0
        assert one.hard_s(Leg.PUSH) + one.hard_s(Leg.PULL) <= over[0].end_s - over[0].start_s + 1e-6


@pytest.mark.parametrize("repair", [False, True])
def test_times__close_a_stage_without_the_rank_that_is_late(repair: bool) -> None:
    """Rank 2 begins only when the others are through. In its piece of their sums it is missing; of its own sum each of
    them keeps what it had. Nothing is left under way, neither here nor there."""
    time_bounds = TimeBounds(warmup_iterations=1, repair=repair)
    settings = TransportSettings(kind="dlcp", time_bounds=time_bounds, must_arrive_below_packets=0)
    size, elements, late = 3, 30 * 360, 2
    through = threading.Barrier(size)
    times = [StageTimes(time_bounds) for _ in range(size)]
    with transpose(settings, size) as endpoints:
        reducers = []
        for rank in range(size):
            reducers += reducers_of(endpoints, [elements], settings, times=times[rank])[rank : rank + 1]
        reduce_all(reducers, [[np.full(elements, rank + 1, np.float32)] for rank in range(size)])
        for one in times:
            for leg in Leg:
                one.over(leg, 0, 0.3, 1.0)  # as if that had been the slowest of the measured stages

        def second(rank: int) -> tuple[AllReduced, Floats]:
            if rank == late:
                through.wait(20)
            reducers[rank].start(0, 1, np.full(elements, rank + 1, np.float32))
            found: list[AllReduced] = []
            while not found:
                found += reducers[rank].wait(1.0)
            result = reducers[rank].result(0).copy()
            if rank != late:
                through.wait(20)
            while reducers[rank].missing():
                reducers[rank].wait(1.0)
            return found[0], result

        found = together([lambda rank=rank: second(rank) for rank in range(size)])
    chunks = [[set(part) for part in np.split(result, 3)] for _, result in found]
    assert chunks == [[{1.0}, {1.0}, {1.0}], [{1.0}, {1.0}, {2.0}], [{1.0}, {1.0}, {2.0}]]
    piece = elements * 4 // 3
    assert [one.lost_bytes for one, _ in found] == [2 * piece, 2 * piece, 0]


class Counting:
    """An endpoint that notes how many sends of one tensor are under way at most."""

    def __init__(self, endpoint: Endpoint, size: int) -> None:
        self._endpoint = endpoint
        self._size = size
        self._under_way: dict[int, int] = {}
        self.most = 0
        self.first: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._endpoint, name)

    def send(self, peer: int, key: MessageKey, data: Values, **more: Any) -> None:
        tensor = key.tensor // self._size
        self._under_way[tensor] = self._under_way.get(tensor, 0) + 1
        self.most = max(self.most, self._under_way[tensor])
        if key.leg is Leg.PUSH:
            self.first.append(peer)
        self._endpoint.send(peer, key, data, **more)

    def wait(self, timeout_s: float) -> list[Completion]:
        found = self._endpoint.wait(timeout_s)
        for one in found:
            if not one.received:
                self._under_way[one.key.tensor // self._size] -= 1
        return found


@pytest.mark.parametrize(("at_once", "most"), [(1, 1), (2, 2)])
def test_at_once__limits_what_a_rank_sends_of_a_tensor_and_nobody_is_first_for_all(at_once: int, most: int) -> None:
    size, elements = 4, 400 * 360
    with transpose(DLCP, size) as endpoints:
        counting: list[Any] = [Counting(endpoint, size) for endpoint in endpoints]
        reducers = reducers_of(counting, [elements], DLCP, at_once=at_once)
        reduce_all(reducers, [[whole_numbers(rank, elements)] for rank in range(size)])
    assert [one.most for one in counting] == [most] * size
    assert [one.first for one in counting] == [[(rank + step) % size for step in (1, 2, 3)] for rank in range(size)]


def test_start__refuses_what_does_not_fit() -> None:
    with transpose(TCP, 2) as endpoints:
        reducer = reducers_of(endpoints, [500], TCP)[0]
        with pytest.raises(ValueError, match="tensor 3 was not declared"):
            reducer.start(3, 0, np.zeros(500, np.float32))
        with pytest.raises(ValueError, match="tensor 0 has 500 contiguous float32, not \\(499,\\) float32"):
            reducer.start(0, 0, np.zeros(499, np.float32))
        reducer.start(0, 0, np.zeros(500, np.float32))
        with pytest.raises(ValueError, match="under way: iteration 0"):
            reducer.start(0, 1, np.zeros(500, np.float32))
    with pytest.raises(ValueError, match="nobody to talk to"):
        TransposeAllReduce(Mailbox(endpoints[0]), 0, 1)


@pytest.mark.parametrize("settings", [TCP, DLCP], ids=["tcp", "dlcp"])
def test_hadamard__without_loss_is_the_same_training(settings: TransportSettings) -> None:
    size, coded = 3, settings.model_copy(update={"hadamard": True})
    parameters = {}
    for one in (settings, coded):
        with transpose(one, size) as endpoints:
            found = workers_of(endpoints, one)
            parameters[one.hadamard] = together(
                [lambda w=found[rank], r=rank, s=one: train(w, r, s) for rank in range(size)]
            )
            for worker in found:
                worker.close()
            assert {len(worker.codec_s) for worker in found} == {ITERATIONS * one.hadamard}
    for one in parameters[True]:
        np.testing.assert_array_equal(one, parameters[True][0])
        np.testing.assert_allclose(one, parameters[False][0], atol=1e-5)
    assert not np.array_equal(parameters[True][0], parameters[False][0]), "codes round otherwise"


LAYERS = [("front", 500), ("middle", 12_000), ("back", 3_000), ("bias", 7)]
ELEMENTS = sum(elements for _, elements in LAYERS)


def initial() -> Floats:
    return np.random.default_rng(99).standard_normal(ELEMENTS, np.float32)


def workers_of(endpoints: list[Endpoint], settings: TransportSettings, **options: float) -> list[TransposeWorker]:
    tensors, sgd = plan_tensors(LAYERS, 16_000, 1, settings), Sgd(0.1, 0.9, ITERATIONS, warmup_iterations=1)
    boxes = mailboxes(endpoints, "transpose", Traffic(len(endpoints), 0, tensors, settings, ITERATIONS))
    return [
        TransposeWorker(box, tensors, rank, len(endpoints), initial(), sgd, settings, settings.holes, **options)
        for rank, box in enumerate(boxes)
    ]


def gradient(worker: int, iteration: int) -> Floats:
    return np.random.default_rng([worker, iteration]).standard_normal(ELEMENTS, np.float32)


def train(worker: TransposeWorker, rank: int, settings: TransportSettings) -> Floats:
    tensors = plan_tensors(LAYERS, 16_000, 1, settings)
    for iteration in range(ITERATIONS):
        worker.await_parameters(range(len(tensors)))
        full = gradient(rank, iteration)
        for number in reversed(range(len(tensors))):
            worker.gradient_slot(number)[:] = full[tensors[number].start : tensors[number].stop]
            worker.push(iteration, number)
    worker.finish()
    return worker.parameters


@pytest.mark.parametrize("settings", TRANSPORTS)
def test_training__equals_one_process_bit_for_bit(settings: TransportSettings) -> None:
    """Sums are taken in rank order, at whichever rank: as one process takes them."""
    size = 3
    sgd = Sgd(0.1, 0.9, ITERATIONS, warmup_iterations=1)
    expected = initial()
    velocity = sgd.state(0, expected)
    for iteration in range(ITERATIONS):
        mean = sum(gradient(worker, iteration) for worker in range(size)) / np.float32(size)
        sgd.step(iteration, expected, velocity, mean)
    with transpose(settings, size) as endpoints:
        found = workers_of(endpoints, settings)
        parameters = together([lambda r=rank: train(found[r], r, settings) for rank in range(size)])
        for worker in found:
            worker.close()
    for one in parameters:
        np.testing.assert_array_equal(one, expected)


def test_worker__that_waits_in_vain_says_for_what() -> None:
    with transpose(TCP, 3) as endpoints:
        found = workers_of(endpoints, TCP, stall_timeout_s=0.3)
        found[0].push(0, 2)
        with pytest.raises(TransportError, match=r"for 0.3 s; waiting for the piece of tensor 2 \(iteration 0\) from "):
            found[0].await_parameters([2])
        for worker in found:
            worker.close()


def test_worker__whose_peer_is_gone_names_it() -> None:
    with transpose(TCP, 3) as endpoints:
        found = workers_of(endpoints, TCP)
        found[0].push(0, 0)
        found[2].close()
        endpoints[2].close()
        with pytest.raises(TransportError, match="rank 2 is gone"):
            found[0].await_parameters([0])
        for worker in found[:2]:
            worker.close()
