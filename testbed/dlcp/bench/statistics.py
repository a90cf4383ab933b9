"""Figures of a bench: one value a repeat, the best and the median of them, and the limit that nature sets."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from dlcp.model.sample_size import too_few_for

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Figure:
    """One line of a bench's answer.

    values: one a repeat, in order. better: the good direction, which says what `best` is. limit: what cannot be
    passed here, in words with its number; empty when there is none. why: the reason when there are no values.
    """

    name: str
    unit: str
    better: Literal["lower", "higher"]
    values: tuple[float, ...]
    limit: str = ""
    why: str = ""

    @property
    def best(self) -> float | None:
        """The best repeat: what the machine can do when nothing else disturbs it."""
        if not self.values:
            return None
        return min(self.values) if self.better == "lower" else max(self.values)

    @property
    def median(self) -> float | None:
        """The middle repeat."""
        return statistics.median(self.values) if self.values else None

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"best": self.best, "median": self.median, "repeats": len(self.values)}


@dataclass
class Report:
    """Result of a bench. runs: raw values of every repeat and variant; notes: what a reader must know."""

    bench: str
    where: str
    options: dict[str, Any]
    figures: list[Figure] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """For JSON, and for the way out of a namespace."""
        return {
            "format": FORMAT_VERSION,
            "bench": self.bench,
            "where": self.where,
            "options": self.options,
            "figures": [figure.data() for figure in self.figures],
            "notes": self.notes,
            "machine": self.machine,
            "runs": self.runs,
        }


def percentile_figure(
    name: str, q: float, samples_by_run: Sequence[Sequence[float]], *, scale: float, unit: str
) -> Figure:
    """A quantile of each run's samples; of no run, with the reason, when the samples are too few for it."""
    fewest = min((len(samples) for samples in samples_by_run), default=0)
    why = too_few_for(q, fewest)
    values = () if why else tuple(quantile(samples, q) * scale for samples in samples_by_run)
    return Figure(name, unit, "lower", values, why=why)


def pooled_percentile(
    name: str, q: float, samples_by_run: Sequence[Sequence[float]], scale: float, unit: str
) -> Figure:
    """A quantile of all runs' samples together: one value, for a tail that a single run cannot carry."""
    return percentile_figure(name, q, [[sample for run in samples_by_run for sample in run]], scale=scale, unit=unit)


def quantile(samples: Sequence[float], q: float) -> float:
    """The smallest sample that at least a share q of the samples does not exceed. Some must be there."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(round(q * len(ordered), 6)) - 1)]


def ratio_figure(name: str, ours: Figure, theirs: Figure, *, better: Literal["lower", "higher"]) -> Figure:
    """ours / theirs, repeat by repeat: each pair ran one after the other."""
    why = ours.why or theirs.why
    values = () if why else tuple(a / b for a, b in zip(ours.values, theirs.values, strict=True) if b > 0)
    return Figure(name, "x", better, values, why=why)
