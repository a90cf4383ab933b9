"""All-reduces of one process's ranks: what the reducer does when the ring breaks."""

from __future__ import annotations

import threading
from typing import Any

import loopback
import pytest
import torch

from dlcp.frameworks.pytorch.failure.peer_failure import Alarm, WatchedEndpoint
from dlcp.frameworks.pytorch.reducer import MAX_TENSORS, SLOTS, Reducer, Span
from dlcp.model.transport.settings import TransportSettings
from dlcp.transport.aggregation.ring import RingAllReduce
from dlcp.transport.contract.endpoint import RELIABLE, TransportError
from dlcp.transport.contract.mailbox import Mailbox
from dlcp.transport.dlcp_endpoint import DlcpEndpoint

ELEMENTS = 10_000
WITHIN_S = 20.0


class _BreaksLater(WatchedEndpoint):
    """A peer turns out to be gone just when the second all-reduce of a tensor is begun."""

    def __init__(self, endpoint: DlcpEndpoint, alarm: Alarm) -> None:
        super().__init__(endpoint, alarm)
        self.send = self._send  # type: ignore[method-assign]

    def _send(self, peer: int, key: Any, data: Any, **named: Any) -> None:
        if key.iteration > 0:
            raise TransportError("rank 1 is gone")
        self.inner.send(peer, key, data, **named)


def test_what_is_over_is_told__when_the_next_all_reduce_in_turn_cannot_begin() -> None:
    with loopback.ring(TransportSettings(kind="dlcp"), 2) as endpoints:
        reducers = []
        for rank, endpoint in enumerate(endpoints):
            assert isinstance(endpoint, DlcpEndpoint)
            alarm = Alarm(rank, 1, "127.0.0.1")  # neither hears of the other
            watched = (_BreaksLater if rank == 0 else WatchedEndpoint)(endpoint, alarm)
            reducers.append(
                Reducer(
                    watched,
                    rank,
                    2,
                    bound=RELIABLE,
                    holes="zero",
                    average=False,
                    must_arrive_below_packets=8,
                    timeout_s=WITHIN_S,
                    name="test",
                )
            )
        spans = (Span(ELEMENTS, 3, False),)
        outcomes = [[one.start(torch.ones(ELEMENTS), spans) for _ in range(SLOTS + 1)] for one in reducers]
        first, *_, last = outcomes[0]
        assert first.wait(WITHIN_S)
        assert first.value[0] == 2
        with pytest.raises(TransportError, match=r"all_reduce 5 .*rank 1 is gone"):
            last.wait(WITHIN_S)
        for reducer in reducers:
            reducer.close()


def test_numbers_for_shapes__are_enough_for_jobs_of_any_size_and_their_end_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 512 ranks there were numbers for 32 shapes; the next one was an OverflowError."""
    with loopback.ring(TransportSettings(kind="dlcp"), 2) as endpoints:
        reducers = [_reducer(endpoint, rank) for rank, endpoint in enumerate(endpoints)]
        try:
            assert _sums(reducers, 10) == [2.0, 2.0]
            monkeypatch.setattr("dlcp.frameworks.pytorch.reducer.MAX_TENSORS", 2 * SLOTS * 2)
            assert _sums(reducers, 20) == [2.0, 2.0]
            for reducer in reducers:
                with pytest.raises(ValueError, match=r"30 × float32 .* 2 different sizes have used all .* new group"):
                    reducer.start(torch.ones(30), (Span(30, 3, False),))
            assert _sums(reducers, 10) == [2.0, 2.0], "a known size goes on"
        finally:
            for reducer in reducers:
                reducer.close()


def test_numbers_for_shapes__do_not_depend_on_the_number_of_ranks() -> None:
    """A bucket of a gradient is one segment each, or a few."""
    with loopback.ring(TransportSettings(kind="dlcp"), 1) as (endpoint,):
        for size in (4, 512, 1024):
            each = RingAllReduce(Mailbox(endpoint), 0, size, shared_numbers=True).numbers_each
            assert MAX_TENSORS // (SLOTS * each) > 5_000


def test_who_leaves_while_a_sum_is_copied_back__has_come_as_far_as_that_sum() -> None:
    """It was said to have left after all_reduce -1, which even those miss who want nothing of it."""
    copying, go_on = threading.Event(), threading.Event()

    def finish() -> None:
        copying.set()
        go_on.wait(WITHIN_S)

    with loopback.ring(TransportSettings(kind="dlcp"), 2) as endpoints:
        reducers = [_reducer(endpoint, rank) for rank, endpoint in enumerate(endpoints)]
        try:
            spans = (Span(10, 3, False),)
            outcomes = [reducers[0].start(torch.ones(10), spans, finish), reducers[1].start(torch.ones(10), spans)]
            assert copying.wait(WITHIN_S)
            assert reducers[0].calls_done() == 1
            go_on.set()
            assert all(outcome.wait(WITHIN_S) for outcome in outcomes)
        finally:
            go_on.set()
            for reducer in reducers:
                reducer.close()


def test_numbers_for_shapes__a_reducer_of_many_ranks_takes_three_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    with loopback.ring(TransportSettings(kind="dlcp"), 1) as (endpoint,):
        reducer = _reducer(endpoint, 0, size=512)
        try:
            for numbers, has_room in ((3 * SLOTS, True), (3 * SLOTS - 1, False)):
                monkeypatch.setattr("dlcp.frameworks.pytorch.reducer.MAX_TENSORS", numbers)
                assert reducer.has_room(10_000, torch.float32, (Span(10_000, 3, False),)) == has_room
        finally:
            reducer.close()


def _reducer(endpoint: Any, rank: int, size: int = 2) -> Reducer:
    watched = WatchedEndpoint(endpoint, Alarm(rank, 1, "127.0.0.1"))  # neither hears of the other
    return Reducer(
        watched,
        rank,
        size,
        bound=RELIABLE,
        holes="zero",
        average=False,
        must_arrive_below_packets=8,
        timeout_s=WITHIN_S,
        name="test",
    )


def _sums(reducers: list[Reducer], elements: int) -> list[float]:
    outcomes = [one.start(torch.ones(elements), (Span(elements, 3, False),)) for one in reducers]
    assert all(outcome.wait(WITHIN_S) for outcome in outcomes)
    return [outcome.value[-1].item() for outcome in outcomes]
