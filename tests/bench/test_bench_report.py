"""The report's benchmark: ten million rows fit into the memory that is promised. Nothing is timed."""

from __future__ import annotations

from pathlib import Path

import pytest
import report_rows


@pytest.mark.long
def test_ten_million_rows_fit_into_4_gib(tmp_path: Path) -> None:
    report_rows.make(tmp_path / "rows", 10_000_000)
    found = report_rows.measure(tmp_path / "rows")
    assert found["rows"] == 10_000_000
    assert found["peak_bytes"] < report_rows.LIMIT_BYTES
    assert (tmp_path / "rows" / "report.html").stat().st_size > 100_000
