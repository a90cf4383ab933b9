"""Does what the experiment claims hold? Yes, no, or: these results cannot tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from dlcp.model.metrics import METRICS, Metric
from dlcp.report.comparison import Comparison, JobComparison, gain
from dlcp.report.statistics import Estimate
from dlcp.report.words import show_estimate, show_gain

Verdict = Literal["holds", "does not hold", "cannot tell"]


@dataclass(frozen=True)
class Outcome:
    """One expectation of the experiment file, its verdict and the numbers behind it."""

    job: str
    metric: str
    scheme: str
    against: str
    relation: str
    verdict: Verdict
    words: str

    @property
    def claim(self) -> str:
        """The expectation as a sentence."""
        relation = "better than" if self.relation == "better" else "no worse than"
        metric = METRICS[self.metric].title if self.metric in METRICS else self.metric
        return f"{self.job}: {metric} of {self.scheme} {relation} {self.against}"


def evaluate(comparison: Comparison) -> tuple[Outcome, ...]:
    """Every expectation that the runs carry in result.json, each once, in their order."""
    unique: dict[tuple[str, ...], None] = {}
    for run in comparison.results.runs:
        for entry in run.result.expect:
            unique[_key(entry)] = None
    return tuple(_outcome(comparison, *key) for key in unique)


def _key(entry: dict[str, Any]) -> tuple[str, str, str, str, str]:
    job, metric, scheme, against, relation = (
        str(entry[name]) for name in ("job", "metric", "scheme", "against", "relation")
    )
    return job, metric, scheme, against, relation


def _outcome(comparison: Comparison, job: str, metric_name: str, scheme: str, against: str, relation: str) -> Outcome:
    verdict, words = _judge(comparison, job, metric_name, scheme, against, relation)
    return Outcome(job, metric_name, scheme, against, relation, verdict, words)


def _judge(
    comparison: Comparison, job: str, metric_name: str, scheme: str, against: str, relation: str
) -> tuple[Verdict, str]:
    found = comparison.job(job)
    metric = METRICS.get(metric_name)
    if metric is None:
        return "cannot tell", f"there is no metric {metric_name!r}"
    if found is None:
        return "cannot tell", "no run of this job"
    missing = [name for name in (scheme, against) if _label(comparison, found, name) is None]
    if missing:
        return "cannot tell", f"no run of {' and '.join(missing)}"
    if metric not in found.metrics:
        return "cannot tell", f"no run of this job has {metric.title}"
    ours, theirs = (_label(comparison, found, name) or "" for name in (scheme, against))
    if relation == "better":
        return _better(found, metric, ours, theirs)
    return _not_worse(comparison, found, metric, ours, theirs)


def _label(comparison: Comparison, job: JobComparison, name: str) -> str | None:
    """The label an expectation means: a label itself, or a scheme that only one label uses."""
    if name in job.labels:
        return name
    using = [label for label in job.labels if comparison.results.scheme_of(label) == name]
    return using[0] if len(using) == 1 else None


def _better(job: JobComparison, metric: Metric, ours: str, theirs: str) -> tuple[Verdict, str]:
    """The 95 % intervals of the two figures do not overlap, in the better direction."""
    mine, other = job.estimates[ours, metric.name], job.estimates[theirs, metric.name]
    for label, one in ((ours, mine), (theirs, other)):
        if not one.has_interval:
            return "cannot tell", f"{label}: {one.why}"
    words = f"{show_estimate(mine, metric)} against {show_estimate(other, metric)}"
    apart = _ends(mine)[1] < _ends(other)[0] if metric.better == "lower" else _ends(mine)[0] > _ends(other)[1]
    return ("holds" if apart else "does not hold"), words


def _not_worse(
    comparison: Comparison, job: JobComparison, metric: Metric, ours: str, theirs: str
) -> tuple[Verdict, str]:
    """The paired interval of the difference reaches the good side or no difference."""
    runs = comparison.runs[comparison.runs["job"] == job.job]
    found = gain(comparison.results, runs, job.job, ours, theirs, metric)
    if not found.estimate.has_interval:
        return "cannot tell", found.estimate.why
    neutral = 1.0 if metric.compare == "ratio" else 0.0
    low, high = _ends(found.estimate)
    reaches = low <= neutral if metric.better == "lower" else high >= neutral
    return ("holds" if reaches else "does not hold"), show_gain(found)


def _ends(estimate: Estimate) -> tuple[float, float]:
    if estimate.low is None or estimate.high is None:
        raise ValueError("the estimate has no interval")
    return estimate.low, estimate.high
