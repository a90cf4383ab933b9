"""All-reduces of one process's ranks: what the reducer does when the ring breaks."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e .[train]")

import loopback  # noqa: E402

from dlcp.frameworks.pytorch.reducer import SLOTS, Reducer, Span  # noqa: E402
from dlcp.frameworks.pytorch.watch import Alarm, WatchedEndpoint  # noqa: E402
from dlcp.model.workload import TransportSettings  # noqa: E402
from dlcp.transport.endpoint import RELIABLE, TransportError  # noqa: E402
from dlcp.transport.engine import DlcpEndpoint  # noqa: E402

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
                    watched, rank, 2, bound=RELIABLE, holes="zero", average=False, must_arrive_below_packets=8,
                    timeout_s=WITHIN_S, name="test",
                )
            )  # fmt: skip
        spans = (Span(ELEMENTS, 3, False),)
        outcomes = [[one.start(torch.ones(ELEMENTS), spans) for _ in range(SLOTS + 1)] for one in reducers]
        first, *_, last = outcomes[0]
        assert first.wait(WITHIN_S)
        assert first.value[0] == 2
        with pytest.raises(TransportError, match=r"all_reduce 5 .*rank 1 is gone"):
            last.wait(WITHIN_S)
        for reducer in reducers:
            reducer.close()
