"""What a reader would stumble over, in words, and only where these results show it."""

from __future__ import annotations

from dlcp.report.comparison import JobComparison

_SINGLE = ("message_", "push_", "pull_")
_WHOLE = ("jct_s", "iteration_p50_s")


def slow_messages_remark(job: JobComparison) -> str:
    """Why iterations can be shorter although some messages take longer; empty where it is not so.

    Said of the baselines over which the subject is clearly better in an iteration's or the job's time and clearly
    worse in a time of single messages.
    """
    slower: dict[str, None] = {}
    over = []
    for against in job.labels[:-1]:
        verdicts = {metric.name: job.gains[against, metric.name].verdict for metric in job.metrics}
        worse = [metric.title for metric in job.metrics
                 if metric.name.startswith(_SINGLE) and verdicts[metric.name] == "worse"]  # fmt: skip
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
