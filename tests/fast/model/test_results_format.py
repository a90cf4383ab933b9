"""docs/results-format.md names every field of result.json and every column of every table, and nothing else."""

from __future__ import annotations

import re

from dlcp.model.result import FORMAT_VERSION, SINCE, TABLE_SINCE, TABLES, RunResult
from dlcp.paths import REPOSITORY

PAGE = (REPOSITORY / "docs" / "results-format.md").read_text(encoding="utf-8")


def rows(section: str) -> dict[str, str]:
    """Return each name in the first column of a section's table, with the rest of its row."""
    found = {}
    for line in section.splitlines():
        if line.startswith("| `"):
            names, rest = line[1:].split(" | ", 1)
            found |= dict.fromkeys(re.findall(r"`(\w+)`", names), rest)
    return found


def section(title: str) -> str:
    """Return what a heading that begins with these words stands over."""
    match = re.search(rf"^##+ {re.escape(title)}\b[^\n]*\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert match is not None, f"no section {title}"
    return match[0]


def test_result_json() -> None:
    fields = rows(section("result.json"))
    assert set(fields) == set(RunResult.model_fields)
    assert f"`format_version` is {FORMAT_VERSION}." in PAGE


def test_every_table_and_column() -> None:
    titles = re.findall(r"^### (\w+):", PAGE, re.MULTILINE)
    assert titles == list(TABLES)
    for table, columns in TABLES.items():
        text = section(table)
        documented = rows(text)
        assert set(documented) == set(columns), table
        heading = text.splitlines()[0]
        assert ("since" in heading) == (table in TABLE_SINCE), heading
        if table in TABLE_SINCE:
            assert f"since {TABLE_SINCE[table]}" in heading
        for column, version in SINCE.get(table, {}).items():
            assert f"(since {version})" in documented[column], f"{table}.{column}"


def test_lines_are_short_enough_to_read() -> None:
    long = [line for line in PAGE.splitlines() if len(line) > 100 and not line.startswith("|")]
    assert not long
