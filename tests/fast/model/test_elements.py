"""What the core measures of a packet's elements, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from dtypes import DTYPES, FLOAT32, floats, full_packet, held
from hypothesis import given
from hypothesis import strategies as st
from virtual_time import Values

from dlcp.transport._native import ffi, lib

MEAN, L2, MAX = lib.DLCP_METRIC_MEAN, lib.DLCP_METRIC_L2, lib.DLCP_METRIC_MAX


def measure(values: Values, dtype: int, metric: int) -> tuple[float, float]:
    """(Metric, mean square)."""
    found = lib.dlcp_measure_elements(dtype, metric, ffi.cast("void *", values.ctypes.data), values.size)
    return found.metric, found.mean_square


@pytest.mark.parametrize("dtype", DTYPES)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 720), scale=st.sampled_from([1e-4, 1.0, 100.0]))
def test_the_three_metrics_and_the_mean_square(dtype: int, seed: int, count: int, scale: float) -> None:
    count = min(count, full_packet(dtype))
    values = held((scale * np.random.default_rng(seed).normal(size=count)).astype(np.float32), dtype)
    exact = np.abs(floats(values, dtype).astype(np.float64))
    square = np.mean(exact**2)
    expected = {MEAN: np.mean(exact), L2: square**0.5, MAX: np.max(exact)}
    for metric, value in expected.items():
        assert measure(values, dtype, metric) == (pytest.approx(value, rel=1e-5), pytest.approx(square, rel=1e-5))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("place", [0, 8, 100, 357])
@pytest.mark.parametrize("metric", [MEAN, L2, MAX])
def test_what_is_not_finite_shows_wherever_it_is(dtype: int, bad: float, place: int, metric: int) -> None:
    values = np.ones(358, np.float32)
    values[place] = bad
    assert not np.isfinite(measure(held(values, dtype), dtype, metric)[1])


def test_what_is_too_large_to_be_squared_counts_as_not_finite() -> None:
    assert measure(np.full(9, 1e30, np.float32), FLOAT32, MEAN)[1] == np.inf
