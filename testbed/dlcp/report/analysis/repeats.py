"""Comparisons that these repeats cannot decide, and the repeats that would decide them."""

from __future__ import annotations

from dataclasses import dataclass

from dlcp.report.analysis.comparison import Comparison, JobComparison
from dlcp.report.data.formatting import show_gain
from dlcp.report.data.statistics import MIN_REPEATS, MOST_REPEATS, Gain

METRICS = ("jct_s", "iteration_p50_s", "message_p99_s", "time_to_accuracy_s", "steps_to_accuracy", "final_accuracy")
"""The figures whose rank people ask for."""


@dataclass(frozen=True)
class Unranked:
    """A gain without a clear direction. more: repeats that would probably give it one; None: not known, or too many."""

    job: str
    gain: Gain
    more: int | None

    @property
    def words(self) -> str:
        """The pair, its interval, and what to do about it."""
        estimate = self.gain
        pair = f"{self.job}: {estimate.metric.title}, {estimate.subject} against {estimate.against}"
        if not estimate.estimate.has_interval:
            return f"{pair}: {estimate.estimate.why}; {self.more} more repeats would give an interval"
        shown = f"{pair}: no clear difference ({show_gain(estimate)})"
        if self.more is None:
            return (
                f"{shown}; if the difference is as measured, more than {MOST_REPEATS} repeats would be needed to see it"
            )
        return f"{shown}; about {self.more} more repeats would rank them, if difference and spread are as measured"


def unranked(comparison: Comparison) -> tuple[Unranked, ...]:
    """Every gain of every job's subject that has pairs and no direction; tails compared through pooled samples are
    left out, because repeats are not their sample."""
    return tuple(undecided for job in comparison.jobs for undecided in _of_job(job))


def _of_job(job: JobComparison) -> list[Unranked]:
    undecided = []
    for against in job.labels[:-1]:
        for name in METRICS:
            gain = job.gains.get((against, name))
            if gain is None or gain.estimate.n == 0 or gain.estimate.method != "paired t":
                continue
            n = gain.estimate.n
            if not gain.estimate.has_interval:
                undecided.append(Unranked(job.job, gain, MIN_REPEATS - n))
            elif gain.verdict == "no clear difference" and not _the_same(gain):
                more = None if gain.repeats is None else max(gain.repeats - n, 1)
                undecided.append(Unranked(job.job, gain, more))
    return undecided


def _the_same(gain: Gain) -> bool:
    """Not only alike but equal, value for value: no repeat will part them."""
    return gain.estimate.low == gain.estimate.high
