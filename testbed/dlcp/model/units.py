"""Quantities as people write them ("100 Mbit/s", "40 kB", "5 ms", "10 %") and as the code counts them.

Inside, a quantity is a plain number whose name carries its unit: `rate_bps`, `size_bytes`, `delay_s`. In a file that a
person wrote (validation context WRITTEN) a plain number is no quantity: nobody could tell which unit was meant.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable
from typing import Annotated, Any, TypeGuard

from pydantic import BeforeValidator, ValidationInfo

WRITTEN = {"written": True}
"""Context of validating what a person wrote."""

_NUMBER = re.compile(r"\s*([+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµ%/]*)\s*")

_RATES_BPS = {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9, "Tbit/s": 1e12}
_SIZES_BYTES = {"B": 1.0, "kB": 1e3, "KiB": 1_024.0, "MB": 1e6, "MiB": 1_048_576.0, "GB": 1e9}
_DURATIONS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_FRACTIONS = {"%": 0.01, "": 1.0}


class QuantityError(ValueError):
    """A value that is no quantity of its kind: what is wrong, and how to write it."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"{what}: {hint}")
        self.what = what
        self.hint = hint


def _quantity(value: object, units: dict[str, float], kind: str, example: str) -> float:
    """A plain number as it is, text as a number and a unit; neither may be infinite or no number at all."""
    quantity = float(value) if _is_number(value) else _parse(value, units, kind, example)
    if not math.isfinite(quantity):
        raise QuantityError(f"{value!r} is not a {kind}", "it must be finite")
    return quantity


def _parse(value: object, units: dict[str, float], kind: str, example: str) -> float:
    """A number times its unit; raises QuantityError with the units that are known."""
    match = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if match and match[2] in units:
        return float(match[1]) * units[match[2]]
    known = ", ".join(unit for unit in units if unit)
    hint = f"write a number and a unit ({known}), such as {example!r}"
    near = _near_unit(match[2], units) if match else ""
    if match and near:
        hint = f"did you mean {f'{match[1]} {near}'!r}? Units: {known}"
    raise QuantityError(f"{value!r} is not a {kind}", hint)


def _near_unit(wrong: str, units: dict[str, float]) -> str:
    """The unit that was probably meant; empty when none is near. Case counts least: mbit/s is Mbit/s."""
    by_lower = {unit.lower(): unit for unit in reversed(units) if unit}
    matches = difflib.get_close_matches(wrong.lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[matches[0]] if matches else ""


def parse_rate_bps(value: object) -> float:
    """ "100 Mbit/s" → 1e8. Bits, decimal prefixes, as link rates are sold. A number is taken as bit/s."""
    rate = _quantity(value, _RATES_BPS, "rate", "100 Mbit/s")
    if rate <= 0:
        raise QuantityError(f"{value!r} is not a rate that can carry anything", "it must be above 0")
    return rate


def parse_size_bytes(value: object) -> int:
    """ "40 kB" → 40000. kB and MB are decimal, KiB and MiB binary. A number is taken as bytes."""
    size = _quantity(value, _SIZES_BYTES, "size", "40 kB")
    if size < 0 or not math.isclose(size, round(size), rel_tol=1e-12):  # 4.35 MB is whole but for rounding
        raise QuantityError(f"{value!r} is not a size", "it must be a whole number of bytes, 0 or more")
    return round(size)


def parse_duration_s(value: object) -> float:
    """ "5 ms" → 0.005. A number is taken as seconds."""
    duration = _quantity(value, _DURATIONS_S, "duration", "5 ms")
    if duration < 0:
        raise QuantityError(f"{value!r} is not a duration", "it must be 0 or more")
    return duration


def parse_fraction(value: object) -> float:
    """ "10 %" → 0.1; 0.1 → 0.1. Between 0 and 1."""
    fraction = _quantity(value, _FRACTIONS, "share", "10 %")
    if not 0 <= fraction <= 1:
        raise QuantityError(f"{value!r} is not a share", "it must lie between 0 and 1 (0 % and 100 %)")
    return fraction


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _with_unit(parse: Callable[[object], float]) -> Callable[[Any, ValidationInfo], float]:
    """`parse`, but a plain number other than 0 is read as text, and so lacks its unit, in what a person wrote."""

    def read(value: Any, info: ValidationInfo) -> float:
        written = info.context is not None and info.context.get("written", False)
        return parse(str(value) if written and value != 0 and _is_number(value) else value)

    read.__name__ = parse.__name__  # not functools.wraps: pydantic would take the wrapped signature for this one
    return read


Rate = Annotated[float, BeforeValidator(_with_unit(parse_rate_bps))]
Size = Annotated[int, BeforeValidator(_with_unit(parse_size_bytes))]
Duration = Annotated[float, BeforeValidator(_with_unit(parse_duration_s))]
Fraction = Annotated[float, BeforeValidator(parse_fraction)]


def show_rate(rate_bps: float) -> str:
    """1e8 → "100 Mbit/s"."""
    return _show(rate_bps, (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0)))


def show_size(size_bytes: float) -> str:
    """40000 → "40 kB"."""
    return _show(size_bytes, (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)))


def show_duration(duration_s: float) -> str:
    """0.005 → "5 ms"."""
    return _show(duration_s, (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)))


def show_fraction(fraction: float) -> str:
    """0.1 → "10 %"."""
    return f"{fraction * 100:.3g} %"


def _show(value: float, scale: tuple[tuple[str, float], ...]) -> str:
    for unit, factor in scale:
        if abs(value) >= factor:
            return f"{value / factor:.4g} {unit}"
    unit, factor = scale[-1]
    return f"{value / factor:.4g} {unit}"
