"""Tables of a run: what does not fit the schema is refused, not converted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from dlcp.errors import Problem
from dlcp.model.result import TABLES
from dlcp.model.tables import check_table, write_columns, write_rows

ROW: dict[str, Any] = {"job": "real", "step": 3, "time_s": 1.5, "loss": 0.25, "accuracy": 0.5}


@pytest.mark.parametrize("table", sorted(TABLES))
def test_an_empty_table_has_the_schema(table: str, tmp_path: Path) -> None:
    write_rows(tmp_path, table, [])
    assert check_table(tmp_path, table) == ""
    assert pq.read_schema(tmp_path / f"{table}.parquet").names == list(TABLES[table])


def test_rows_come_back(tmp_path: Path) -> None:
    path = write_rows(tmp_path, "training", [ROW, ROW | {"step": 4}])
    assert pq.read_table(path).to_pylist() == [ROW, ROW | {"step": 4}]


def test_arrays_and_whole_numbers_as_floats_are_taken(tmp_path: Path) -> None:
    columns = {name: [value] for name, value in ROW.items()}
    columns |= {"time_s": np.array([2]), "loss": np.array([0.25], dtype=np.float32), "step": np.array([3])}
    assert pq.read_table(write_columns(tmp_path, "training", columns)).to_pylist() == [ROW | {"time_s": 2.0}]


@pytest.mark.parametrize(
    ("row", "fact"),
    [
        ({**ROW, "extra": 1}, "column unknown: extra"),
        ({name: value for name, value in ROW.items() if name != "loss"}, "column missing: loss"),
        ({**ROW, "step": "three"}, "training.step: a value is not of type int32"),
        ({**ROW, "step": 3.5}, "training.step: a value is not of type int32"),
        ({**ROW, "step": 2**31}, "training.step: a value is not of type int32"),
        ({**ROW, "job": 7}, "training.job: a value is not of type string"),
        ({**ROW, "accuracy": None}, "1 of 1 values are missing"),
    ],
)
def test_what_does_not_fit_is_refused(row: dict[str, Any], fact: str, tmp_path: Path) -> None:
    with pytest.raises(Problem) as caught:
        write_rows(tmp_path, "training", [row])
    assert fact in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_columns_of_different_lengths_are_refused(tmp_path: Path) -> None:
    columns = {name: [value] for name, value in ROW.items()} | {"loss": [0.1, 0.2]}
    with pytest.raises(Problem, match="different lengths"):
        write_columns(tmp_path, "training", columns)


def test_a_stored_table_is_checked(tmp_path: Path) -> None:
    assert check_table(tmp_path, "hosts") == "hosts.parquet is missing"
    write_rows(tmp_path, "training", [ROW]).rename(tmp_path / "hosts.parquet")
    assert "column missing: cpu_busy" in check_table(tmp_path, "hosts")
    path = write_rows(tmp_path, "training", [ROW])
    path.write_bytes(path.read_bytes()[:-20])
    assert "cannot be read" in check_table(tmp_path, "training")
