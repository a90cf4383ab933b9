"""What is read, what is left out, and how that is said."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from damage import Damage, change_every_37th_byte, cut_in_half, zero_the_rows
from synthetic_results import PROFILE, REAL, make_results

from dlcp.errors import Problem
from dlcp.model.loading.stored_result import damaged_tables, read_result
from dlcp.model.result import SINCE
from dlcp.model.tables import check_table
from dlcp.report import report
from dlcp.report.analysis.comparison import compare
from dlcp.report.analysis.monitors import left_out_rows
from dlcp.report.analysis.settings import fault_lines
from dlcp.report.data.load import load
from dlcp.report.data.metrics import queue_counts
from dlcp.report.data.regime_facts import regime_caption
from dlcp.report.output.html import page


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    return make_results(tmp_path, repeats=2, iterations=3, tensors=2)


FAULTS = [{"kind": "link-down", "at": 1.0, "for": 0.4, "link": ["l2", "s2"], "reroute_after": 0.05}]


def edit(run: Path, /, **fields: object) -> None:
    file = run / "result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def test_load__results_experiment_and_single_run(experiment: Path) -> None:
    whole = load(experiment.parent)
    assert len(whole.runs) == len(load(experiment).runs) == 12
    assert whole.directory == experiment
    assert whole.labels() == ("TCP", "TCP tuned", "DLCP")  # DLCP last
    assert whole.jobs == (PROFILE, REAL)
    assert whole.left_out == ()
    one = load(experiment / "dlcp-real-1")
    assert [run.result.run_id for run in one.runs] == ["dlcp-real-1"]
    assert one.directory == experiment / "dlcp-real-1"


def test_subject__without_dlcp_is_what_most_claims_are_against(experiment: Path) -> None:
    assert load(experiment).subject() == "DLCP"
    claim = {"job": PROFILE, "metric": "jct_s", "scheme": "other", "relation": "not-worse"}
    for run in experiment.glob("*/"):
        lines = [claim | {"against": "TCP"}, claim | {"against": "TCP tuned", "scheme": "TCP"}]
        edit(run, scheme="tcp", is_dlcp=False, expect=[*lines, lines[0] | {"metric": "exposed_comm_s"}])
    assert load(experiment).subject() == "TCP"
    for run in experiment.glob("*/"):
        edit(run, expect=[])
    found = load(experiment)
    assert found.subject() == found.labels()[-1]


def test_names__are_in_the_order_of_their_numbers(experiment: Path) -> None:
    line = {"job": "loss-1", "metric": "jct_s", "scheme": "a", "against": "b", "relation": "better"}
    names = ["loss-1", "loss-0.1", "loss-10", "loss-5", "clean", "bursts"]
    for number, run in enumerate(sorted(experiment.iterdir())):
        job = names[number % len(names)]
        label = f"random {job.removeprefix('loss-')} %"
        edit(run, job=job, label=label, scheme="masked", repeat=number, expect=[line])
    found = load(experiment)
    assert found.jobs == ("loss-0.1", "loss-1", "loss-5", "loss-10", "bursts", "clean")
    assert found.labels() == (
        "random 0.1 %",
        "random 1 %",
        "random 5 %",
        "random 10 %",
        "random bursts %",
        "random clean %",
    )
    assert found.reference() == "random 0.1 %"
    edit(found.runs[-1].path, scheme="tcp-tuned")
    assert load(experiment).reference() == found.runs[-1].result.label


def test_table__carries_the_columns_of_its_run(experiment: Path) -> None:
    messages = load(experiment).table("messages")
    assert set(messages["label"]) == {"TCP", "TCP tuned", "DLCP"}
    assert len(messages) == 6 * 3 * 2 * 8 * (2 + 4)  # runs a job × iterations × legs × workers × tensors of both jobs
    assert set(messages.groupby("run_id")["repeat"].nunique()) == {1}


def test_load__a_suspect_run_is_there_but_not_trusted(experiment: Path) -> None:
    edit(experiment / "tcp-profile-0", status="suspect", reason="CPU")
    runs = {run.result.run_id: run for run in load(experiment).runs}
    assert not runs["tcp-profile-0"].trusted
    assert runs["tcp-profile-1"].trusted


@pytest.mark.parametrize(
    ("version", "why"),
    [
        (8, "result.json: written in format 8; this dlcp reads up to 7"),
        (0, "result.json: names no format_version"),
        (True, "result.json: names no format_version"),
        (None, "result.json: names no format_version"),
    ],
)
def test_load__other_formats_are_left_out_with_words(experiment: Path, version: int | None, why: str) -> None:
    edit(experiment / "tcp-profile-0", format_version=version)
    loaded = load(experiment)
    assert len(loaded.runs) == 11
    assert [(one.path.name, one.why) for one in loaded.left_out] == [("tcp-profile-0", why)]


@pytest.mark.long
def test_degradations__are_in_every_report_and_under_every_plot(experiment: Path) -> None:
    line = "l1, l2 (sonic): queue 3: precedences folded into queues (no DSCP to colour map)"
    edit(experiment / "dlcp-profile-0", degradations=[line], unwatched={"saturated_rate": "ports of a lab do"})
    loaded = load(experiment)
    assert loaded.degraded == (f"DLCP: {line}",)
    assert loaded.regime(PROFILE)["degraded"] == f"DLCP: {line}"
    assert f"degraded {loaded.degraded[0]}" in regime_caption(loaded.regime(PROFILE))
    html = page(compare(loaded), (), ())
    assert "<strong>degraded:</strong>" in html
    assert line in html
    assert "ports of a lab do" in html
    edit(experiment / "dlcp-profile-0", degradations=[], unwatched={})
    whole = load(experiment)
    assert whole.degraded == ()
    assert "degraded" not in page(compare(whole), (), ())


def test_load__older_results_lack_what_came_later(experiment: Path) -> None:
    """Of format 2 are results whose ports know three causes of a drop and nothing of what came in."""
    run = experiment / "tcp-profile-0"
    before = queue_counts(load(experiment))
    edit(run, format_version=2, tables={})
    table = pq.read_table(run / "ports.parquet")
    pq.write_table(table.drop_columns(list(SINCE["ports"])), run / "ports.parquet")
    assert check_table(run, "ports") == ""
    assert damaged_tables(run, read_result(run)) == {}
    loaded = load(experiment)
    assert (len(loaded.runs), loaded.left_out) == (12, ())
    assert loaded.table("ports")["received_packets"].isna().any()
    assert queue_counts(loaded).equals(before)


def test_load__before_format_7_the_name_says_which_scheme_is_dlcp(experiment: Path) -> None:
    """Since then a result says it, and any scheme may have any name."""
    for run in experiment.glob("*/"):
        stored = json.loads((run / "result.json").read_text())
        changes = {"scheme": "dlcp-rival"} if stored["scheme"] == "tcp-tuned" else {}
        if stored["scheme"] != "tcp-tuned":
            del stored["is_dlcp"]
            changes |= {"format_version": 6}
        (run / "result.json").write_text(json.dumps(stored | changes))
    loaded = load(experiment)
    assert {label: loaded.is_dlcp(label) for label in loaded.labels()} == {
        "TCP": False,
        "TCP tuned": False,
        "DLCP": True,
    }
    assert loaded.subject() == "DLCP"


def test_load__of_format_4_does_not_know_what_a_message_stands_for(experiment: Path) -> None:
    run = experiment / "tcp-profile-0"
    edit(run, format_version=4, tables={})
    table = pq.read_table(run / "messages.parquet")
    pq.write_table(table.drop_columns(["tensor_bytes"]), run / "messages.parquet")
    assert check_table(run, "messages") == ""
    assert load(experiment).table("messages")["tensor_bytes"].isna().sum() == len(table)


def test_load__of_format_4_is_neither_a_hole_nor_a_cost_known(experiment: Path) -> None:
    run = experiment / "tcp-profile-0"
    edit(run, format_version=4, tables={})
    table = pq.read_table(run / "iterations.parquet")
    pq.write_table(table.drop_columns(["codec_s"]), run / "iterations.parquet")
    assert check_table(run, "iterations") == ""
    assert read_result(run).costs is None
    loaded = load(experiment)
    assert (len(loaded.runs), loaded.left_out) == (12, ())
    assert loaded.table("iterations")["codec_s"].isna().sum() == len(table)


def test_load__broken_directories_are_left_out_with_words(experiment: Path) -> None:
    (experiment / "tcp-profile-0" / "result.json").write_text("{")
    edit(experiment / "tcp-profile-1", repeat="first")
    edit(experiment / "tcp-real-0", format_version=5, tables={})
    table = pq.read_table(experiment / "tcp-real-0" / "ports.parquet")
    pq.write_table(table.drop_columns(["queue"]), experiment / "tcp-real-0" / "ports.parquet")
    edit(experiment / "tcp-real-1", format_version=5, tables={})
    (experiment / "tcp-real-1" / "messages.parquet").write_bytes(b"not parquet")
    why = {one.path.name: one.why for one in load(experiment).left_out}
    assert why["tcp-profile-0"].startswith("result.json: not readable as JSON")
    assert why["tcp-profile-1"].startswith("result.json: repeat: ")
    assert why["tcp-real-0"] == "ports.parquet: column missing: queue"
    assert why["tcp-real-1"].startswith("messages.parquet cannot be read")
    assert len(load(experiment).runs) == 8


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (DEEP.encode(), "result.json: not readable as JSON: nested deeper than 64 levels: line 1 column 65"),
        (b'{"format_version": 7,\n "run": ' + b"[" * 80 + b"]" * 80 + b"}", "levels: line 2 column 72"),
        (b"\xff\xfe\x00{", "result.json: not readable as JSON: 'utf-8' codec"),
        (b"", "result.json: not readable as JSON"),
        (None, "result.json: cannot be read: Is a directory"),
        ("itself", "result.json: cannot be read: Too many levels of symbolic links"),
    ],
    ids=["deep", "rather deep", "binary", "empty", "folder", "link to itself"],
)
def test_load__a_broken_result_file_is_left_out_with_words(
    experiment: Path, content: bytes | str | None, why: str
) -> None:
    file = experiment / "tcp-profile-0" / "result.json"
    file.unlink()
    if content is None:
        file.mkdir()
    elif isinstance(content, str):
        file.symlink_to(file.name)
    else:
        file.write_bytes(content)
    loaded = load(experiment)
    assert len(loaded.runs) == 11
    ((name, said),) = [(one.path.name, one.why) for one in loaded.left_out]
    assert name == "tcp-profile-0"
    assert why in said


def damaged(experiment: Path, damage: Damage, version: int) -> tuple[str, str]:
    """The run that is left out when one of its tables is damaged, and why."""
    run = experiment / "tcp-profile-0"
    if version == 5:
        edit(run, format_version=5, tables={})
    file = run / "messages.parquet"
    file.write_bytes(damage(file.read_bytes()))
    ((name, why),) = [(one.path.name, one.why) for one in load(experiment).left_out]
    return name, why


@pytest.mark.parametrize("version", [5, 6])
@pytest.mark.parametrize("damage", [cut_in_half, zero_the_rows, change_every_37th_byte])
def test_load__leaves_out_a_run_whose_tables_are_damaged(experiment: Path, damage: Damage, version: int) -> None:
    """A result of format 5 has no checksums: what can be seen there is what Parquet's reader sees."""
    name, why = damaged(experiment, damage, version)
    assert name == "tcp-profile-0"
    assert why.startswith("messages.parquet ")


@pytest.mark.long
def test_report__goes_on_without_a_run_whose_tables_are_damaged(experiment: Path) -> None:
    _, why = damaged(experiment, zero_the_rows, 6)
    summary = report(experiment)
    assert summary.html.is_file()
    assert why.split(":")[0] in summary.html.read_text()


def test_load__a_table_that_is_missing_or_not_the_runs_own_is_left_out(experiment: Path) -> None:
    (experiment / "tcp-profile-0" / "messages.parquet").unlink()
    edit(experiment / "tcp-profile-1", tables={})
    why = {one.path.name: one.why for one in load(experiment).left_out}
    assert why["tcp-profile-0"] == "messages.parquet is missing"
    assert "messages.parquet has no checksum in result.json" in why["tcp-profile-1"]


def test_load__unfinished_runs_are_not_looked_at(experiment: Path) -> None:
    (experiment / "dlcp-real-0").rename(experiment / "dlcp-real-0.tmp")
    loaded = load(experiment.parent)
    assert len(loaded.runs) == 11
    assert loaded.left_out == ()


@pytest.mark.parametrize("older", [{"knobs": {"loss_bound": 0.2}}, {"run": {"definition": {"faults": FAULTS}}}])
def test_load__an_older_configuration_of_a_scheme_does_not_mix_in(experiment: Path, older: dict[str, Any]) -> None:
    for repeat in range(2):
        had = json.loads((experiment / f"dlcp-profile-{repeat}" / "result.json").read_text())
        edit(experiment / f"dlcp-profile-{repeat}", **{name: had[name] | more for name, more in older.items()})
        os.utime(experiment / f"dlcp-profile-{repeat}" / "result.json", (10, 10))
    make_results(experiment.parent / "new", repeats=2, iterations=3, tensors=2)
    for repeat in range(2):
        run = experiment.parent / "new" / "quickstart" / f"dlcp-profile-{repeat}"
        edit(run, run_id=f"new-{repeat}")
        run.rename(experiment / f"new-{repeat}")
    loaded = load(experiment)
    assert {run.result.run_id for run in loaded.of(PROFILE, "DLCP")} == {"new-0", "new-1"}
    assert {one.path.name for one in loaded.left_out} == {"dlcp-profile-0", "dlcp-profile-1"}
    assert {one.why for one in loaded.left_out} == {"DLCP, profile: an older configuration"}


DYNAMIC = {"buffering": "dynamic", "buffer_alpha": 1.0, "queue_minimum_bytes": 3000, "shared_buffer_bytes": 100_000}


@pytest.mark.parametrize(
    ("newer", "why"),
    [
        ({"time_dilation": 2.0, "link_rate_bps": 2e8}, "time dilation 4 (newest: 2)"),
        ({"port_buffer_bytes": 100_000}, "port buffer 50 kB (newest: 100 kB)"),
        (DYNAMIC, "buffering static (newest: dynamic)"),
    ],
)
def test_load__one_scheme_at_a_newer_scale_is_not_compared_with_the_others_of_its_job(
    experiment: Path, newer: dict[str, Any], why: str
) -> None:
    for file in experiment.glob("*/result.json"):
        if file.parent.name.startswith("dlcp-profile"):
            edit(file.parent, regime=json.loads(file.read_text())["regime"] | newer)
        else:
            os.utime(file, (10, 10))
    loaded = load(experiment)
    assert loaded.labels(PROFILE) == ("DLCP",)
    assert loaded.labels(REAL) == ("TCP", "TCP tuned", "DLCP"), "another job has a scale of its own"
    assert len(loaded.left_out) == 4
    for left_out in loaded.left_out:
        assert ", profile: not comparable with the newest run of this job: " in left_out.why
        assert why in left_out.why
    assert [row["why"] for row in left_out_rows(loaded)] == [one.why for one in loaded.left_out]


def test_load__a_result_without_a_regime_agrees_with_any_scale(experiment: Path) -> None:
    """As of an older format, or of a run in one process. The scale is then that of the next older run."""
    edit(experiment / "dlcp-profile-1", regime={})
    for name, at_s in (("dlcp-profile-1", 40), ("dlcp-profile-0", 30), ("tcp-profile-0", 20)):
        os.utime(experiment / name / "result.json", (at_s, at_s))
    regime = json.loads((experiment / "tcp-profile-0" / "result.json").read_text())["regime"]
    edit(experiment / "tcp-profile-0", regime=regime | {"time_dilation": 8.0})
    for file in experiment.glob("*/result.json"):
        if file.parent.name not in ("dlcp-profile-1", "dlcp-profile-0"):
            os.utime(file, (10, 10))
    loaded = load(experiment)
    assert {one.path.name for one in loaded.left_out} == {"tcp-profile-0", "dlcp-profile-0"}
    whys = {one.path.name: one.why for one in loaded.left_out}
    assert "time dilation 8 (newest: 4)" in whys["tcp-profile-0"]
    assert whys["dlcp-profile-0"] == "DLCP, profile: an older configuration"


def test_faults_are_told(experiment: Path) -> None:
    assert fault_lines(load(experiment)) == []
    for run in experiment.iterdir():
        had = json.loads((run / "result.json").read_text())
        edit(run, run=had["run"] | {"definition": {"faults": FAULTS}})
    results = load(experiment)
    assert fault_lines(results) == ["cut of l2 – s2, from 1 s of the job, for 400 ms"]


@pytest.mark.long
def test_faults_are_told_on_the_page(experiment: Path) -> None:
    for run in experiment.iterdir():
        had = json.loads((run / "result.json").read_text())
        edit(run, run=had["run"] | {"definition": {"faults": FAULTS}})
    results = load(experiment)
    assert "<li>cut of l2 – s2, from 1 s of the job, for 400 ms</li>" in page(compare(results), (), ())


def test_load__of_a_repeat_that_was_run_twice_the_later_counts(experiment: Path) -> None:
    edit(experiment / "dlcp-real-1", repeat=0)
    os.utime(experiment / "dlcp-real-0" / "result.json", (10, 10))
    loaded = load(experiment)
    assert [run.result.run_id for run in loaded.of(REAL, "DLCP")] == ["dlcp-real-1"]
    assert [one.why for one in loaded.left_out] == ["DLCP, real: repeat 1 was run again later"]


def test_load__only_the_runs_of_a_plan(experiment: Path) -> None:
    loaded = load(experiment, only=["dlcp-real-0", "tcp-real-0"])
    assert len(loaded.runs) == 2
    assert {one.why for one in loaded.left_out} == {"not part of the present plan"}


def test_load__says_what_to_do_when_there_is_nothing_or_too_much(experiment: Path, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="no such results directory"):
        load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(Problem, match="no finished run here"):
        load(tmp_path / "empty")
    make_results(tmp_path, experiment="other", repeats=1, iterations=2, tensors=1)
    with pytest.raises(Problem, match="results of 2 experiments: other, quickstart"):
        load(tmp_path)


@pytest.mark.parametrize("older", [8, None])
def test_load__what_is_newer_is_said_by_the_result_not_by_a_copied_file(experiment: Path, older: int | None) -> None:
    """None: of a version that did not say it."""
    for name, hour in (("dlcp-real-0", 9), ("dlcp-real-1", older)):
        had = json.loads((experiment / name / "result.json").read_text())
        made = {"made_at": f"2026-01-01T0{hour}:00:00.000+00:00"} if hour else {}
        edit(experiment / name, repeat=0, provenance=had["provenance"] | made)
    os.utime(experiment / "dlcp-real-0" / "result.json", (10, 10))
    assert [run.result.run_id for run in load(experiment).of(REAL, "DLCP")] == ["dlcp-real-0"]


def test_load__knows_an_experiment_by_its_name_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "results" / "smoke").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Problem) as caught:
        load(Path("smoke"))
    assert caught.value.hint == "did you mean results/smoke?"
