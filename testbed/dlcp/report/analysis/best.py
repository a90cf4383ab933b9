"""DLCP against the best other scheme, whichever that is: honest about the choice.

To pick the winner of a table and then quote its interval as if it had been named beforehand is a selection: that is not
the interval of the best scheme. Here the choice is inside the interval. The advantage over the best other is the
smallest of the advantages a1 … ak over each other. Its lower end is the smallest of their 95 % intervals' lower ends,
which needs no correction: one of them is the true smallest one's. Its upper end is the smallest of upper ends at
1 − 5 %/k (Bonferroni), because any of the k may fail. So it covers 95 % or more, whichever scheme is the best in truth.
A rival that lacks a few runs is counted with the wider interval of those it has: to leave it out would be a choice.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import pandas as pd

from dlcp.model.metrics import METRICS, Metric
from dlcp.report.analysis.comparison import Comparison, JobComparison, gain
from dlcp.report.data.formatting import show_number
from dlcp.report.data.load import Results
from dlcp.report.data.statistics import CONFIDENCE, MIN_REPEATS, Estimate

SPEEDUPS = ("jct_s", "iteration_p50_s", "message_p99_s", "time_to_accuracy_s", "final_accuracy")
"""Metrics in which reports compare the subject with the best other scheme."""
FEWEST_OF_A_RIVAL = 3
"""Pairs of a rival that counts together with others that have MIN_REPEATS: Student's t covers 95 % at every number of
them, at three only widely (coverage measured at 3, 5, 10 and 20: 95 to 96 %).
"""


@dataclass(frozen=True)
class BestOther:
    """One scheme of DLCP's against the best of the others, in one metric of one job.

    best: the label that is best in these results; "" when no other has any pair. estimate: the advantage over it: how
    many times as fast (metrics that compare by ratio), or the difference, positive = better. possible: the others that
    may be the best in truth, the best first: their advantages' intervals overlap its. few: others that are counted with
    fewer than MIN_REPEATS pairs → how many. left_out: others without
    enough pairs of trusted runs → why; while there are any, the best may be one of them.
    """

    job: str
    subject: str
    metric: Metric
    best: str
    estimate: Estimate
    possible: tuple[str, ...]
    left_out: dict[str, str]
    few: dict[str, int] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """ "better", "worse", "no clear difference", or "n/a": without an interval, or better than all that are counted
        while one that is not may be better still."""
        low, high = self.estimate.low, self.estimate.high
        if low is None or high is None or (low > self._neutral and self.left_out):
            return "n/a"
        return "better" if low > self._neutral else "worse" if high < self._neutral else "no clear difference"

    @property
    def _neutral(self) -> float:
        return 1.0 if self.metric.compare == "ratio" else 0.0

    @property
    def words(self) -> str:
        """ "+32 % [18, 45] over TCP tuned (or P3)", or why there is none."""
        gain_estimate = self.estimate
        if gain_estimate.value is None or gain_estimate.low is None or gain_estimate.high is None:
            return f"n/a ({gain_estimate.why})"
        ratio = self.metric.compare == "ratio"
        ends = [
            100 * (end - 1 if ratio else end) for end in (gain_estimate.value, gain_estimate.low, gain_estimate.high)
        ]
        decimals = (0 if ends[2] - ends[1] >= 4 else 1) if ratio else 2
        value, low, high = (show_number(end, decimals) for end in ends)
        shown = f"{'+' if ends[0] > 0 else ''}{value} {'%' if ratio else 'pt'} [{low}, {high}]"
        return f"{shown} over {self.rival}"

    @property
    def rival(self) -> str:
        """ "TCP tuned (or P3); of LTP 4 pairs; PIAS not counted"."""
        others = f" (or {', '.join(self.possible[1:])})" if len(self.possible) > 1 else ""
        few = "".join(f"; of {label} {pairs} pairs" for label, pairs in self.few.items())
        omitted = f"; {', '.join(self.left_out)} not counted" if self.left_out else ""
        return f"{self.best}{others}{few}{omitted}"


def others_of(results: Results, job: str) -> tuple[str, ...]:
    """The labels of a job whose schemes are not DLCP's, its parts or its combinations."""
    return tuple(label for label in results.labels(job) if not results.is_dlcp(label))


def over_tcp_of(results: Results, job: str) -> tuple[str, ...]:
    """The others that TCP carries; the rest run on DLCP's engine, with its repair and its pacing."""
    return tuple(label for label in others_of(results, job) if results.example(job, label).traffic.get("tcp"))


def best_other(
    comparison: Comparison,
    job: str,
    metric: str = "jct_s",
    subject: str | None = None,
    among: Collection[str] | None = None,
) -> BestOther:
    """The advantage of a label (default: the job's subject) over the best other scheme in a metric, of all or of those
    labels that are named.

    Raises KeyError when there is no such job or metric.
    """
    compared = comparison.job(job)
    if compared is None:
        raise KeyError(f"no run of job {job!r}")
    measure, own_label = METRICS[metric], subject or compared.subject
    advantages: dict[str, tuple[Estimate, Estimate]] = {}
    left_out: dict[str, Estimate] = {}
    few: dict[str, tuple[Estimate, Estimate]] = {}
    others = [
        label
        for label in others_of(comparison.results, job)
        if label != own_label and (among is None or label in among)
    ]

    def advantage(other: str, fewest: int) -> tuple[Estimate, Estimate]:
        plain, wide = (
            _advantage(comparison, job, own_label, other, measure, confidence, fewest)
            for confidence in (CONFIDENCE, 1 - (1 - CONFIDENCE) / len(others))
        )
        return plain, wide

    for other in others:
        sure = advantage(other, MIN_REPEATS)
        if sure[0].has_interval:
            advantages[other] = sure
            continue
        left_out[other] = sure[0]
        if (thin := advantage(other, FEWEST_OF_A_RIVAL))[0].has_interval:
            few[other] = thin
    if advantages:
        advantages |= few
        left_out = {other: entry for other, entry in left_out.items() if other not in few}
    whys = {other: entry.why for other, entry in left_out.items()}
    if not advantages:
        return _without_interval(job, own_label, measure, left_out, whys)
    order = sorted(advantages, key=lambda other: _end(advantages[other][0].value))
    low = min(_end(plain.low) for plain, _ in advantages.values())
    high = min(_end(wide.high) for _, wide in advantages.values())
    first = advantages[order[0]][0]
    possible = tuple(other for other in order if _end(advantages[other][0].low) <= high)
    return BestOther(
        job,
        own_label,
        measure,
        order[0],
        Estimate(first.value, low, high, first.n, "best other"),
        possible,
        whys,
        {other: plain.n for other, (plain, _) in few.items()},
    )


def _without_interval(
    job: str, ours: str, metric: Metric, left_out: dict[str, Estimate], whys: dict[str, str]
) -> BestOther:
    """No other has enough pairs: the best of those that have any, and why there is no interval."""
    known = {other: entry for other, entry in left_out.items() if entry.value is not None}
    why = "; ".join(dict.fromkeys(whys.values())) or "there is no other scheme"
    best = min(known, default="", key=lambda other: _end(known[other].value))
    value, n = (known[best].value, known[best].n) if best else (None, 0)
    return BestOther(job, ours, metric, best, Estimate(value, None, None, n, "best other", why), (), whys)


def best_others(comparison: Comparison) -> tuple[BestOther, ...]:
    """Best other scheme of every job that has one: for every metric of SPEEDUPS and every label of the plain scheme."""
    return tuple(
        best_other(comparison, job.job, name, label)
        for job in comparison.jobs
        if others_of(comparison.results, job.job)
        for name in SPEEDUPS
        if METRICS[name] in job.metrics
        for label in ours_of(comparison.results, job)
    )


def table(comparison: Comparison) -> pd.DataFrame:
    """One row a BestOther: job, label, metric, best, value, low, high, n, verdict, possible, left_out, why."""
    columns = ["job", "label", "metric", "best", "value", "low", "high", "n", "verdict", "possible", "left_out", "why"]
    rows = [
        {
            "job": best.job,
            "label": best.subject,
            "metric": best.metric.name,
            "best": best.best,
            "value": best.estimate.value,
            "low": best.estimate.low,
            "high": best.estimate.high,
            "n": best.estimate.n,
            "verdict": best.verdict,
            "possible": ", ".join(best.possible),
            "left_out": ", ".join(best.left_out),
            "why": best.estimate.why,
        }
        for best in best_others(comparison)
    ]
    return pd.DataFrame(rows, columns=columns)


def ours_of(results: Results, job: JobComparison) -> list[str]:
    """The subject of a job first, then other labels of plain DLCP (other knobs)."""
    return [
        job.subject,
        *(label for label in job.labels if label != job.subject and results.scheme_of(label) == "dlcp"),
    ]


def _advantage(
    comparison: Comparison, job: str, ours: str, other: str, metric: Metric, confidence: float, fewest: int
) -> Estimate:
    """How many times as fast ours is, or by how much better: above 1, or above 0, is good."""
    runs = comparison.runs[comparison.runs["job"] == job]
    if metric.better == "lower":
        return gain(comparison.results, runs, job, other, ours, metric, confidence, fewest).estimate
    if metric.compare == "ratio":
        raise ValueError(f"{metric.name}: ratios where more is better are not compared with the best other")
    return gain(comparison.results, runs, job, ours, other, metric, confidence, fewest).estimate


def _end(value: float | None) -> float:
    if value is None:
        raise ValueError("the estimate has no interval")
    return value
