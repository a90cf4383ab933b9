"""Notebooks are stored without outputs, and run from the stored sample alone."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from dlcp.paths import REPOSITORY

NOTEBOOKS = sorted((REPOSITORY / "analysis").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook__is_stored_without_outputs(notebook: Path) -> None:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 5
    assert [cell["outputs"] for cell in code] == [[]] * len(code)
    assert {cell["execution_count"] for cell in code} == {None}


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook__runs_from_the_stored_sample(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is missing; pip install 'dlcp[notebooks]'")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is missing; pip install 'dlcp[notebooks]'")
    pytest.importorskip("ipykernel", reason="ipykernel is missing; pip install 'dlcp[notebooks]'")
    monkeypatch.delenv("DLCP_RESULTS", raising=False)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    place = tmp_path / "analysis"  # a copy, so that results/ of this checkout are not found
    place.mkdir()
    shutil.copy(REPOSITORY / "analysis" / "sample.tar.xz", place)
    book = nbformat.read(notebook, as_version=4)
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3",
                            resources={"metadata": {"path": str(place)}}).execute()  # fmt: skip
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    said = "".join(output.get("text", "") for output in outputs)
    assert "30 runs" in said
    by_hand, toolkit = (line for line in said.splitlines() if line.startswith(("by hand:", "the toolkit:")))
    ratio = re.search(r"value=([0-9.]+)", toolkit)
    assert ratio is not None
    assert float(by_hand.split()[2]) == pytest.approx(float(ratio[1]), abs=6e-5)  # the one has four decimals
    pictures = [output for output in outputs if "image/svg+xml" in output.get("data", {})]
    assert len(pictures) == 7


def test_sample__is_small() -> None:
    assert os.path.getsize(REPOSITORY / "analysis" / "sample.tar.xz") < 300_000
