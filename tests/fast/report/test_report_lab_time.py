"""A report is in lab time: the same run at another time dilation says the same."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic_results import make_results, record_again

from dlcp.model.metrics import METRICS
from dlcp.model.result import TABLES, RunResult
from dlcp.report.analysis.comparison import Comparison, compare
from dlcp.report.data.lab_time import COLUMNS
from dlcp.report.data.load import load
from dlcp.report.data.metrics import run_metrics

SLOWER = 3.0
NOT_STRETCHED = {"iterations": {"codec_s"}, "hosts": {"sched_late_s"}}
"""CPU time of this machine."""


def slowed(folder: Path) -> Path:
    """Stretch every time of stored runs, and their dilation with it, as a slower emulation of the same lab would."""
    for file in folder.glob("*/result.json"):
        run = json.loads(file.read_text(encoding="utf-8"))
        run["jct_s"] *= SLOWER
        run["ideal"] = {name: value * SLOWER for name, value in run["ideal"].items()}
        run["regime"]["time_dilation"] *= SLOWER
        run["tuning"] = {}
        file.write_text(json.dumps(run), encoding="utf-8")
        for table, columns in COLUMNS.items():
            path = file.with_name(f"{table}.parquet")
            if path.is_file():
                kept = pq.read_table(path)
                for name in columns:
                    place = kept.column_names.index(name)
                    values = pa.array(kept[name].to_numpy() * SLOWER)
                    kept = kept.set_column(place, kept.schema.field(name), values)
                pq.write_table(kept, path)
    record_again(folder)
    return folder


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, Comparison]:
    """As it was, and slowed."""

    def made(name: str) -> Path:
        return make_results(tmp_path_factory.mktemp(name), repeats=2)

    return compare(load(made("one"))), compare(load(slowed(made("three"))))


def test_every_time_of_every_table_is_known_to_be_one_or_not() -> None:
    for table, columns in TABLES.items():
        times = {name for name in columns if name.endswith("_s")}
        assert times == set(COLUMNS.get(table, ())) | NOT_STRETCHED.get(table, set())


@pytest.mark.parametrize("metric", [name for name, one in METRICS.items() if one.unit != "share"])
def test_the_same_run_slower_has_the_same_figures(metric: str, both: tuple[Comparison, Comparison]) -> None:
    once, slower = (run_metrics(one.results).set_index("run_id")[metric].dropna() for one in both)
    if not metric.endswith("_p999_s") and metric != "iteration_p99_s":  # few samples
        assert len(once)
    assert slower.to_dict() == pytest.approx(once.to_dict())


def test_every_estimate_is_the_same(both: tuple[Comparison, Comparison]) -> None:
    for once, slower in zip(*(one.jobs for one in both), strict=True):
        values = {cell: found.value for cell, found in once.estimates.items() if found.value is not None}
        assert values
        assert {cell: slower.estimates[cell].value for cell in values} == pytest.approx(values)


def test_tables_are_in_lab_time_and_what_this_machine_took_is_not(both: tuple[Comparison, Comparison]) -> None:
    for table, columns in COLUMNS.items():
        once, slower = (one.results.table(table) for one in both)
        for name in columns:
            assert slower[name].to_numpy() == pytest.approx(once[name].to_numpy(), nan_ok=True)
    once, slower = (one.results.table("hosts")["sched_late_s"] for one in both)
    assert list(once) == list(slower)


def test_files_keep_the_emulations_own_seconds(both: tuple[Comparison, Comparison]) -> None:
    run = both[1].results.runs[0]
    stored = RunResult.model_validate_json((run.path / "result.json").read_text(encoding="utf-8"))
    assert stored.jct_s is not None
    assert run.result.jct_s == pytest.approx(stored.jct_s / stored.regime["time_dilation"])
    assert stored.regime["time_dilation"] == 4 * SLOWER
