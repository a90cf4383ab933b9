"""Remarks on what could mislead a reader, only where these results show it."""

from __future__ import annotations

from dlcp.model.units import show_fraction
from dlcp.report.analysis.comparison import JobComparison
from dlcp.report.data.load import Results

_SINGLE = ("message_", "push_", "pull_")
_WHOLE = ("jct_s", "iteration_p50_s")
_ONE_SIZE = 1.1
"""The largest mean size of messages over the smallest, up to which they count as one."""


def remarks(results: Results, job: JobComparison) -> list[str]:
    """All that there is to be said of a job."""
    sentences = slow_messages_remark(job), message_sizes_remark(results, job.job), compressed_remark(results, job.job)
    return [sentence for sentence in sentences if sentence]


def slow_messages_remark(job: JobComparison) -> str:
    """Why iterations can be shorter although some messages take longer; empty where it is not so.

    Said of the baselines over which the subject is clearly better in an iteration's or the job's time and clearly
    worse in a time of single messages.
    """
    slower: dict[str, None] = {}
    over = []
    for against in job.labels[:-1]:
        verdicts = {metric.name: job.gains[against, metric.name].verdict for metric in job.metrics}
        worse = [
            metric.title
            for metric in job.metrics
            if metric.name.startswith(_SINGLE) and verdicts[metric.name] == "worse"
        ]
        if worse and any(verdicts.get(name) == "better" for name in _WHOLE):
            slower |= dict.fromkeys(worse)
            over.append(against)
    if not over:
        return ""
    return (
        f"Many messages take longer under {job.subject} than under {' and '.join(over)} ({', '.join(slower)}), and yet "
        "iterations or the whole job are shorter: not every message holds training up. A transport that "
        "serves first what is needed first lets the other messages wait on purpose, so their times tell the order of "
        "service; times of iterations and of the job tell what it costs."
    )


def message_sizes_remark(results: Results, job: str) -> str:
    """Mean message size of each scheme, where the sizes differ; empty where they do not. Trusted runs."""
    sizes_bytes = {}
    for label in results.labels(job):
        digests = [results.digest(run).every for run in results.of(job, label) if run.trusted]
        if messages := sum(digest.messages for digest in digests):
            sizes_bytes[label] = sum(digest.bytes for digest in digests) / messages
    if not sizes_bytes or max(sizes_bytes.values()) <= _ONE_SIZE * min(sizes_bytes.values()):
        return ""
    sizes = ", ".join(f"{label} {size / 1e3:.3g} kB" for label, size in sizes_bytes.items())
    return (
        f"Messages are not of one size (in the mean: {sizes}). Times of single messages compare only among those of "
        "about one size; times of iterations and of the job compare among all."
    )


def compressed_remark(results: Results, job: str) -> str:
    """Schemes of a job that send less than its gradients, and their ideal; empty where none does."""
    shares = {}
    for label in results.labels(job):
        shares_sent = [
            run.result.ideal["bytes_share"] for run in results.of(job, label) if "bytes_share" in run.result.ideal
        ]
        if shares_sent:
            shares[label] = sum(shares_sent) / len(shares_sent)
    if not shares:
        return ""
    shown = ", ".join(f"{label} {show_fraction(share)}" for label, share in shares.items())
    return (
        f"Compressed gradients: of the bytes of gradients and of what comes of them, there travel under {shown}. Their "
        "times over the ideal's are over an ideal transport of what they send; the line of the ideal transport is that "
        "of whole gradients. Coding takes CPU, not the ideal's time."
    )
