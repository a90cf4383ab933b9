"""Pictures over jobs, parts and losses: they show the numbers of the tables, and the ideal transport's."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from synthetic_results import write_run

from dlcp.model.result import TABLES, RunResult
from dlcp.report.analysis.comparison import Comparison, compare
from dlcp.report.data.load import load
from dlcp.report.plots.across_jobs import along_axis, axis_of, speedups
from dlcp.report.plots.loss import accuracy_against_loss, loss_table
from dlcp.report.plots.parts import parts_of, parts_table, waterfall

PARTS = {
    "tcp": 15.0,
    "dlcp": 10.0,
    "timely-udp": 14.0,
    "dlcp-no-loss": 12.0,
    "dlcp-no-priority": 10.5,
    "dlcp-only-loss": 12.5,
    "dlcp-only-priority": 13.5,
}


def write(
    root: Path,
    label: str,
    job: str,
    repeat: int,
    *,
    scheme: str = "",
    jct_s: float | None = None,
    ideal_s: float = 8.0,
    knobs: dict[str, object] | None = None,
    tables: dict[str, list[dict[str, object]]] | None = None,
) -> None:
    run_id = f"{label}-{job}-{repeat}".replace(" ", "-")
    result = RunResult(
        run_id=run_id,
        experiment="tiny",
        scheme=scheme or label,
        is_dlcp=(scheme or label).startswith("dlcp"),
        label=label,
        job=job,
        repeat=repeat,
        seed=repeat,
        substrate="emulate",
        status="ok",
        jct_s=jct_s,
        ideal={"jct_s": ideal_s},
        knobs=knobs or {},
    )
    zero: dict[str, object] = {"string": job, "bool": False, "list<int64>": [], "list<int32>": []}
    columns = {
        name: {column: [row.get(column, zero.get(kind, 0)) for row in rows] for column, kind in TABLES[name].items()}
        for name, rows in (tables or {}).items()
    }
    write_run(root / run_id, result, columns)


def timed(root: Path, jobs: dict[str, float], schemes: dict[str, float]) -> Comparison:
    """Five repeats of every scheme in every job: completion is the scheme's time × the job's factor, ± 1 %."""
    generator = np.random.default_rng(3)
    for job, factor in jobs.items():
        for label, jct_s in schemes.items():
            for repeat in range(5):
                spread = float(np.exp(generator.normal(0, 0.01)))
                write(root, label, job, repeat, jct_s=jct_s * factor * spread, ideal_s=8.0 * factor)
    return compare(load(root))


def words(figure: Figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts] + [
        text.get_text() for legend in figure.legends for text in legend.get_texts()
    ]


def test_speedups__has_a_bar_a_scheme_and_job_the_ideal_and_the_additional_speed_up(tmp_path: Path) -> None:
    found = timed(tmp_path, {"resnet": 1.0, "vgg": 2.0}, {"tcp": 15.0, "p3": 12.0, "dlcp": 10.0})
    figure = speedups(found)
    assert figure is not None
    (ax,) = figure.axes
    heights = sorted(round(bar.get_height(), 1) for bar in ax.patches)  # type: ignore[attr-defined]
    assert heights == pytest.approx([1.2, 1.2, 1.5, 1.5], abs=0.11)
    assert {"ideal transport", "p3", "dlcp"} <= set(words(figure))
    assert sum("over the best other" in text for text in words(figure)) == 2
    assert "runs 30 counted" in figure.get_supxlabel().replace("\n", " ")


@pytest.mark.parametrize(
    ("jobs", "axis"),
    [
        (("workers-2", "workers-16"), ("workers", [2.0, 16.0])),
        (("load-30", "load-80"), ("load", [30.0, 80.0])),
        (("resnet50", "vgg16"), None),
        (("workers-2",), None),
        (("workers-2", "real"), None),
    ],
)
def test_axis__is_the_number_in_which_alone_the_jobs_names_differ(
    jobs: tuple[str, ...], axis: tuple[str, list[float]] | None
) -> None:
    assert axis_of(jobs) == axis


def test_along_axis__draws_every_scheme_over_the_ideal_in_the_order_of_the_numbers(tmp_path: Path) -> None:
    found = timed(tmp_path, {"workers-2": 1.0, "workers-16": 3.0, "workers-8": 2.0}, {"tcp": 16.0, "dlcp": 12.0})
    figure = along_axis(found)
    assert figure is not None
    (ax,) = figure.axes
    lines = {line.get_label(): line for line in ax.get_lines()}
    drawn = [container.lines[0] for container in ax.containers]
    assert [list(line.get_xdata()) for line in drawn] == [[2, 8, 16]] * 2
    assert {round(float(np.mean(line.get_ydata())), 1) for line in drawn} == {1.5, 2.0}
    assert "ideal transport" in lines


def test_waterfall__steps_from_no_part_to_the_whole(tmp_path: Path) -> None:
    found = timed(tmp_path, {"j": 1.0}, PARTS)
    parts = parts_of(found.results, "j")
    assert parts is not None
    assert (parts.whole, parts.none) == ("dlcp", "timely-udp")
    assert set(parts.without) == set(parts.alone) == {"loss", "priority"}
    table = parts_table(found, "j").set_index(["what", "part"])
    assert table.loc[("without", "loss"), "value"] == pytest.approx(1.2, abs=0.02)
    assert table.loc[("alone", "loss"), "low"] < 12.5 / 14 < table.loc[("alone", "loss"), "high"]
    figure = waterfall(found, "j")
    assert figure is not None
    steps, without = figure.axes
    bars = [(bar.get_y(), bar.get_y() + bar.get_height()) for bar in steps.patches]  # type: ignore[attr-defined]
    assert len(bars) == 5
    assert all(before[1] == pytest.approx(after[0]) for before, after in itertools.pairwise(bars[:4]))
    assert bars[3][1] == pytest.approx(bars[4][1])  # what is left is done together: it ends at the whole
    assert [label.get_text() for label in without.get_yticklabels()] == ["without loss", "without priority"]
    assert waterfall(timed(tmp_path / "other", {"j": 1.0}, {"tcp": 15.0, "dlcp": 10.0}), "j") is None


def test_waterfall__without_a_run_that_counts_draws_what_it_can(tmp_path: Path) -> None:
    found = timed(tmp_path, {"j": 1.0}, PARTS)
    for file in tmp_path.glob("timely-udp-*/result.json"):
        file.write_text(file.read_text().replace('"ok"', '"suspect"'))
    found = compare(load(tmp_path))
    figure = waterfall(found, "j")
    assert figure is not None
    (without,) = figure.axes
    assert [label.get_text() for label in without.get_yticklabels()] == ["without loss", "without priority"]


def test_accuracy_against_loss__has_a_line_an_order_over_bytes_and_energy(tmp_path: Path) -> None:
    for order, energy in (("random", 1.0), ("large-first", 4.0)):
        for share in (0.0, 0.1, 0.2):
            for repeat in range(5):
                lost = int(1000 * share)
                tables: dict[str, list[dict[str, object]]] = {
                    "messages": [
                        {
                            "leg": "push",
                            "bytes": 1000,
                            "lost_bytes": lost,
                            "loss_bound": 1.0,
                            "lost_energy_share": share * energy,
                        }
                    ],
                    "training": [
                        {"step": step, "time_s": float("nan"), "accuracy": 0.8 + step / 1e4 - share * energy / 10}
                        for step in (100, 200)
                    ],
                }
                write(
                    tmp_path,
                    f"{order} {share:.0%}",
                    "j",
                    repeat,
                    scheme="masked",
                    knobs={"order": order},
                    tables=tables,
                )
    found = compare(load(tmp_path))
    table = loss_table(found, "j").set_index("label")
    assert table.loc["large-first 20%", "lost_energy"] == pytest.approx(0.8)
    assert table.loc["random 20%", "final_accuracy"] == pytest.approx(0.8)
    figure = accuracy_against_loss(found, "j")
    assert figure is not None
    assert {"random", "large-first"} == set(words(figure))
    assert len(figure.axes) in (2, 4)
