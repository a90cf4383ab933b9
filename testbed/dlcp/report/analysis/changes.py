"""Two results directories against each other: what changed, how sure that is, and what else was not the same.

A change of a figure is a change of the code or of a knob only if everything else was the same. So all that defines the
runs is compared first, and what differs stands before every figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dlcp.model.metrics import METRICS, Metric
from dlcp.report.analysis.comparison import SEED, Comparison, never_reached, paired, trusted_values, verdict_of
from dlcp.report.analysis.settings import flat
from dlcp.report.data.formatting import show_change, show_setting
from dlcp.report.data.load import Results, faults
from dlcp.report.data.metrics import samples
from dlcp.report.data.statistics import (
    MIN_REPEATS,
    Estimate,
    paired_difference,
    paired_ratio,
    quantile_ratio_interval,
    unpaired_difference,
    unpaired_ratio,
)

NOT_THERE = "–"
FABRIC_KINDS = ("fabric", "job")
"""Kinds of differences that make two figures figures of two things."""


@dataclass(frozen=True)
class Difference:
    """Something that defines the runs and is not the same. kind: "fabric", "job", "scheme" or "code and machine"."""

    kind: str
    what: str
    ours: str
    theirs: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """A figure of a (job, label) in both. estimate: ours against theirs, by ratio or difference, as the metric says."""

    job: str
    label: str
    metric: Metric
    ours: Estimate
    theirs: Estimate
    estimate: Estimate
    verdict: str

    @property
    def words(self) -> str:
        """ "−31.2 % [−34.0, −28.1]", or why there is none."""
        return show_change(self.metric, self.estimate)


@dataclass(frozen=True)
class Changes:
    """only_ours, only_theirs: "label, job" that the other side has no run of."""

    ours: Comparison
    theirs: Comparison
    differences: tuple[Difference, ...]
    rows: tuple[Change, ...]
    only_ours: tuple[str, ...]
    only_theirs: tuple[str, ...]

    @property
    def comparable(self) -> bool:
        """Fabric and jobs were the same, so that a change is one of schemes, code or machine."""
        return not any(difference.kind in FABRIC_KINDS for difference in self.differences)


def changes(ours: Comparison, theirs: Comparison) -> Changes:
    """Every figure of every job and label that both have; never refuses, always says what else differs."""
    cells = [(job.job, label) for job in ours.jobs for label in job.labels]
    other = {(job.job, label) for job in theirs.jobs for label in job.labels}
    both = [cell for cell in cells if cell in other]
    rows = [change for job, label in both for change in _changes_of(ours, theirs, job, label)]
    return Changes(
        ours,
        theirs,
        tuple(_differences(ours.results, theirs.results, both)),
        tuple(rows),
        tuple(f"{label}, {job}" for job, label in cells if (job, label) not in other),
        tuple(f"{label}, {job}" for job, label in sorted(other - set(cells))),
    )


def table(found: Changes) -> pd.DataFrame:
    """One row a Change."""
    columns = [
        "job",
        "label",
        "metric",
        "unit",
        "ours",
        "theirs",
        "compare",
        "value",
        "low",
        "high",
        "n",
        "method",
        "verdict",
        "comparable",
        "why",
    ]
    rows = [
        {
            "job": change.job,
            "label": change.label,
            "metric": change.metric.name,
            "unit": change.metric.unit,
            "ours": change.ours.value,
            "theirs": change.theirs.value,
            "compare": change.metric.compare,
            "value": change.estimate.value,
            "low": change.estimate.low,
            "high": change.estimate.high,
            "n": change.estimate.n,
            "method": change.estimate.method,
            "verdict": change.verdict,
            "comparable": found.comparable,
            "why": change.estimate.why,
        }
        for change in found.rows
    ]
    return pd.DataFrame(rows, columns=columns)


def differences_table(found: Changes) -> pd.DataFrame:
    """One row a Difference."""
    rows = [vars(row) | {"cells": "; ".join(row.cells)} for row in found.differences]
    return pd.DataFrame(rows, columns=["kind", "what", "ours", "theirs", "cells"])


def _changes_of(ours: Comparison, theirs: Comparison, job: str, label: str) -> Iterator[Change]:
    mine, other = ours.job(job), theirs.job(job)
    if mine is None or other is None:
        return
    for metric in METRICS.values():
        sides = [side.estimates.get((label, metric.name)) for side in (mine, other)]
        if sides[0] is None or sides[1] is None:
            continue
        estimate = _estimate(ours, theirs, job, label, metric)
        yield Change(job, label, metric, sides[0], sides[1], estimate, verdict_of(estimate, metric))


def _estimate(ours: Comparison, theirs: Comparison, job: str, label: str, metric: Metric) -> Estimate:
    """Paired where at least MIN_REPEATS seeds are the same on both sides; else Welch's; tails that single runs do not
    carry, through the pooled samples."""
    sides = [side.runs[side.runs["job"] == job] for side in (ours, theirs)]
    whys = [
        f"{why} {where}"
        for runs, where in zip(sides, ("here", "there"), strict=True)
        if (why := never_reached(runs, metric, label))
    ]
    if whys:
        return Estimate(None, None, None, 0, "refused", "; ".join(whys))
    values = [trusted_values(runs, label, metric) for runs in sides]
    pairs = paired(*values)
    ratio = metric.compare == "ratio"
    if len(pairs[0]) >= MIN_REPEATS:
        return (paired_ratio if ratio else paired_difference)(*pairs)
    if metric.tail and metric.quantile is not None and min(map(len, values)) < MIN_REPEATS:
        pooled = [samples(side.results, job, label, metric) for side in (ours, theirs)]
        return quantile_ratio_interval(
            (pooled[0].values, pooled[0].blocks), (pooled[1].values, pooled[1].blocks), metric.quantile, seed=SEED
        )
    own_values, other = (np.array(list(side.values())) for side in values)
    return (unpaired_ratio if ratio else unpaired_difference)(own_values, other)


def _differences(ours: Results, theirs: Results, cells: list[tuple[str, str]]) -> Iterator[Difference]:
    """Compare all that defines the runs; equal differences of several cells are one."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for job, label in cells:
        sides = [side.example(job, label) for side in (ours, theirs)]
        for kind, read in _DEFINING.items():
            mine, other = (_leaves(read(side)) for side in sides)
            for what in dict.fromkeys((*mine, *other)):
                here, there = mine.get(what, NOT_THERE), other.get(what, NOT_THERE)
                if here != there:
                    found.setdefault((kind, what, here, there), []).append(f"{label}, {job}")
    for (kind, what, here, there), where in found.items():
        yield Difference(kind, what, here, there, tuple(where))


def _leaves(nested: Any) -> dict[str, str]:
    return {path: show_setting(path.rsplit(".", 1)[-1], value) for path, value in flat(nested) if path}


_DEFINING: dict[str, Callable[[Any], Any]] = {
    "fabric": lambda one: {
        "substrate": one.substrate,
        "regime": _of_fabric(one.regime),
        "topology": one.topology,
        "background": one.run.get("background"),
        "faults": faults(one),
    },
    "job": lambda one: {"job": one.run.get("job"), "workload": one.run.get("workload")},
    "scheme": lambda one: {"scheme": one.scheme, "knobs": one.knobs, "switches and hosts": one.intended},
    "code and machine": lambda one: {
        name: one.provenance.get(name) for name in ("commit", "dirty", "kernel", "machine", "cores", "versions")
    },
}


def _of_fabric(regime: dict[str, Any]) -> dict[str, Any]:
    """Without what the regime says of single schemes: that is of the scheme."""
    return {name: value for name, value in regime.items() if not name.endswith("_rto_floor_lab_s")}
