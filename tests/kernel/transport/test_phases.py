"""DBLP's announced bounds over real sockets: both ends of every message say the same, from the right iteration on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from loopback import agree, ranks, together

from dlcp.model.transport.loss import PhaseBound
from dlcp.model.transport.settings import TransportSettings
from dlcp.patterns import pattern_of
from dlcp.patterns.base import PlannedTerms, Traffic
from dlcp.transport.aggregation.dblp import PhaseServer, PhaseWorker
from dlcp.transport.contract.endpoint import Bound, Endpoint, Floats, Leg, MessageKey
from dlcp.transport.contract.mailbox import Mailbox
from dlcp.transport.contract.optimizer import Sgd
from dlcp.transport.contract.tensors import plan_tensors

LAYERS = [("front", 6_000), ("middle", 12_000), ("back", 5_000)]
WORKERS, SERVERS, ITERATIONS, EVERY = 2, 2, 14, 3
CRITICAL, RELAXED = 0.01, 0.41
RULE = PhaseBound(critical=CRITICAL, relaxed=RELAXED, drop=0.5, check_every=EVERY)
SETTINGS = TransportSettings(kind="dlcp", loss_bound=RELAXED, selective_drop="off", droppable_front=(), phases=RULE)
NORMS = [8.0] * 6 + [3.0] * 3 + [2.9] * 5
"""By iteration: the third check, after iteration 8, sees a drop of more than a half."""


class Watched:
    """An endpoint that notes the bound of every push that goes through it."""

    def __init__(self, below: Endpoint) -> None:
        self._below = below
        self.bounds: dict[tuple[int, int], set[Bound | None]] = {}

    def __getattr__(self, name: str) -> object:
        return getattr(self._below, name)

    def receive(self, peer: int, key: MessageKey, buffer: Floats, **more: Any) -> None:
        self._note(key, more.get("bound"))
        self._below.receive(peer, key, buffer, **more)

    def send(self, peer: int, key: MessageKey, data: Floats, **more: Any) -> None:
        self._note(key, more.get("bound"))
        self._below.send(peer, key, data, **more)

    def _note(self, key: MessageKey, bound: Bound | None) -> None:
        if key.leg is Leg.PUSH:
            self.bounds.setdefault((key.iteration, key.tensor), set()).add(bound)


@pytest.fixture(scope="module")
def played() -> tuple[list[Watched], list[PhaseServer], list[PhaseWorker]]:
    tensors = plan_tensors(LAYERS, 20_000, SERVERS, SETTINGS)
    assert {tensor.server for tensor in tensors} == {0, 1}
    elements = tensors[-1].stop
    worker_ranks, server_ranks = list(range(WORKERS)), list(range(WORKERS, WORKERS + SERVERS))
    with ranks(SETTINGS, WORKERS, SERVERS) as endpoints:
        traffic = Traffic(WORKERS, SERVERS, tensors, SETTINGS, ITERATIONS)
        agree(endpoints, "parameter-server", traffic)
        terms = PlannedTerms(pattern_of("parameter-server"), traffic)
        watched = [Watched(endpoint) for endpoint in endpoints]
        boxes = [Mailbox(one, terms) for one in watched]  # type: ignore[arg-type]
        servers = [
            PhaseServer(
                boxes[rank],
                tensors,
                index,
                worker_ranks,
                np.zeros(elements, np.float32),
                Sgd(0.1, 0.0, ITERATIONS),
                RULE,
                ITERATIONS,
                stall_timeout_s=10,
            )
            for index, rank in enumerate(server_ranks)
        ]
        workers = [
            PhaseWorker(
                boxes[rank], tensors, server_ranks, np.zeros(elements, np.float32), RULE, ITERATIONS, stall_timeout_s=10
            )
            for rank in worker_ranks
        ]
        for server in servers:
            server.expect_first()

        def work(worker: PhaseWorker) -> None:
            for iteration in range(ITERATIONS):
                worker.await_parameters(range(len(tensors)))
                for number in reversed(range(len(tensors))):
                    worker.gradient_slot(number)[:] = NORMS[iteration]
                    worker.push(iteration, number)
            worker.finish()

        together([*(lambda w=worker: work(w) for worker in workers), *(server.run for server in servers)])
    return watched, servers, workers


def test_the_bound_switches_with_the_regime_at_both_ends_alike(
    played: tuple[list[Watched], list[PhaseServer], list[PhaseWorker]],
) -> None:
    """Checks after iterations 2, 5, 8, 11 hold from 4, 7, 10, 13 on: nothing to compare with, no drop, a drop, none."""
    expected = [CRITICAL] * 7 + [RELAXED] * 3 + [CRITICAL] * 3 + [RELAXED]
    watched, servers, _ = played
    for one in watched:
        for (iteration, tensor), bounds in one.bounds.items():
            assert bounds == {Bound(expected[iteration])}, (iteration, tensor)
    assert len({iteration for iteration, _ in watched[0].bounds}) == ITERATIONS
    for server in servers:
        assert server.phases == {0: CRITICAL, 1: CRITICAL, 2: RELAXED, 3: CRITICAL, 4: RELAXED}
        assert server.extra() == {"phases": {"0": 0.01, "4": 0.01, "7": 0.41, "10": 0.01, "13": 0.41}}


def test_announcements_are_no_messages_of_the_job(
    played: tuple[list[Watched], list[PhaseServer], list[PhaseWorker]],
) -> None:
    _, servers, workers = played
    tensors = {done.key.tensor for rank in [*servers, *workers] for done in rank.completions}
    assert tensors == set(range(len(tensors)))
    for worker in workers:
        assert len(worker.completions) == 2 * len(tensors) * ITERATIONS


def test_workers_stay_alike_and_are_where_the_gradients_lead(
    played: tuple[list[Watched], list[PhaseServer], list[PhaseWorker]],
) -> None:
    _, _, workers = played
    optimizer = Sgd(0.1, 0.0, ITERATIONS)
    where = np.float32(0)
    for iteration, gradient in enumerate(NORMS):
        where -= np.float32(optimizer.rate(iteration)) * np.float32(gradient)
    for worker in workers:
        lost = sum(done.lost_bytes for done in worker.completions)
        assert lost == 0
        assert np.array_equal(worker.parameters, workers[0].parameters)
        assert worker.parameters[0] == pytest.approx(where, rel=0.05)
