"""Words for what may surprise, only where it is so."""

from __future__ import annotations

import pytest

pytest.importorskip("pandas", reason="pandas is missing; pip install 'dlcp[report]'")

from dlcp.model.metrics import METRICS
from dlcp.report.comparison import Gain, JobComparison
from dlcp.report.remarks import slow_messages_remark
from dlcp.report.statistics import Estimate


def job(**verdicts: dict[str, str]) -> JobComparison:
    """A job in which the subject "ours" has these verdicts: against → metric → verdict."""
    names = list(dict.fromkeys(name for given in verdicts.values() for name in given))
    unknown = Estimate(None, None, None, 0, "paired t")
    gains = {(against, name): Gain(METRICS[name], "ours", against, unknown, given.get(name, "n/a"))
             for against, given in verdicts.items() for name in names}  # fmt: skip
    metrics = tuple(METRICS[name] for name in names)
    return JobComparison("j", (*verdicts, "ours"), "ours", metrics, {}, gains, {}, None)


def test_remark__names_what_is_slower_and_than_whom() -> None:
    said = slow_messages_remark(job(
        a={"jct_s": "better", "message_p50_s": "worse", "pull_p99_s": "no clear difference"},
        b={"jct_s": "no clear difference", "message_p50_s": "worse"},
        c={"jct_s": "better", "message_p50_s": "better", "pull_p99_s": "worse"},
    ))  # fmt: skip
    assert said.startswith("Many messages take longer under ours than under a and c (message p50, pull p99), and yet")


@pytest.mark.parametrize("verdicts", [
    {"jct_s": "better", "message_p50_s": "better", "pull_p50_s": "no clear difference"},
    {"jct_s": "worse", "iteration_p50_s": "no clear difference", "message_p50_s": "worse"},
    {"iteration_p50_s": "better", "exposed_comm_s": "worse", "time_to_accuracy_s": "worse"},
    {"pull_p50_s": "worse"},
])  # fmt: skip
def test_remark__is_silent_where_nothing_surprises(verdicts: dict[str, str]) -> None:
    assert slow_messages_remark(job(a=verdicts)) == ""
