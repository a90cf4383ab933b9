"""Why an expectation does not hold, as far as the runs themselves measured it."""

from __future__ import annotations

from dlcp.model.metrics import METRICS
from dlcp.report.comparison import Comparison, JobComparison
from dlcp.report.expectations import Outcome
from dlcp.report.words import show_estimate, show_number

_SHARES = ("resent_share", "dropped_share", "lost_share")
"""What a transport could have saved, or has given up."""


def cause(comparison: Comparison, outcome: Outcome) -> str:
    """The room that an ideal transport leaves, what was resent, dropped and lost, and the communication that was not
    hidden, of the two schemes; empty where nothing was measured."""
    job = comparison.job(outcome.job)
    if job is None:
        return ""
    ours, theirs = (_label(comparison, job, name) for name in (outcome.scheme, outcome.against))
    if ours is None or theirs is None:
        return ""
    said = [_room(job, theirs), *(_both(job, ours, theirs, name) for name in (*_SHARES, "exposed_comm_s"))]
    return "; ".join(one for one in said if one)


def _label(comparison: Comparison, job: JobComparison, name: str) -> str | None:
    """A label itself, or the only label of a scheme."""
    using = [label for label in job.labels if name in (label, comparison.results.scheme_of(label))]
    return name if name in job.labels else using[0] if len(using) == 1 else None


def _room(job: JobComparison, theirs: str) -> str:
    found = job.estimates.get((theirs, "jct_over_ideal"))
    if found is None or found.value is None:
        return ""
    room = show_number(100 * (found.value - 1), 0)
    return f"{theirs} is {room} % above the ideal transport's job completion, which is all that can be gained on it"


def _both(job: JobComparison, ours: str, theirs: str, name: str) -> str:
    metric = METRICS[name]
    if metric not in job.metrics:
        return ""
    shown = [f"{show_estimate(job.estimates[label, name], metric)} ({label})" for label in (ours, theirs)]
    return f"{metric.title} {' against '.join(shown)}"
