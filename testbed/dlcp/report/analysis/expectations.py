"""Does what the experiment claims hold? Yes, no, or: these results cannot tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from dlcp.model.experiment import Expectation
from dlcp.model.metrics import BEST_OTHER, METRICS, Metric
from dlcp.report.analysis.best import best_other
from dlcp.report.analysis.comparison import Comparison, JobComparison, gain
from dlcp.report.data.formatting import show_estimate, show_gain
from dlcp.report.data.statistics import Estimate

Verdict = Literal["holds", "does not hold", "cannot tell"]


@dataclass(frozen=True)
class Outcome:
    """One expectation of the experiment file, its verdict and the numbers behind it.

    paper, why: what was published that leads to it, and the mechanism that should bring it, as the file says.
    ran: whether there is a run of the job and of the schemes; without one there is no verdict.
    """

    job: str
    metric: str
    scheme: str
    against: str
    relation: str
    margin: float | None
    verdict: Verdict
    words: str
    paper: str = ""
    why: str = ""
    ran: bool = True

    @property
    def claim(self) -> str:
        """The expectation as a sentence."""
        relation = "better than" if self.relation == "better" else "no worse than"
        metric = METRICS.get(self.metric)
        claim = f"{self.job}: {metric.title if metric else self.metric} of {self.scheme} {relation} {self.against}"
        if self.margin is None or metric is None:
            return claim
        return f"{claim} by {100 * self.margin:g} {'%' if metric.compare == 'ratio' else 'pt'}"


def evaluate(comparison: Comparison, expect: Iterable[Expectation] | None = None) -> tuple[Outcome, ...]:
    """Judge each expectation once, in order. expect: the experiment file's; None takes those that the newest run
    carries in result.json, because a file's may have been edited since older runs."""
    expected = comparison.results.expect if expect is None else expect
    return tuple(_outcome(comparison, expectation) for expectation in dict.fromkeys(expected))


def _outcome(comparison: Comparison, one: Expectation) -> Outcome:
    job = comparison.job(one.job)
    missing = _missing_runs(comparison, job, one)
    verdict: Verdict = "cannot tell"
    words = missing
    if job is not None and not missing:
        verdict, words = _judge(comparison, job, one)
    return Outcome(
        one.job,
        one.metric,
        one.scheme,
        one.against,
        one.relation,
        one.margin,
        verdict,
        words,
        one.paper,
        one.why,
        ran=not missing,
    )


def _missing_runs(comparison: Comparison, job: JobComparison | None, one: Expectation) -> str:
    """Name the job or schemes that were not run, in words; empty where all were."""
    if job is None:
        return "no run of this job"
    names = [name for name in (one.scheme, one.against) if name != BEST_OTHER]
    missing = [name for name in names if label_of(comparison, job, name) is None]
    return f"no run of {' and '.join(missing)}" if missing else ""


def _judge(comparison: Comparison, found: JobComparison, one: Expectation) -> tuple[Verdict, str]:
    metric = METRICS.get(one.metric)
    if metric is None:
        return "cannot tell", f"there is no metric {one.metric!r}"
    if metric not in found.metrics:
        return "cannot tell", f"no run of this job has {metric.title}"
    if one.against == BEST_OTHER:
        return _best(comparison, found, metric, label_of(comparison, found, one.scheme) or "", one)
    ours, theirs = (label_of(comparison, found, name) or "" for name in (one.scheme, one.against))
    if one.relation == "better":
        return _better(comparison, found, metric, ours, theirs)
    return _not_worse(comparison, found, metric, ours, theirs, one.margin)


def label_of(comparison: Comparison, job: JobComparison, name: str) -> str | None:
    """The label an expectation means: a label itself, or a scheme that only one label uses; None when there is no run
    of it in the job."""
    if name in job.labels:
        return name
    using = [label for label in job.labels if comparison.results.scheme_of(label) == name]
    return using[0] if len(using) == 1 else None


def _better(comparison: Comparison, job: JobComparison, metric: Metric, ours: str, theirs: str) -> tuple[Verdict, str]:
    """The 95 % intervals of the two figures do not overlap, in the better direction. Where they do, the words also say
    what the pairs of the same seed tell: if these are clearly better, the two contradict each other, nothing is told.
    """
    mine, other = job.estimates[ours, metric.name], job.estimates[theirs, metric.name]
    for label, one in ((ours, mine), (theirs, other)):
        if not one.has_interval:
            return "cannot tell", one.why if label in one.why else f"{label}: {one.why}"
    words = f"{show_estimate(mine, metric)} against {show_estimate(other, metric)}"
    apart = _ends(mine)[1] < _ends(other)[0] if metric.better == "lower" else _ends(mine)[0] > _ends(other)[1]
    if apart:
        return "holds", words
    runs = comparison.runs[comparison.runs["job"] == job.job]
    found = gain(comparison.results, runs, job.job, ours, theirs, metric)
    paired = f"; paired: {show_gain(found)}" if found.estimate.has_interval else ""
    return ("cannot tell" if found.verdict == "better" else "does not hold"), words + paired


def _not_worse(
    comparison: Comparison, job: JobComparison, metric: Metric, ours: str, theirs: str, margin: float | None
) -> tuple[Verdict, str]:
    """The paired interval reaches the good side or no difference; with a margin, all of it is within the margin."""
    runs = comparison.runs[comparison.runs["job"] == job.job]
    change = gain(comparison.results, runs, job.job, ours, theirs, metric)
    if not change.estimate.has_interval:
        return "cannot tell", change.estimate.why
    neutral = 1.0 if metric.compare == "ratio" else 0.0
    low, high = _ends(change.estimate)
    best, worst = (low, high) if metric.better == "lower" else (-high, -low)
    limit = neutral if metric.better == "lower" else -neutral
    holds = best <= limit if margin is None else worst < limit + margin
    return ("holds" if holds else "does not hold"), show_gain(change)


def _best(
    comparison: Comparison, job: JobComparison, metric: Metric, ours: str, one: Expectation
) -> tuple[Verdict, str]:
    """better: the interval of the advantage over the best other is all on the good side. not-worse: it reaches the good
    side or no difference; with a margin, all of it is within the margin. While another scheme has too few pairs to be
    counted, it may be the best: then a claim can fail, but not hold."""
    best = best_other(comparison, job.job, metric.name, ours)
    if not best.estimate.has_interval:
        return "cannot tell", best.estimate.why
    low, high = _ends(best.estimate)
    neutral = 1.0 if metric.compare == "ratio" else 0.0
    if one.relation == "better":
        holds = low > neutral
    elif one.margin is None:
        holds = high >= neutral
    else:
        holds = low > (1 / (1 + one.margin) if metric.compare == "ratio" else -one.margin)
    if holds and best.left_out:
        return "cannot tell", best.words
    return ("holds" if holds else "does not hold"), best.words


def _ends(estimate: Estimate) -> tuple[float, float]:
    if estimate.low is None or estimate.high is None:
        raise ValueError("the estimate has no interval")
    return estimate.low, estimate.high
