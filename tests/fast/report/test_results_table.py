"""Tables of RESULTS.md: one unit a table, what does not count is counted, what was searched is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from synthetic_results import write_run

from dlcp.model.loading.search_record import Point, Search, TuningRun
from dlcp.model.metrics import METRICS
from dlcp.model.result import RunResult
from dlcp.report.analysis.comparison import Comparison, compare
from dlcp.report.data.load import load
from dlcp.report.output.results_md_tables import metric_table, search_table


def compared(root: Path, tuning: dict[str, Any] | None = None) -> Comparison:
    """Job "long" takes 12 s, job "short" 0.5 s; a run of TCP's in "short" failed. P3's ideal in "long" is 2 % less."""
    for job, jct_s in (("long", 12.0), ("short", 0.5)):
        for label in ("TCP", "P3"):
            for repeat in range(6):
                failed = (job, label, repeat) == ("short", "TCP", 5)
                ideal_s = jct_s / 2 * (0.98 if (job, label) == ("long", "P3") else 1)
                result = RunResult(
                    run_id=f"{job}-{label}-{repeat}",
                    experiment="tiny",
                    scheme=label.lower(),
                    is_dlcp=label.startswith("DLCP"),
                    label=label,
                    job=job,
                    repeat=repeat,
                    seed=repeat,
                    substrate="emulate",
                    status="failed" if failed else "ok",
                    jct_s=None if failed else jct_s * (1 + repeat / 100),
                    ideal={"jct_s": ideal_s},
                    tuning=tuning if tuning and label == "P3" else {},
                )
                write_run(root / result.run_id, result, {})
    return compare(load(root))


def test_metric_table__has_one_unit_for_all_jobs(tmp_path: Path) -> None:
    rows = {
        line.split("|")[1].strip(): line
        for line in metric_table(compared(tmp_path), METRICS["jct_s"])
        if line.startswith("| ")
    }
    assert [cell.strip() for cell in rows["P3"].split("|")[2:4]] == ["12.30 ± 0.24", "0.5125 ± 0.0098"]
    assert "(1 failed)" in rows["TCP"].split("|")[3]
    assert [cell.strip() for cell in rows["*ideal transport*"].split("|")[2:4]] == ["5.88–6", "0.25"]


def test_search_table__has_every_point_and_marks_what_was_chosen(tmp_path: Path) -> None:
    assert list(search_table(compared(tmp_path / "without"))) == []

    def point(slice_: str, *times: float) -> Point:
        runs = tuple(TuningRun(seed=seed, status="ok", jct_s=jct_s, tries=1) for seed, jct_s in enumerate(times))
        return Point(knobs={"slice": slice_}, runs=runs, unfit="" if runs else "more than the bucket")

    search = Search(
        label="P3",
        scheme="p3",
        job="long",
        substrate="emulate",
        digest="0",
        cores=2,
        kernel="6",
        points=(point("11 kB", 13.0, 13.2), point("22 kB", 12.0, 12.2), point("88 kB")),
        chosen={"slice": "22 kB"},
    )
    lines = list(search_table(compared(tmp_path / "with", search.model_dump(mode="json"))))
    assert "| P3 | slice 11 kB | 13.1 | 13.1 |" in lines
    assert "| P3 | slice 22 kB | **12.1** | **12.1** |" in lines
    (end,) = (line for line in lines if line.startswith("* "))
    assert end.startswith("* P3: the best `slice` in long, short is 22 kB, at an end of what was tried (11 kB, 22 kB)")
    assert "| P3 | slice 88 kB | more than the bucket | more than the bucket |" in lines
    assert "of 2 runs a point" in lines[0]


def test_search__is_at_an_end_only_with_the_first_or_last_value_that_ran() -> None:
    def chosen(value: str, *values: str, unfit: str = "") -> dict[str, list[str]]:
        points = tuple(Point(knobs={"slice": each, "fixed": 1}, unfit="no" if each == unfit else "") for each in values)
        search = Search(
            label="P3", scheme="p3", job="j", substrate="emulate", digest="0", cores=2, kernel="6", points=points
        )
        return search.model_copy(update={"chosen": {"slice": value, "fixed": 1}}).at_an_end()

    assert chosen("b", "a", "b", "c") == {}
    assert chosen("a", "a", "b", "c") == {"slice": ["a", "b", "c"]}
    assert chosen("b", "a", "b", "c", unfit="c") == {"slice": ["a", "b"]}
    assert chosen("a", "a") == {}
