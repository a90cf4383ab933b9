"""The result in sentences, for people who read nothing else: numbers, intervals, and no claim beyond them."""

from __future__ import annotations

from dlcp.model.metrics import METRICS
from dlcp.report.analysis.best import best_other, others_of
from dlcp.report.analysis.comparison import Comparison, JobComparison
from dlcp.report.data.formatting import show_estimate, show_number
from dlcp.report.data.statistics import Estimate, Gain

MANY = 5
"""Labels; of more, sentences tell the best other only, and tables the rest."""
_SAYS = {
    "jct_s": "finishes job {job} in {figure}",
    "message_p99_s": "has 99 % of the messages of job {job} done in {figure}",
    "time_to_accuracy_s": "brings job {job} to {target} test accuracy in {figure}",
}


def headline(comparison: Comparison) -> tuple[str, ...]:
    """All jobs' sentences."""
    return tuple(sentence for job in comparison.jobs for sentence in job_sentences(comparison, job))


def job_sentences(comparison: Comparison, job: JobComparison) -> list[str]:
    """Completion, the tail of message completion, accuracy where the job trains, and the best other scheme."""
    sentences = []
    many = len(job.labels) > MANY
    for name, says in _SAYS.items():
        metric = METRICS[name]
        estimate = job.estimates.get((job.subject, name))
        if estimate is None or estimate.value is None:
            sentences += _unbelieved(job) if name == "jct_s" else []
            continue
        target = f"{100 * job.target_accuracy:.1f} %" if job.target_accuracy is not None else ""
        start = says.format(job=job.job, figure=show_estimate(estimate, metric), target=target)
        gains = [] if many else [_against(job.gains[against, name]) for against in job.labels[:-1]]
        sentences.append(f"{job.subject} {start}" + (": " + "; ".join(gains) if gains else "") + ".")
    return sentences + [sentence for sentence in (_best_other(comparison, job), _accuracy(job)) if sentence]


def _unbelieved(job: JobComparison) -> list[str]:
    """That the subject has runs of a job, but none to believe."""
    counts = {status: count for status, count in job.counts[job.subject].items() if count}
    if not counts or counts.get("ok"):
        return []
    shown = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    return [f"{job.subject} has no run of job {job.job} that can be believed ({shown})."]


def _best_other(comparison: Comparison, job: JobComparison) -> str:
    """Where there are several others to choose from."""
    if len(others_of(comparison.results, job.job)) < 2 or METRICS["jct_s"] not in job.metrics:
        return ""
    best = best_other(comparison, job.job, "jct_s")
    return f"Additional speed-up of {job.subject} in job {job.job}: {best.words}, the best of the other schemes."


def _against(gain: Gain) -> str:
    """One gain in words: "31 % [28, 34] less than tcp", "no clear difference from tcp-tuned (−1 % [−4, +2])"."""
    estimate = gain.estimate
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return f"against {gain.against} these results cannot tell ({estimate.why})"
    change, low, high = (100 * (end - 1) for end in (estimate.value, estimate.low, estimate.high))
    decimals = 0 if min(abs(change), high - low) >= 2 else 1
    if gain.verdict == "no clear difference":
        shown = ", ".join(show_number(end, decimals) for end in (low, high))
        return f"no clear difference from {gain.against} ({show_number(change, decimals)} % [{shown}])"
    small, large = sorted((abs(low), abs(high)))
    word = "less" if change < 0 else "more"
    return (
        f"{show_number(abs(change), decimals)} % [{show_number(small, decimals)}, {show_number(large, decimals)}] "
        f"{word} than {gain.against}"
    )


def _accuracy(job: JobComparison) -> str:
    metric = METRICS["final_accuracy"]
    if metric not in job.metrics:
        return ""
    if len(job.labels) > MANY:
        return ""
    figures = [_figure(label, job.estimates[label, metric.name]) for label in job.labels[::-1]]
    return f"Final test accuracy of job {job.job}: {', '.join(figures)}."


def _figure(label: str, accuracy: Estimate) -> str:
    """A scheme's accuracy, or why there is none."""
    if accuracy.value is None:
        return f"{label} unknown ({accuracy.why or 'no run that can be believed'})"
    return f"{label} {show_estimate(accuracy, METRICS['final_accuracy'])}"
