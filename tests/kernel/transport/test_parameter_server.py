"""Workers and servers over real sockets, both transports: what comes out is what a single process would compute."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import TCP, mailboxes, ranks, together

from dlcp.model.transport.settings import TransportSettings
from dlcp.patterns.base import Traffic
from dlcp.transport.aggregation.parameter_server import Server, Worker, parameters_crc32
from dlcp.transport.contract.endpoint import Completion, Endpoint, Floats, MessageKey, Placement, TransportError
from dlcp.transport.contract.optimizer import Sgd
from dlcp.transport.contract.tensors import Tensor, plan_tensors

LAYERS = [("front", 500), ("middle", 12_000), ("back", 3_000), ("bias", 7)]
BUCKET_BYTES = 16_000
WORKERS, SERVERS, ITERATIONS = 3, 2, 4
LOSSLESS = [TCP, TransportSettings(kind="dlcp", loss_bound=0.0, priority_queues=3)]
SCHEDULED = [
    TCP.model_copy(update={"tcp_priority": True, "tcp_low_water_bytes": 4_000}),
    TCP.model_copy(update={"tcp_priority": True, "tcp_credit_bytes": 20_000}),
]


def gradient(worker: int, iteration: int, elements: int) -> Floats:
    return np.random.default_rng([worker, iteration]).standard_normal(elements, np.float32)


def initial(elements: int) -> Floats:
    return np.random.default_rng(99).standard_normal(elements, np.float32)


def reference(optimizer: Sgd, elements: int) -> list[Floats]:
    """Parameters after each iteration, computed in one process: gradients summed in rank order, in float32."""
    parameters, velocity = initial(elements), np.zeros(elements, np.float32)
    found = []
    for iteration in range(optimizer.iterations):
        total = gradient(0, iteration, elements)
        for worker in range(1, WORKERS):
            total = total + gradient(worker, iteration, elements)
        mean = total / np.float32(WORKERS)
        velocity = np.float32(optimizer.momentum) * velocity + mean
        parameters = parameters - np.float32(optimizer.rate(iteration)) * velocity
        found.append(parameters)
    return found


def train(
    endpoints: list[Endpoint], tensors: list[Tensor], optimizer: Sgd, count: int = SERVERS, **options: Any
) -> tuple[list[list[Floats]], list[Server]]:
    """Each worker's parameters after each iteration, and the servers."""
    elements = tensors[-1].stop
    worker_ranks, server_ranks = list(range(WORKERS)), list(range(WORKERS, WORKERS + count))
    traffic = Traffic(WORKERS, count, tensors, LOSSLESS[0], optimizer.iterations)
    boxes = mailboxes(endpoints, "parameter-server", traffic)
    servers = [
        Server(boxes[rank], tensors, index, worker_ranks, initial(elements), optimizer, stall_timeout_s=10, **options)
        for index, rank in enumerate(server_ranks)
    ]
    for server in servers:
        server.expect_first()

    def work(rank: int) -> list[Floats]:
        worker = Worker(boxes[rank], tensors, server_ranks, initial(elements), stall_timeout_s=10)
        found = []
        for iteration in range(optimizer.iterations):
            worker.await_parameters(range(len(tensors)))
            full = gradient(rank, iteration, elements)
            for number in reversed(range(len(tensors))):
                worker.gradient_slot(number)[:] = full[tensors[number].start : tensors[number].stop]
                worker.push(iteration, number)
            worker.finish()
            found.append(worker.parameters.copy())
        return found

    results = together([*(lambda r=rank: work(r) for rank in worker_ranks), *(server.run for server in servers)])
    return results[:WORKERS], servers


@pytest.mark.parametrize("settings", [*LOSSLESS, *SCHEDULED], ids=["tcp", "dlcp", "p3", "bytescheduler"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_training__equals_one_process_bit_for_bit(settings: TransportSettings, momentum: float) -> None:
    optimizer = Sgd(0.1, momentum, ITERATIONS, warmup_iterations=1)
    tensors = plan_tensors(LAYERS, BUCKET_BYTES, SERVERS, settings)
    assert {tensor.server for tensor in tensors} == {0, 1}
    with ranks(settings, WORKERS, SERVERS) as endpoints:
        found, _ = train(endpoints, tensors, optimizer)
    expected = reference(optimizer, tensors[-1].stop)
    for worker in found:
        for after, wanted in zip(worker, expected, strict=True):
            np.testing.assert_array_equal(after, wanted)


def test_training__servers_note_every_push_and_pull() -> None:
    tensors = plan_tensors(LAYERS, BUCKET_BYTES, SERVERS, LOSSLESS[0])
    with ranks(LOSSLESS[0], WORKERS, SERVERS) as endpoints:
        _, servers = train(endpoints, tensors, Sgd(0.1, 0.0, ITERATIONS))
    completions = [c for server in servers for c in server.completions]
    assert len(completions) == 2 * len(tensors) * WORKERS * ITERATIONS
    assert sum(c.received for c in completions) == len(completions) // 2


class Holes:
    """An endpoint at a server that leaves a hole in one worker's gradients, as a lossy push leg does."""

    def __init__(self, below: Endpoint, peer: int, hole: slice, iterations: tuple[int, ...] = (0,)) -> None:
        self._below, self._peer, self._hole, self._iterations = below, peer, hole, iterations
        self._buffers: dict[MessageKey, tuple[Floats, Floats, Any]] = {}

    def __getattr__(self, name: str) -> object:
        return getattr(self._below, name)

    def receive(
        self, peer: int, key: MessageKey, buffer: Floats, *, placement: Placement, contributors: Any, **more: Any
    ) -> None:
        if peer == self._peer and key.iteration in self._iterations:
            keeps = placement is Placement.KEEP
            self._buffers[key] = buffer, buffer.copy() if keeps else np.zeros_like(buffer), contributors
        self._below.receive(peer, key, buffer, placement=placement, contributors=contributors, **more)

    def wait(self, timeout_s: float) -> list[Completion]:
        found = self._below.wait(timeout_s)
        for completion in found:
            if completion.received and completion.peer == self._peer and completion.key in self._buffers:
                buffer, held, contributors = self._buffers[completion.key]
                buffer[self._hole] = held[self._hole]
                if contributors is not None:
                    contributors[self._hole.start // 360 : self._hole.stop // 360] = 0
        return found


def test_holes__count_as_zero_and_divide_by_all_workers() -> None:
    settings, hole = LOSSLESS[0], slice(0, 100)
    tensors = plan_tensors(LAYERS, BUCKET_BYTES, SERVERS, settings)
    with ranks(settings, WORKERS, SERVERS) as endpoints:
        for rank in range(WORKERS, WORKERS + SERVERS):
            endpoints[rank] = Holes(endpoints[rank], 1, hole)  # type: ignore[assignment, call-overload]
        found, _ = train(endpoints, tensors, Sgd(1.0, 0.0, 1, decays=False))
    elements = tensors[-1].stop
    first = tensors[0].start
    moved = initial(elements) - found[0][0]
    inside, outside = slice(first, first + 100), slice(first + 100, tensors[0].stop)
    expected_inside = (gradient(0, 0, elements) + gradient(2, 0, elements)) / 3
    expected_outside = sum(gradient(worker, 0, elements) for worker in range(3)) / np.float32(3)
    np.testing.assert_allclose(moved[inside], expected_inside[inside], atol=1e-5)
    np.testing.assert_allclose(moved[outside], expected_outside[outside], atol=1e-5)
    for worker in found[1:]:
        np.testing.assert_array_equal(worker[0], found[0][0])


@pytest.mark.parametrize("holes", ["rescale", "last"])
def test_holes__rescaled_by_those_that_arrived_or_filled_with_the_last(holes: Literal["rescale", "last"]) -> None:
    """Worker 1 loses the first packet of a tensor's gradient in the second iteration; all replicas agree on it."""
    settings, hole, rate = LOSSLESS[0], slice(0, 360), 1.0
    tensors = plan_tensors([("only", 1_000)], 4_000, 1, settings)
    with ranks(settings, WORKERS, 1) as endpoints:
        endpoints[WORKERS] = Holes(endpoints[WORKERS], 1, hole, (1,))  # type: ignore[assignment, call-overload]
        found, _ = train(endpoints, tensors, Sgd(rate, 0.0, 2, decays=False), count=1, holes=holes)
    moved = found[0][0] - found[0][1]
    lost_is = gradient(1, 0, 1_000) if holes == "last" else (gradient(0, 1, 1_000) + gradient(2, 1, 1_000)) / 2
    inside = (gradient(0, 1, 1_000) + lost_is + gradient(2, 1, 1_000)) / 3
    outside = sum(gradient(worker, 1, 1_000) for worker in range(3)) / np.float32(3)
    np.testing.assert_allclose(moved[hole], inside[hole], atol=1e-5)
    np.testing.assert_allclose(moved[360:], outside[360:], atol=1e-5)
    for worker in found[1:]:
        np.testing.assert_array_equal(worker[1], found[0][1])


def test_server__that_waits_in_vain_says_for_what() -> None:
    settings = LOSSLESS[0]
    tensors = plan_tensors([("only", 1000)], 4_000, 1, settings)
    with ranks(settings, 2, 1) as endpoints:
        (box,) = mailboxes([endpoints[2]], "parameter-server", Traffic(2, 1, tensors, settings, 1))
        server = Server(box, tensors, 0, [0, 1], initial(1000), Sgd(0.1, 0.0, 1), stall_timeout_s=0.2)
        server.expect_first()
        with pytest.raises(TransportError, match=r"nothing completed for 0.2 s; waiting for the push of tensor 0 \(it"):
            server.run()


def test_worker__that_waits_in_vain_says_for_what() -> None:
    settings = LOSSLESS[0]
    tensors = plan_tensors([("only", 1000)], 4_000, 1, settings)
    with ranks(settings, 1, 1) as endpoints:
        box, _ = mailboxes(endpoints, "parameter-server", Traffic(1, 1, tensors, settings, 1))
        worker = Worker(box, tensors, [1], initial(1000), stall_timeout_s=0.2)
        worker.push(0, 0)
        with pytest.raises(TransportError, match="waiting for the pull of tensor 0 from rank 1"):
            worker.await_parameters([0])


def test_crc32__tells_one_bit_apart() -> None:
    one = initial(1000)
    other = one.copy()
    other.view(np.uint32)[500] ^= 1
    assert parameters_crc32(one) == parameters_crc32(one.copy())
    assert parameters_crc32(one) != parameters_crc32(other)


@given(st.floats(1e-3, 1), st.integers(2, 500), st.integers(0, 50))
def test_sgd__rate_rises_to_its_peak_then_falls_towards_zero(peak: float, iterations: int, warmup: int) -> None:
    warmup = min(warmup, iterations - 1)
    rates = [Sgd(peak, 0.9, iterations, warmup_iterations=warmup).rate(i) for i in range(iterations)]
    assert rates[:warmup] == sorted(rates[:warmup])
    assert rates[warmup] == pytest.approx(peak)
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)
    assert 0 < rates[-1] <= peak
