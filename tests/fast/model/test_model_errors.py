"""Broken experiment files, each with the exact text that a person is shown; in most one thing is wrong.

After a wanted change of texts: DLCP_GOLDEN=write pytest tests/fast/model/test_model_errors.py
and read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dlcp.runner.planning.check import check

FOLDER = Path(__file__).parents[2] / "errors"
FILES = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def test_there_are_files() -> None:
    assert len(FILES) >= 40


@pytest.mark.parametrize("name", FILES)
def test_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    checked = check(Path(f"{name}.yaml"), Path("workloads"))
    lines = [f"warning: {warning}" for warning in checked.warnings] + [str(problem) for problem in checked.problems]
    text = "\n".join(lines) + "\n" if lines else "fine\n"
    expected = FOLDER / f"{name}.txt"
    if os.environ.get("DLCP_GOLDEN") == "write":
        expected.write_text(text, encoding="utf-8")
    assert text == expected.read_text(encoding="utf-8")
    assert (checked.experiment is None) == bool(checked.problems)


@pytest.mark.parametrize("name", FILES)
def test_every_message_names_a_place_that_exists(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    checked = check(Path(f"{name}.yaml"), Path("workloads"))
    for one in (*checked.problems, *checked.warnings):
        file, line, column = one.where.rsplit(":", 2)
        lines = Path(file).read_text(encoding="utf-8").splitlines() or [""]
        assert 1 <= int(column) <= len(lines[int(line) - 1]) + 1
