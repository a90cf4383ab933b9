"""Notebooks are stored without outputs, and run from the stored samples alone."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from extras import needs

from dlcp.paths import REPOSITORY

ANALYSIS = REPOSITORY / "analysis"
NOTEBOOKS = sorted(ANALYSIS.glob("*.ipynb"))
SAMPLES = sorted(ANALYSIS.glob("*.tar.xz"))
PICTURES = {
    "01_jct": 5,
    "02_tail_latency": 3,
    "03_loss_and_accuracy": 2,
    "04_where_the_gain_comes_from": 3,
    "05_queues": 2,
}
"""Notebook → pictures that its sample must give."""


pytestmark = needs("nbformat", "nbclient", "ipykernel")


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Notebook → outputs of its code. All are run by one kernel, which forgets one before the next, so that pandas and
    matplotlib are imported once; in a copy of analysis/, so that results/ of this checkout are not found."""
    import nbclient
    import nbformat

    folder = tmp_path_factory.mktemp("notebooks")
    place = folder / "analysis"
    place.mkdir()
    for file in (*SAMPLES, *ANALYSIS.glob("*.py")):
        shutil.copy(file, place)
    book, spans = nbformat.v4.new_notebook(), {}
    for notebook in NOTEBOOKS:
        start = len(book.cells)
        book.cells += nbformat.read(notebook, as_version=4).cells
        spans[notebook.stem] = slice(start, len(book.cells))
        book.cells.append(nbformat.v4.new_code_cell("%reset -f"))
    for number, cell in enumerate(book.cells):
        cell["id"] = f"cell-{number}"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DLCP_RESULTS", raising=False)
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        nbclient.NotebookClient(
            book, timeout=120, kernel_name="python3", allow_errors=True, resources={"metadata": {"path": str(place)}}
        ).execute()
    return {
        name: [output for cell in book.cells[span] if cell.cell_type == "code" for output in cell.outputs]
        for name, span in spans.items()
    }


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook__is_stored_without_outputs(notebook: Path) -> None:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 5
    assert [cell["outputs"] for cell in code] == [[]] * len(code)
    assert {cell["execution_count"] for cell in code} == {None}


@pytest.mark.long
@pytest.mark.parametrize("name", [notebook.stem for notebook in NOTEBOOKS])
def test_notebook__runs_from_the_stored_sample(name: str, executed: dict[str, list[Any]]) -> None:
    outputs = executed[name]
    failed = ["\n".join(output["traceback"]) for output in outputs if output["output_type"] == "error"]
    assert not failed, failed[0]
    said = "".join(output.get("text", "") for output in outputs)
    assert re.search(r"[1-9][0-9]* runs, of which [1-9][0-9]* count", said)
    assert "a stored sample of real runs" in said
    assert "PROBLEM" not in said
    assert len([one for one in outputs if "image/svg+xml" in one.get("data", {})]) == PICTURES[name]


@pytest.mark.long
def test_job_completion__by_hand_is_what_the_toolkit_says(executed: dict[str, list[Any]]) -> None:
    said = "".join(output.get("text", "") for output in executed["01_jct"])
    by_hand, toolkit = (line for line in said.splitlines() if line.startswith(("by hand:", "the toolkit:")))
    ratio = re.search(r"value=([0-9.]+)", toolkit)
    assert ratio is not None
    assert float(by_hand.split()[2]) == pytest.approx(float(ratio[1]), abs=6e-5)  # the one has four decimals


def test_samples__are_small() -> None:
    assert sum(sample.stat().st_size for sample in SAMPLES) < 400_000
