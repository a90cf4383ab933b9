"""Workers round a ring, over real sockets: the same training as with servers, and errors that say what is missing."""

from __future__ import annotations

import numpy as np
import pytest
from loopback import TCP, mailboxes, ring, together

from dlcp.model.transport.settings import TransportSettings
from dlcp.patterns import pattern_of
from dlcp.patterns.base import Traffic
from dlcp.transport.aggregation.ring_worker import RingWorker
from dlcp.transport.contract.endpoint import Endpoint, Floats, Leg, TransportError
from dlcp.transport.contract.loss_class import LossClass
from dlcp.transport.contract.optimizer import Sgd
from dlcp.transport.contract.tensors import plan_tensors

LAYERS = [("front", 500), ("middle", 12_000), ("back", 3_000), ("bias", 7)]
ELEMENTS = sum(elements for _, elements in LAYERS)
SIZE, ITERATIONS = 3, 4
LOSSLESS = [TCP, TransportSettings(kind="dlcp", priority_queues=3)]
SCHEDULED = TCP.model_copy(update={"tcp_priority": True, "tcp_credit_bytes": 8_000})


def gradient(worker: int, iteration: int) -> Floats:
    return np.random.default_rng([worker, iteration]).standard_normal(ELEMENTS, np.float32)


def initial() -> Floats:
    return np.random.default_rng(99).standard_normal(ELEMENTS, np.float32)


def workers(endpoints: list[Endpoint], settings: TransportSettings, **options: float) -> list[RingWorker]:
    tensors, sgd = plan_tensors(LAYERS, 16_000, 1, settings), Sgd(0.1, 0.9, ITERATIONS, warmup_iterations=1)
    boxes = mailboxes(endpoints, "ring", Traffic(SIZE, 0, tensors, settings, ITERATIONS))
    return [
        RingWorker(box, tensors, rank, SIZE, initial(), sgd, settings.holes, **options)
        for rank, box in enumerate(boxes)
    ]


def train(worker: RingWorker, rank: int, settings: TransportSettings) -> Floats:
    tensors = plan_tensors(LAYERS, 16_000, 1, settings)
    for iteration in range(ITERATIONS):
        full = gradient(rank, iteration)
        for number in reversed(range(len(tensors))):
            worker.gradient_slot(number)[:] = full[tensors[number].start : tensors[number].stop]
            worker.push(iteration, number)
    worker.finish()
    return worker.parameters


@pytest.mark.parametrize("settings", [*LOSSLESS, SCHEDULED], ids=["tcp", "dlcp", "bytescheduler"])
def test_training__equals_one_process(settings: TransportSettings) -> None:
    sgd = Sgd(0.1, 0.9, ITERATIONS, warmup_iterations=1)
    expected = initial()
    velocity = sgd.state(0, expected)
    for iteration in range(ITERATIONS):
        mean = sum(gradient(worker, iteration) for worker in range(SIZE)) / np.float32(SIZE)
        sgd.step(iteration, expected, velocity, mean)
    with ring(settings, SIZE) as endpoints:
        found = workers(endpoints, settings)
        parameters = together([lambda r=rank: train(found[r], r, settings) for rank in range(SIZE)])
        for worker in found:
            worker.close()
    for one in parameters[1:]:
        np.testing.assert_array_equal(one, parameters[0])
    np.testing.assert_allclose(parameters[0], expected, rtol=1e-4, atol=1e-6)  # a chunk's sum begins at another rank


def test_worker__that_waits_in_vain_says_for_what() -> None:
    with ring(TCP, SIZE) as endpoints:
        found = workers(endpoints, TCP, stall_timeout_s=0.3)
        found[0].push(0, 2)
        with pytest.raises(TransportError, match=r"for 0.3 s; waiting for .* of tensor 2 \(iteration 0\), chunk"):
            found[0].await_parameters([2])
        for worker in found:
            worker.close()


def test_worker__whose_neighbour_is_gone_names_it() -> None:
    with ring(TCP, SIZE) as endpoints:
        found = workers(endpoints, TCP)
        found[0].push(0, 0)
        found[2].close()
        endpoints[2].close()
        with pytest.raises(TransportError, match="rank 2 is gone"):
            found[0].await_parameters([0])
        for worker in found[:2]:
            worker.close()


def test_worker__cannot_fill_holes_with_the_last_gradient() -> None:
    with ring(TCP, SIZE) as endpoints, pytest.raises(ValueError, match="no worker's last gradient"):
        workers(endpoints, TCP.model_copy(update={"holes": "last"}))


def test_chunks__too_small_to_lose_anything_must_arrive() -> None:
    settings = TransportSettings(kind="dlcp", must_arrive_below_packets=8)
    tensors = plan_tensors([("only", 360 * 8 * 4)], 10**9, 1, settings)
    for size, loss in ((4, LossClass.BOUNDED), (5, LossClass.MUST_ARRIVE)):
        messages = pattern_of("ring").messages(Traffic(size, 0, tensors, settings, 1))
        assert {message.loss for message in messages if message.leg is Leg.PUSH} == {loss}
