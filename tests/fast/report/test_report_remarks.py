"""Words for what may surprise, only where it is so."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from synthetic_results import PROFILE, make_results, record_again

from dlcp.model.metrics import METRICS
from dlcp.report.analysis.comparison import JobComparison
from dlcp.report.analysis.remarks import compressed_remark, message_sizes_remark, slow_messages_remark
from dlcp.report.data.load import ideal_s_of, load
from dlcp.report.data.statistics import Estimate, Gain


def job(**verdicts: dict[str, str]) -> JobComparison:
    """A job in which the subject "ours" has these verdicts: against → metric → verdict."""
    names = list(dict.fromkeys(name for given in verdicts.values() for name in given))
    unknown = Estimate(None, None, None, 0, "paired t")
    gains = {
        (against, name): Gain(METRICS[name], "ours", against, unknown, given.get(name, "n/a"))
        for against, given in verdicts.items()
        for name in names
    }
    metrics = tuple(METRICS[name] for name in names)
    return JobComparison("j", (*verdicts, "ours"), "ours", metrics, {}, gains, {}, None)


def test_remark__names_what_is_slower_and_than_whom() -> None:
    said = slow_messages_remark(
        job(
            a={"jct_s": "better", "message_p50_s": "worse", "pull_p99_s": "no clear difference"},
            b={"jct_s": "no clear difference", "message_p50_s": "worse"},
            c={"jct_s": "better", "message_p50_s": "better", "pull_p99_s": "worse"},
        )
    )
    assert said.startswith("Many messages take longer under ours than under a and c (message p50, pull p99), and yet")


def test_sizes__are_told_where_messages_are_not_alike(tmp_path: Path) -> None:
    results = make_results(tmp_path, repeats=1, iterations=2, tensors=2)
    assert message_sizes_remark(load(results), PROFILE) == ""
    for file in results.glob("tcp-profile-*/messages.parquet"):
        table = pq.read_table(file)
        at = table.column_names.index("bytes")
        pq.write_table(table.set_column(at, table.schema.field(at), pc.divide(table["bytes"], 2)), file)
    record_again(results)
    assert message_sizes_remark(load(results), PROFILE).startswith("Messages are not of one size (in the mean: TCP ")


@pytest.mark.parametrize(
    "verdicts",
    [
        {"jct_s": "better", "message_p50_s": "better", "pull_p50_s": "no clear difference"},
        {"jct_s": "worse", "iteration_p50_s": "no clear difference", "message_p50_s": "worse"},
        {"iteration_p50_s": "better", "exposed_comm_s": "worse", "time_to_accuracy_s": "worse"},
        {"pull_p50_s": "worse"},
    ],
)
def test_remark__is_silent_where_nothing_surprises(verdicts: dict[str, str]) -> None:
    assert slow_messages_remark(job(a=verdicts)) == ""


def test_remark__says_what_compressed_gradients_are_held_against(tmp_path: Path) -> None:
    """The line of the ideal transport stays that of whole gradients; a compressed scheme's ratio has its own."""
    root = make_results(tmp_path, repeats=1)
    whole = load(root)
    assert compressed_remark(whole, PROFILE) == ""
    line_s = ideal_s_of(whole, PROFILE, "jct_s")
    for file in root.glob("tcp-tuned-profile-*/result.json"):
        stored = json.loads(file.read_text())
        stored["ideal"] |= {"jct_s": 0.001, "bytes_share": 0.0625}
        file.write_text(json.dumps(stored))
    found = load(root)
    assert "under TCP tuned 6.25 %. " in compressed_remark(found, PROFILE)
    assert ideal_s_of(found, PROFILE, "jct_s") == line_s
