"""RESULTS.md: every number comes from runs, every claim from the experiment; what is missing is said."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from synthetic_results import PROFILE, make_results

from dlcp.errors import Problem
from dlcp.model.experiment import Expectation
from dlcp.report.analysis.comparison import compare
from dlcp.report.analysis.headroom import headroom
from dlcp.report.data.load import load
from dlcp.report.data.statistics import Estimate
from dlcp.report.output.results_md import Chapter, write

EXPECT = (
    Expectation(
        job=PROFILE,
        metric="jct_s",
        scheme="DLCP",
        against="TCP",
        relation="better",
        paper="up to 84.3 %",
        why="a lost packet waits for nobody",
    ),
    Expectation(
        job=PROFILE,
        metric="jct_s",
        scheme="TCP",
        against="DLCP",
        relation="better",
        paper="the opposite",
        why="it cannot be",
    ),
)


def chapter(folder: Path, **changes: object) -> Chapter:
    given: dict[str, object] = {
        "name": folder.name,
        "description": "for a test",
        "folder": folder,
        "expect": EXPECT,
        "run_ids": frozenset(path.name for path in folder.glob("*")),
    }
    return Chapter(**(given | changes))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_results(
        tmp_path_factory.mktemp("results"), suspect=(("TCP", PROFILE, 1),), repeats=6, iterations=6, tensors=4
    )


def test_a_page_of_all_chapters(results: Path, tmp_path: Path) -> None:
    chapters = [
        chapter(results, reduction="5 of 9 repeats", unsupported=(("DCTCP", "the kernel has no dctcp"),)),
        chapter(results.parent / "absent", run_ids=frozenset({"0" * 12})),
        chapter(results.parent / "heavy", cannot="it takes 2.3 cores of 1.7"),
    ]
    page = write(chapters, tmp_path)
    text = page.read_text(encoding="utf-8")
    assert "commit: 0123456789ab" in text
    assert "1 suspect" in text
    assert "here: 5 of 9 repeats" in text
    assert "DCTCP is unsupported: the kernel has no dctcp" in text
    assert "Not run:" in text
    assert "it takes 2.3 cores of 1.7" in text
    rows = [line for line in text.splitlines() if "up to 84.3 %" in line or "the opposite" in line]
    assert ["**holds**" in row for row in rows] == [True, False]
    assert "Measured: DLCP is" in rows[1]
    for picture in re.findall(r"\]\((images/[^)]+)\)", text):
        assert (tmp_path / picture).stat().st_size > 5000
    assert text.count("](images/") >= 1


def test_dynamic_thresholds_are_said_to_give_a_scheme_of_several_queues_more_buffer(tmp_path: Path) -> None:
    dynamic = {
        "buffering": "dynamic",
        "buffer_alpha": 1.0,
        "queue_minimum_bytes": 1514,
        "shared_buffer_bytes": 80_000,
        "shared_buffer_lab_bytes": 8_000_000,
    }
    folder = make_results(tmp_path / "results", repeats=2, iterations=2, tensors=2)
    said = "at alpha 1 one takes 50 % of it and 3 take 75 %"
    assert said not in write([chapter(folder)], tmp_path / "static").read_text(encoding="utf-8")
    for file in folder.glob("*/result.json"):
        run = json.loads(file.read_text(encoding="utf-8"))
        run["regime"] |= dynamic
        file.write_text(json.dumps(run), encoding="utf-8")
    text = write([chapter(folder)], tmp_path / "dynamic").read_text(encoding="utf-8")
    assert text.count(said) == 1


def test_planned_runs_that_are_missing_are_told_first(results: Path, tmp_path: Path) -> None:
    """Else a page without the best rival would praise."""
    made = frozenset(path.name for path in results.glob("*"))
    more = chapter(results, run_ids=made | {"a" * 12, "b" * 12})
    text = write([more, chapter(results.parent / "absent", run_ids=frozenset({"0" * 12}))], tmp_path).read_text("utf-8")
    assert "missing" not in write([chapter(results)], tmp_path / "whole").read_text("utf-8")
    short = text[text.index("## In short") : text.index("## Where it comes from")]
    assert f"**Planned runs that are missing**: 2 in {results.name}." in short
    assert "Experiments without any run: absent." in short
    assert f"* **2 of {len(made) + 2} planned runs are missing**" in text


def test_the_same_runs_give_the_same_page(results: Path, tmp_path: Path) -> None:
    first, second = (write([chapter(results)], tmp_path / name) for name in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()
    pictures = [sorted((path.parent / "images").iterdir()) for path in (first, second)]
    assert pictures[0]
    assert [path.read_bytes() for path in pictures[0]] == [path.read_bytes() for path in pictures[1]]


def test_without_any_run_there_is_no_page(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="there is no run to write of"):
        write([chapter(tmp_path / "absent", run_ids=frozenset({"0" * 12}))], tmp_path)
    assert not (tmp_path / "RESULTS.md").exists()


def test_headroom__is_the_smallest_gain_with_the_choice_inside_its_interval(results: Path) -> None:
    comparison = compare(load(results))
    job = comparison.job(PROFILE)
    assert job is not None
    found = next(one for one in headroom(comparison) if one.job == PROFILE)
    gains = {label: job.gains[label, "jct_s"].estimate for label in ("TCP", "TCP tuned")}

    def speed(ratio: float | None) -> float:
        assert ratio is not None
        return 1 / ratio - 1

    assert found.best_other == "TCP tuned"
    assert found.gain == pytest.approx(min(speed(one.value) for one in gains.values()))
    assert found.low == pytest.approx(min(speed(one.high) for one in gains.values()))
    assert found.high is not None
    assert found.high > min(speed(one.low) for one in gains.values())  # any of the two may fail: Bonferroni
    over: Estimate = job.estimates["TCP tuned", "jct_over_ideal"]
    assert over.value is not None
    assert found.most == pytest.approx(over.value - 1)
    assert re.fullmatch(r"\+\d+\.\d % \[\d+\.\d, \d+\.\d\]", found.gain_words)
