"""The clock of time dilation: exact at 1, never backwards, never too early, and no drift over a year."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dlcp.transport._native import ffi, lib

NEVER = 2**64 - 1
YEAR_NS = 366 * 24 * 3600 * 10**9
SECOND = 10**9

dilations = st.one_of(st.sampled_from([1.0, 2.0, 2.5, 4.0, 10.0, 1e6]), st.floats(1.0, 1e6))
origins = st.integers(0, YEAR_NS)
since = st.integers(0, YEAR_NS)


def clock(dilation: float, origin_ns: int) -> Any:
    return ffi.new("struct dlcp_clock *", lib.dlcp_clock_new(dilation, origin_ns))


@given(origins, st.integers(0, NEVER))
def test_without_dilation_all_is_as_the_host_says(origin_ns: int, ns: int) -> None:
    for dilation in (0.0, 1.0):
        same = clock(dilation, origin_ns)
        for convert in (
            lib.dlcp_clock_lab,
            lib.dlcp_clock_host,
            lib.dlcp_clock_lab_duration,
            lib.dlcp_clock_host_duration,
        ):
            assert convert(same, ns) == ns


@given(dilations, origins, since, st.integers(0, 10**9))
def test_lab_time_never_runs_backwards(dilation: float, origin_ns: int, after_ns: int, later_ns: int) -> None:
    one = clock(dilation, origin_ns)
    first, second = (lib.dlcp_clock_lab(one, origin_ns + ns) for ns in (after_ns, after_ns + later_ns))
    assert origin_ns <= first <= second <= origin_ns + after_ns + later_ns


@given(dilations, origins, since, st.integers(0, 10**9))
def test_an_interval_is_the_hosts_divided_by_the_dilation(
    dilation: float, origin_ns: int, after_ns: int, later_ns: int
) -> None:
    """Wherever in a year it lies: within a nanosecond, and what a double cannot hold of a year's nanoseconds."""
    one = clock(dilation, origin_ns)
    start, end = (lib.dlcp_clock_lab(one, origin_ns + ns) for ns in (after_ns, after_ns + later_ns))
    assert abs((end - start) - later_ns / dilation) <= 1 + 2 * 8


@given(dilations, origins, st.integers(0, YEAR_NS))
@example(3.0, 0, 1)
@example(1.0000001, 12345, YEAR_NS)
def test_who_sleeps_until_an_instant_of_the_lab_wakes_when_it_has_come(
    dilation: float, origin_ns: int, lab_after_ns: int
) -> None:
    """Neither before, which would be a busy loop, nor a nanosecond later than need be."""
    one, lab_ns = clock(dilation, origin_ns), origin_ns + lab_after_ns
    host_ns = lib.dlcp_clock_host(one, lab_ns)
    if host_ns == NEVER:  # beyond what a clock can show
        assert lab_after_ns * dilation > 9e18
        return
    assert lib.dlcp_clock_lab(one, host_ns) >= lab_ns
    assert host_ns <= origin_ns or lib.dlcp_clock_lab(one, host_ns - 1) < lab_ns


@given(dilations, origins, since)
def test_a_reported_instant_is_not_after_the_real_one(dilation: float, origin_ns: int, after_ns: int) -> None:
    """A completion ends when it ended, at most as much earlier as one nanosecond of the lab lasts."""
    one, host_ns = clock(dilation, origin_ns), origin_ns + after_ns
    reported_ns = lib.dlcp_clock_host(one, lib.dlcp_clock_lab(one, host_ns))
    assert 0 <= host_ns - reported_ns <= dilation + 16 * dilation


@pytest.mark.parametrize("dilation", [2.0, 4.0, 10.0])
@given(origins, st.integers(0, 2**53 // 10))
def test_a_whole_dilation_is_exact_for_a_hundred_days(dilation: float, origin_ns: int, lab_after_ns: int) -> None:
    """As long as a double holds every nanosecond since the clock was made."""
    one = clock(dilation, origin_ns)
    host_ns = origin_ns + lab_after_ns * int(dilation)
    assert lib.dlcp_clock_lab(one, host_ns) == origin_ns + lab_after_ns
    assert lib.dlcp_clock_host(one, origin_ns + lab_after_ns) == host_ns


@given(dilations, origins)
def test_never_stays_never_and_what_was_before_the_clock_stays(dilation: float, origin_ns: int) -> None:
    one = clock(dilation, origin_ns)
    for convert in (lib.dlcp_clock_lab, lib.dlcp_clock_host, lib.dlcp_clock_lab_duration, lib.dlcp_clock_host_duration):
        assert convert(one, NEVER) == NEVER
        assert convert(one, 0) == 0, "0 stands for none"
    assert lib.dlcp_clock_lab(one, origin_ns) == lib.dlcp_clock_host(one, origin_ns) == origin_ns
