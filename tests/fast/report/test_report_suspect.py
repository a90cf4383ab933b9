"""A suspect run looks suspect: marked in the table, hollow in the plot, in no mean, and the command ends with 4."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from rich.console import Console
from synthetic_results import PROFILE, make_results, record_again

from dlcp.errors import ExitCode
from dlcp.model.metrics import METRICS
from dlcp.model.tables import write_columns
from dlcp.report.analysis.comparison import compare
from dlcp.report.build import report
from dlcp.report.data.load import load
from dlcp.report.plots.backlog import MOST_POINTS, backlog
from dlcp.report.plots.job_comparison import times

SUSPECT = (("DLCP", PROFILE, 1), ("DLCP", PROFILE, 3))


def test_it_is_marked_in_the_table_and_told_below_with_its_reason(tmp_path: Path) -> None:
    out = io.StringIO()
    summary = report(make_results(tmp_path, repeats=6, suspect=SUSPECT), None, Console(file=out, width=160))
    lines = out.getvalue().splitlines()
    assert any(line.lstrip().startswith("DLCP !2 suspect") for line in lines)
    assert not any("TCP tuned !" in line for line in lines)
    assert sum("is suspect: CPU idle 4 % is below 10 %" in line for line in lines) == 2
    assert summary.exit_code == ExitCode.SUSPECT
    html = summary.html.read_text(encoding="utf-8")
    assert "CPU idle 4 % is below 10 %" in html


def test_it_is_in_no_mean(tmp_path: Path) -> None:
    comparison = compare(load(make_results(tmp_path, repeats=6, suspect=SUSPECT)))
    job = comparison.job(PROFILE)
    assert job is not None
    estimate = job.estimates["DLCP", "jct_s"]
    runs = comparison.runs[(comparison.runs["job"] == PROFILE) & (comparison.runs["label"] == "DLCP")]
    assert len(runs) == 6
    assert estimate.n == 4
    assert estimate.value == pytest.approx(runs[runs["trusted"]]["jct_s"].mean())


def test_it_is_hollow_in_the_plot(tmp_path: Path) -> None:
    comparison = compare(load(make_results(tmp_path, repeats=6, suspect=SUSPECT)))
    figure = times(comparison, PROFILE)
    assert figure is not None
    axes = figure.axes[0]
    assert axes.get_ylabel().startswith(METRICS["jct_s"].title)
    dots = [one for one in axes.collections if isinstance(one, PathCollection) and len(one.get_offsets())]
    hollow = [one for one in dots if len(one.get_facecolors()) == 0]
    assert sum(len(one.get_offsets()) for one in hollow) == len(SUSPECT)
    assert sum(len(one.get_offsets()) for one in dots) == 3 * 6
    assert "hollow: suspect" in axes.get_xlabel()


def with_backlog(experiment: Path, samples: int) -> None:
    """Give every run of the profile's job a queue that fills and empties, the longest at l1-h5."""
    for run in experiment.glob(f"*-{PROFILE}-*"):
        sizes = np.concatenate([np.linspace(0, 40_000, samples // 2), np.zeros(samples - samples // 2)]).astype(int)
        rows = [
            (100 + 0.005 * i, port, size // share)
            for i, size in enumerate(sizes)
            for port, share in (("l1-h5", 1), ("l2-h10", 2), ("l1-h1", 8), ("l1-h2", 100))
        ]
        columns = {
            "time_s": [row[0] for row in rows],
            "switch": [row[1][:2] for row in rows],
            "port": [row[1] for row in rows],
            "queue": [3] * len(rows),
            "backlog_bytes": [int(row[2]) for row in rows],
        }
        write_columns(run, "backlog", columns)
    record_again(experiment)


def test_queue_length_over_time_is_drawn_of_the_longest_queues(tmp_path: Path) -> None:
    experiment = make_results(tmp_path, suspect=(("DLCP", PROFILE, 0),))
    assert backlog(load(experiment), PROFILE, ("TCP", "TCP tuned", "DLCP")) is None, "no samples, no plot"
    with_backlog(experiment, samples=400)
    figure = backlog(load(experiment), PROFILE, ("TCP", "TCP tuned", "DLCP"))
    assert figure is not None
    assert [ax.get_title() for ax in figure.axes] == ["TCP (repeat 1)", "TCP tuned (repeat 1)", "DLCP (repeat 2)"]
    lines = {str(line.get_label()): line for line in figure.axes[0].get_lines()}
    assert {"l1-h5", "l2-h10", "l1-h1"} <= set(lines)
    assert "l1-h2" not in lines, "only the ports with the longest queues"
    assert max(lines["l1-h5"].get_ydata()) == pytest.approx(40.0), "kB"
    assert min(lines["l1-h5"].get_xdata()) == pytest.approx(0.0, abs=1e-6), "since the job's start"


def test_many_samples_are_thinned_but_no_peak_is_lost(tmp_path: Path) -> None:
    experiment = make_results(tmp_path, repeats=1)
    with_backlog(experiment, samples=5001)
    figure = backlog(load(experiment), PROFILE, ("DLCP",))
    assert figure is not None
    line = figure.axes[0].get_lines()[0]
    assert len(line.get_xdata()) <= MOST_POINTS
    assert max(line.get_ydata()) == pytest.approx(40.0)
