"""Numbers as people read them: one unit a metric, as many digits as the interval allows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dlcp.model.metrics import Metric
from dlcp.model.units import show_duration, show_fraction, show_rate, show_size
from dlcp.report.data.statistics import Estimate, Gain


@dataclass(frozen=True)
class Unit:
    """How a metric's values are shown: their factor, the sign behind them."""

    factor: float
    sign: str


_PLAIN = {"x": Unit(1, "×"), "steps": Unit(1, "steps")}
_SECONDS, _MILLISECONDS = Unit(1, "s"), Unit(1e3, "ms")


def unit_of(metric: Metric, values: Iterable[float | None] = ()) -> Unit:
    """One unit for a column: milliseconds when every time is below a second."""
    if metric.unit == "share":
        return Unit(100, "%")
    if metric.unit in _PLAIN:
        return _PLAIN[metric.unit]
    known = [value for value in values if value is not None]
    return _MILLISECONDS if known and max(known) < 1 else _SECONDS


def show_number(value: float, decimals: int) -> str:
    """Fixed decimals; a true minus sign; no "−0"."""
    text = f"{value:.{decimals}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", "−")


def show_estimate(estimate: Estimate, metric: Metric, unit: Unit | None = None, *, with_unit: bool = True) -> str:
    """ "12.31 ± 0.42 s" (t), "412 [371, 455] ms" (bootstrap), "12.3 (n=3) s" without interval, "n/a (n=160)"."""
    if estimate.value is None:
        return f"n/a (n={estimate.n})"
    unit = unit or unit_of(metric, [estimate.value])
    sign = f" {unit.sign}" if with_unit else ""
    value = estimate.value * unit.factor
    if estimate.low is None or estimate.high is None:
        return f"{show_number(value, _decimals(abs(value) / 10))} (n={estimate.n}){sign}"
    low, high = estimate.low * unit.factor, estimate.high * unit.factor
    if low == high == 0:
        return f"0{sign}"
    decimals = _decimals(max((high - low) / 2, abs(value) / 1000))
    if estimate.method == "bootstrap":
        ends = f"[{show_number(low, decimals)}, {show_number(high, decimals)}]"
        return f"{show_number(value, decimals)} {ends}{sign}"
    return f"{show_number(value, decimals)} ± {show_number((high - low) / 2, decimals)}{sign}"


def show_gain(gain: Gain) -> str:
    """ "−31.2 % [−34.0, −28.1]" for times, "+0.12 pt [−0.30, +0.55]" for shares; "n/a (why)" when refused."""
    return show_change(gain.metric, gain.estimate)


def show_change(metric: Metric, estimate: Estimate) -> str:
    """The same of any ratio or difference in a metric."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return f"n/a ({estimate.why})"
    value, low, high = (_change(metric, end) for end in (estimate.value, estimate.low, estimate.high))
    decimals = min(_decimals((high - low) / 2), 1 if metric.compare == "ratio" else 2)
    sign = "%" if metric.compare == "ratio" else "pt"
    shown = [("+" if end > 0 else "") + show_number(end, decimals) for end in (value, low, high)]
    return f"{shown[0]} {sign} [{shown[1]}, {shown[2]}]"


def _change(metric: Metric, end: float) -> float:
    return 100 * (end - 1) if metric.compare == "ratio" else 100 * end


def _decimals(precision: float) -> int:
    """Decimals that show two significant digits of the precision."""
    if precision <= 0 or not math.isfinite(precision):
        return 0
    return min(max(1 - math.floor(math.log10(precision)), 0), 6)


_ENDINGS = {
    "_s": show_duration,
    "_bytes": show_size,
    "_bps": show_rate,
    "_share": show_fraction,
    "_bound": show_fraction,
}


def show_setting(name: str, value: Any) -> str:
    """A knob or a figure of the regime, with the unit that its name's ending tells."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        for ending, show in _ENDINGS.items():
            if name.endswith(ending):
                return show(value) if value else "0"
        return f"{value:g}"
    return "none" if value is None else str(value)


def show_name(name: str) -> str:
    """ "port_buffer_bytes" → "port buffer": the unit is with the value."""
    for ending in ("_bytes", "_bps", "_s"):
        name = name.removesuffix(ending)
    return name.replace("_", " ")
