"""Compressed training over real sockets: what comes out is what the compressors make in one process; what travels are
their codes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from coding import METHODS, Bench, known_knobs
from loopback import TCP, mailboxes, ranks, together

from dlcp.model.transport.settings import Compression, TransportSettings
from dlcp.patterns.base import Traffic
from dlcp.transport.aggregation.coded_tensors import CodedJob
from dlcp.transport.aggregation.compressed_server import CompressedServer, CompressedWorker
from dlcp.transport.compression import compressor_class
from dlcp.transport.contract.endpoint import Completion, Endpoint, Floats, Leg, TransportError
from dlcp.transport.contract.optimizer import Sgd
from dlcp.transport.contract.tensors import plan_tensors

LAYERS = [("front", 500), ("middle", 12_000), ("back", 3_000), ("bias", 7)]
BUCKET_BYTES = 16_000
WORKERS, SERVERS, ITERATIONS, SEED = 3, 2, 3, 5
RATIO = 0.05
OPTIMIZER = Sgd(0.1, 0.9, ITERATIONS, warmup_iterations=1)
DLCP = TransportSettings(kind="dlcp", priority_queues=3, loss_bound=0.1)
LOSSY = [method for method in METHODS if compressor_class(method).tolerates_loss]


def gradient(worker: int, iteration: int, elements: int) -> Floats:
    return np.random.default_rng([worker, iteration]).standard_normal(elements, np.float32)


def initial(elements: int) -> Floats:
    return np.random.default_rng(99).standard_normal(elements, np.float32)


def coded_job(method: str, settings: TransportSettings = TCP) -> CodedJob:
    compression = Compression(method=method, knobs=known_knobs(method, ratio=RATIO))
    own = settings.model_copy(update={"compression": compression})
    return CodedJob(own, plan_tensors(LAYERS, BUCKET_BYTES, SERVERS, own), WORKERS, ITERATIONS)


def train(endpoints: list[Endpoint], job: CodedJob) -> tuple[list[list[Floats]], list[Completion], CompressedWorker]:
    """Each worker's parameters after each iteration, the servers' completions, and the first worker."""
    elements = job.tensors[-1].stop
    worker_ranks, server_ranks = list(range(WORKERS)), list(range(WORKERS, WORKERS + SERVERS))
    traffic = Traffic(WORKERS, SERVERS, job.tensors, job.settings, ITERATIONS)
    boxes = mailboxes(endpoints, "parameter-server", traffic)
    servers = [
        CompressedServer(boxes[rank], job, job.compressors(-1, SEED, 0.0), index, worker_ranks, stall_timeout_s=10)
        for index, rank in enumerate(server_ranks)
    ]
    for server in servers:
        server.expect_first()
    workers = [
        CompressedWorker(
            boxes[rank],
            job,
            job.compressors(rank, SEED, OPTIMIZER.momentum),
            server_ranks,
            initial(elements),
            job.update(OPTIMIZER),
            stall_timeout_s=10,
        )
        for rank in worker_ranks
    ]

    def work(rank: int) -> list[Floats]:
        worker, found = workers[rank], []
        for iteration in range(ITERATIONS):
            full = gradient(rank, iteration, elements)
            for number in reversed(range(len(job.tensors))):
                tensor = job.tensors[number]
                worker.gradient_slot(number)[:] = full[tensor.start : tensor.stop]
                assert worker.push(iteration, number) >= 0
            worker.finish()
            found.append(worker.parameters.copy())
        return found

    try:
        results = together([*(lambda r=rank: work(r) for rank in worker_ranks), *(server.run for server in servers)])
    finally:
        together([worker.close for worker in workers])
    return results[:WORKERS], [one for server in servers for one in server.completions], workers[0]


def reference(job: CodedJob) -> tuple[list[Floats], Counter[tuple[int, Leg, int]]]:
    """Parameters after each iteration, in one process; and how many messages of how many bytes each tensor takes."""
    elements, optimizer = job.tensors[-1].stop, job.update(OPTIMIZER)
    parameters = initial(elements)
    benches = [
        Bench(
            job.compression.method,
            tensor.elements,
            WORKERS,
            momentum=OPTIMIZER.momentum,
            iterations=ITERATIONS,
            fixed=job.settings.kind != "tcp",
            tensor=number,
            seed=SEED,
            **known_knobs(job.compression.method, ratio=RATIO),
        )
        for number, tensor in enumerate(job.tensors)
    ]
    states = [optimizer.state(n, parameters[tensor.start : tensor.stop]) for n, tensor in enumerate(job.tensors)]
    found, messages = [], Counter[tuple[int, Leg, int]]()
    for iteration in range(ITERATIONS):
        full = [gradient(worker, iteration, elements) for worker in range(WORKERS)]
        for number, tensor in enumerate(job.tensors):
            place = slice(tensor.start, tensor.stop)
            mean = benches[number].exchange(iteration, [one[place] for one in full])
            optimizer.step(iteration, parameters[place], states[number], mean)
            for leg, sizes in ((Leg.PUSH, benches[number].pushed), (Leg.PULL, benches[number].pulled)):
                for size in sizes:
                    messages[number, leg, size] += WORKERS
        found.append(parameters.copy())
    return found, messages


@pytest.mark.parametrize(
    ("settings", "method"),
    [(TCP, method) for method in METHODS] + [(DLCP, method) for method in LOSSY],
    ids=lambda value: value if isinstance(value, str) else value.kind,
)
def test_training__equals_one_process_bit_for_bit(settings: TransportSettings, method: str) -> None:
    """Over loopback nothing is lost, so a bound of 10 % changes nothing either."""
    job = coded_job(method, settings)
    with ranks(settings, WORKERS, SERVERS) as endpoints:
        found, completions, worker = train(endpoints, job)
    expected, messages = reference(job)
    for one in found:
        for after, wanted in zip(one, expected, strict=True):
            np.testing.assert_array_equal(after, wanted)
    seen = Counter((job.place(c.key.tensor)[0], c.key.leg, c.bytes) for c in completions)
    if method != "dgc":  # whose workers send codes of different lengths
        assert seen == messages
    assert sum(seen.values()) == sum(messages.values())
    assert sorted(worker.codec_s) == list(range(ITERATIONS))
    assert all(spent_s > 0 for spent_s in worker.codec_s.values())


@pytest.mark.parametrize(
    ("method", "knobs", "rate", "momentum"),
    [
        ("topk", {}, 0.1, 0.9),
        ("topk", {"step_share": 0.5}, 0.05, 0.9),
        ("dgc", {}, 0.1, 0.0),
        ("randomk", {}, 0.1, 0.0),
        ("signsgd", {}, 0.001, 0.0),
        ("powersgd", {}, 0.03, 0.9),
        ("powersgd", {"step_share": 1.0}, 0.1, 0.9),
    ],
)
def test_update__has_the_methods_step_and_no_momentum_twice(
    method: str, knobs: dict[str, float], rate: float, momentum: float
) -> None:
    job = coded_job(method)
    compression = job.compression.model_copy(update=knobs)
    found = replace(job, settings=job.settings.model_copy(update={"compression": compression})).update(OPTIMIZER)
    assert found.learning_rate == pytest.approx(rate)
    assert found.momentum == momentum


def test_numbers__name_every_code_once() -> None:
    job = coded_job("powersgd")
    numbers = {
        job.number(tensor, round_, leg): (tensor, round_)
        for tensor in range(len(job.tensors))
        for round_ in range(len(job.exchanges(tensor)))
        for leg in Leg
    }
    assert len(numbers) == 2 * sum(len(job.exchanges(tensor)) for tensor in range(len(job.tensors)))
    assert all(job.place(number) == place for number, place in numbers.items())


def test_worker__whose_server_is_gone_says_so() -> None:
    job = coded_job("topk")
    with ranks(TCP, 1, 1) as endpoints:
        alone = replace(job, workers=1)
        traffic = Traffic(1, 1, job.tensors, job.settings, ITERATIONS)
        (box,) = mailboxes([endpoints[0]], "parameter-server", traffic)
        worker = CompressedWorker(
            box,
            alone,
            alone.compressors(0, SEED, 0.0),
            [1, 1],
            initial(job.tensors[-1].stop),
            OPTIMIZER,
            stall_timeout_s=10,
        )
        endpoints[1].close()
        worker.gradient_slot(0)[:] = 1

        def exchange() -> None:
            worker.push(0, 0)
            worker.finish()

        with pytest.raises(TransportError, match="rank 1 is gone"):
            exchange()
        worker.close()
