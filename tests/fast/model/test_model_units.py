"""Quantities as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcp.model import units

RATES = {"bit/s": 1, "kbit/s": 10**3, "Mbit/s": 10**6, "Gbit/s": 10**9, "Tbit/s": 10**12}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("100 Mbit/s", 1e8), ("10Gbit/s", 1e10), (" 2.5 Gbit/s ", 2.5e9), ("1e3 kbit/s", 1e6), (5_000_000, 5e6)],
)
def test_rates(text: object, expected: float) -> None:
    assert units.parse_rate_bps(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("40 kB", 40_000), ("4 KiB", 4096), ("4.35 MB", 4_350_000), ("0 B", 0), (1500, 1500), ("1 GB", 10**9)],
)
def test_sizes(text: object, expected: int) -> None:
    size = units.parse_size_bytes(text)
    assert size == expected
    assert isinstance(size, int)


@pytest.mark.parametrize(
    ("text", "expected"), [("5 ms", 0.005), ("10 us", 1e-5), ("10 µs", 1e-5), ("2 min", 120), (0.25, 0.25)]
)
def test_durations(text: object, expected: float) -> None:
    assert units.parse_duration_s(text) == pytest.approx(expected)


@pytest.mark.parametrize(("text", "expected"), [("10 %", 0.1), (0.1, 0.1), ("0.1", 0.1), ("100%", 1.0)])
def test_fractions(text: object, expected: float) -> None:
    assert units.parse_fraction(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("parse", "wrong"),
    [
        (units.parse_rate_bps, "0 Mbit/s"),
        (units.parse_rate_bps, "-1 Mbit/s"),
        (units.parse_rate_bps, "100"),
        (units.parse_rate_bps, float("nan")),
        (units.parse_rate_bps, None),
        (units.parse_rate_bps, True),
        (units.parse_size_bytes, "40 kbit"),
        (units.parse_size_bytes, "1.5 B"),
        (units.parse_size_bytes, float("inf")),
        (units.parse_size_bytes, "1e999 B"),
        (units.parse_duration_s, "-5 ms"),
        (units.parse_duration_s, "5"),
        (units.parse_duration_s, "5 ms ms"),
        (units.parse_fraction, "110 %"),
        (units.parse_fraction, -0.1),
    ],
)
def test_wrong_quantities_say_how_to_write_them(parse: object, wrong: object) -> None:
    with pytest.raises(units.QuantityError) as caught:
        parse(wrong)  # type: ignore[operator]
    assert caught.value.hint


@given(st.integers(1, 10**6), st.sampled_from(sorted(RATES)))
def test_a_whole_rate_of_any_unit(number: int, unit: str) -> None:
    assert units.parse_rate_bps(f"{number} {unit}") == pytest.approx(number * RATES[unit], rel=1e-12)


@given(st.integers(1, 10**12))
def test_what_is_shown_is_read_back(size_bytes: int) -> None:
    assert units.parse_size_bytes(size_bytes) == size_bytes
    shown = units.show_duration(size_bytes * 1e-9)
    read = units.parse_duration_s(shown)
    assert read == pytest.approx(size_bytes * 1e-9, rel=1e-3)


@pytest.mark.parametrize(
    ("near", "meant"), [("100 mbit/s", "100 Mbit/s"), ("100 Mbps", "100 Mbit/s"), ("10 gbit/s", "10 Gbit/s")]
)
def test_a_near_unit_is_suggested(near: str, meant: str) -> None:
    with pytest.raises(units.QuantityError) as caught:
        units.parse_rate_bps(near)
    assert f"did you mean {meant!r}" in caught.value.hint
