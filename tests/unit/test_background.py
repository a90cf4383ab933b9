"""Background bursts: a plan from a seed, sent at line rate, counted where they arrive."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import address

from dlcp.agents.background import FRAME_BYTES, PAYLOAD_BYTES, Sink, Source, incast_bursts, pace
from dlcp.model.workload import Incast

INCAST = Incast(kind="incast", sources=("h1", "h2", "h3"), sinks=("h3", "h4"), burst="8 kB", interval="20 ms", queue=6)


def test_bursts__follow_from_the_seed_alone() -> None:
    assert incast_bursts(INCAST, 7, 2.0) == incast_bursts(INCAST, 7, 2.0)
    assert incast_bursts(INCAST, 7, 2.0) != incast_bursts(INCAST, 8, 2.0)
    assert incast_bursts(INCAST, 7, 2.0) != incast_bursts(INCAST, 7, 2.0, stream=1)


def test_bursts__a_longer_horizon_only_adds() -> None:
    short = incast_bursts(INCAST, 7, 1.0)
    assert incast_bursts(INCAST, 7, 3.0)[: len(short)] == short


def test_bursts__all_sources_at_once_but_none_to_itself() -> None:
    bursts = incast_bursts(INCAST, 7, 20.0)
    by_time: dict[float, list] = {}
    for burst in bursts:
        by_time.setdefault(burst.time_s, []).append(burst)
    for together in by_time.values():
        assert len({burst.sink for burst in together}) == 1
        assert [b.source for b in together] == [s for s in INCAST.sources if s != together[0].sink]
    gaps = np.diff([0.0, *by_time])
    assert gaps.mean() == pytest.approx(INCAST.interval_s, rel=0.15)
    assert gaps.std() == pytest.approx(INCAST.interval_s, rel=0.2), "exponential gaps: deviation = mean"
    assert {burst.sink for burst in bursts} == set(INCAST.sinks)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.just("h9"), st.integers(1, 100_000)), max_size=20),
    st.floats(1e6, 1e9),
)
def test_pace__never_above_line_rate_and_nothing_forgotten(bursts: list[tuple[float, str, int]], rate: float) -> None:
    groups = pace(bursts, rate)
    assert sum(g.packets for g in groups) == sum(-(-size // PAYLOAD_BYTES) for _, _, size in bursts)
    assert sum(g.first for g in groups) == len(bursts)
    for group, following in pairwise(groups):
        assert following.time_s >= group.time_s + group.packets * FRAME_BYTES * 8 / rate - 1e-9


def test_source_and_sink__count_what_was_planned() -> None:
    """On an idle loopback everything arrives, in its time."""
    rate_bps, size_bytes = 50e6, 100 * PAYLOAD_BYTES
    groups = pace([(0.01, "h2", size_bytes), (0.06, "h2", size_bytes)], rate_bps)
    sink = Sink(address(1))
    source = Source(groups, {"h2": address(1)}, tos=6 << 5)
    sink.start()
    source.start(time.monotonic())
    time.sleep(0.06 + size_bytes * 8 / rate_bps + 0.1)
    sent, received = source.stop(), sink.stop()
    assert sent["planned_bytes"] == sent["sent_bytes"] == 2 * size_bytes
    assert sent["refused_bytes"] == 0
    assert received == {"received_packets": 200, "received_bytes": 2 * size_bytes, "rx_overflow": 0}
    assert sent["bursts"] == 2


def test_source__stopped_early_counts_as_planned_only_what_was_due() -> None:
    groups = pace([(0.0, "h2", PAYLOAD_BYTES), (3600.0, "h2", PAYLOAD_BYTES)], 50e6)
    sink = Sink(address(1))
    source = Source(groups, {"h2": address(1)}, tos=0)
    sink.start()
    source.start(time.monotonic())
    time.sleep(0.1)
    before_s = time.monotonic()
    sent = source.stop()
    assert time.monotonic() - before_s < 1.0, "a source that waits for its next burst stops at once"
    assert sent["planned_bytes"] == sent["sent_bytes"] == PAYLOAD_BYTES
    assert sink.stop()["received_packets"] == 1
