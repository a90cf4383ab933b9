"""Why an expectation does not hold, as far as the runs themselves measured it."""

from __future__ import annotations

from dlcp.model.metrics import BEST_OTHER, METRICS
from dlcp.report.analysis.best import best_other
from dlcp.report.analysis.comparison import Comparison, JobComparison
from dlcp.report.analysis.expectations import Outcome, label_of
from dlcp.report.data.formatting import show_estimate, show_number

_SHARES = ("resent_share", "dropped_share", "lost_share")
"""Shares that show what a transport could have saved, or has given up."""


def cause(comparison: Comparison, outcome: Outcome) -> str:
    """The room that an ideal transport leaves, what was resent, dropped and lost, and the communication that was not
    hidden, of the two schemes; against the best other, of the one that is best here. Empty where nothing was measured.
    """
    job = comparison.job(outcome.job)
    if job is None:
        return ""
    our_label, their_label = (label_of(comparison, job, name) for name in (outcome.scheme, outcome.against))
    if outcome.against == BEST_OTHER and our_label is not None and METRICS.get(outcome.metric) in job.metrics:
        their_label = best_other(comparison, job.job, outcome.metric, our_label).best
    if not our_label or not their_label:
        return ""
    sentences = [
        _room(job, their_label),
        *(_both(job, our_label, their_label, name) for name in (*_SHARES, "exposed_comm_s")),
    ]
    return "; ".join(sentence for sentence in sentences if sentence)


def _room(job: JobComparison, theirs: str) -> str:
    estimate = job.estimates.get((theirs, "jct_over_ideal"))
    if estimate is None or estimate.value is None:
        return ""
    room = show_number(100 * (estimate.value - 1), 0)
    return (
        f"{theirs} is {room} % above the ideal transport's job completion, which is all that can be gained on it by "
        "moving the same bytes"
    )


def _both(job: JobComparison, ours: str, theirs: str, name: str) -> str:
    metric = METRICS[name]
    if metric not in job.metrics:
        return ""
    shown = [f"{show_estimate(job.estimates[label, name], metric)} ({label})" for label in (ours, theirs)]
    return f"{metric.title} {' against '.join(shown)}"
