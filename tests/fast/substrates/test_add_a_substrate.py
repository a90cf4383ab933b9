"""docs/add-a-substrate.md, step by step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from guides import added_to

import dlcp
from dlcp import substrates
from dlcp.errors import Problem
from dlcp.model.base import OnProgress
from dlcp.model.result import RunResult
from dlcp.model.run import Run
from dlcp.paths import REPOSITORY
from dlcp.runner.planning.check import ready
from dlcp.runner.planning.plan import plan, usual_substrate
from dlcp.runner.preview.outline import outline
from dlcp.runner.running.execute import execute
from dlcp.runner.running.store import Store
from dlcp.schemes import names as scheme_names
from dlcp.schemes import scheme_class
from dlcp.substrates.ideal import ideal_iteration_s, transfers_of
from dlcp.substrates.registry import names, names_for, traits_of, usual
from dlcp.substrates.run_plan import plan_run
from experiments import document, small, write

GUIDE = REPOSITORY / "docs" / "add-a-substrate.md"
NAME = "perfect"
SCHEMES = ("tcp", "dlcp")


class Silent:
    def again(self, count: int) -> None: ...

    def begins(self, number: int, total: int, run: Run) -> OnProgress:
        return lambda share, text: None

    def ends(self, number: int, total: int, run: Run, result: RunResult, took_s: float) -> None: ...


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose folders are as good as those in testbed/dlcp/substrates."""
    with added_to(substrates, tmp_path / "substrates") as added:
        yield added


@pytest.fixture
def guide_substrate(folder: Path) -> str:
    """Steps 1 and 2 of the guide."""
    text = GUIDE.read_text(encoding="utf-8")
    files = re.findall(
        r"^Create `testbed/dlcp/substrates/(\S+)`:\n\n```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
    )
    assert len(files) == text.count("\n```\n") == 2
    for name, content in files:
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(content, encoding="utf-8")
    return NAME


def test_guide__an_experiment_runs_on_it(guide_substrate: str, tmp_path: Path) -> None:
    jobs = {"one": document()["jobs"]["one"]}
    experiment = small(tmp_path, repeats=1, jobs=jobs, schemes=[{"scheme": name, "label": name} for name in SCHEMES])
    found = outline(experiment, guide_substrate, tmp_path / "results")
    assert (len(found.todo), found.loads, found.plan.substrate) == (2, (), guide_substrate)
    done = execute(found.plan, tmp_path / "results", Silent())
    assert (done.statuses, done.made) == ({"ok": 2}, 2)
    results, invalid = Store(tmp_path / "results", "small").load()
    assert list(invalid) == []
    for cell in found.plan.cells:
        planned = plan_run(cell.run)
        iteration_s = ideal_iteration_s(
            planned.graph, transfers_of(planned.spec, planned.settings), planned.spec.compute_s
        )
        assert results[cell.run.id].jct_s == pytest.approx(planned.spec.iterations * iteration_s)
        rows = pq.read_table(tmp_path / "results" / "small" / cell.run.id / "iterations.parquet")
        assert rows.num_rows == planned.spec.iterations * len(planned.spec.workers)
    again = execute(found.plan, tmp_path / "results", Silent())
    assert (again.made, again.kept) == (0, 2)


def test_guide__its_runs_have_names_of_their_own_and_masks_do_not_run_there(
    guide_substrate: str, tmp_path: Path
) -> None:
    ready_ = small(tmp_path)
    assert not plan(ready_, guide_substrate).run_ids & plan(ready_, "emulate").run_ids
    assert usual_substrate(ready_) == "emulate"
    masked = [name for name in scheme_names() if not scheme_class(name).needs_network]
    assert masked == ["masked"]
    assert names_for(needs_network=False) == ["inprocess"]


def test_every_substrate_says_its_traits_and_two_are_usual(guide_substrate: str) -> None:
    assert names() == ["emulate", "inprocess", "lab", guide_substrate]
    assert [name for name in names() if traits_of(name).usual] == ["emulate", "inprocess"]
    assert (usual(needs_network=True), usual(needs_network=False)) == ("emulate", "inprocess")


def test_an_unknown_substrate__is_told_with_the_nearest(guide_substrate: str, tmp_path: Path) -> None:
    experiment = ready(write(tmp_path, document()), tmp_path / "workloads")
    with pytest.raises(Problem, match="no substrate is called 'prefect'") as caught:
        plan(experiment, "prefect")
    assert guide_substrate in caught.value.hint


def test_a_folder_without_traits__is_told_by_its_file(folder: Path) -> None:
    own = folder / "empty"
    own.mkdir()
    (own / "__init__.py").write_text('"""Nothing."""\n')
    (own / "substrate.py").write_text('"""Nothing."""\n')
    with pytest.raises(TypeError, match=r"empty/__init__\.py: TRAITS must be"):
        traits_of("empty")


def compared_in(source: str, wanted: set[str]) -> list[str]:
    """Texts of a module that something is compared with and that are a substrate's name."""
    if not any(f'"{name}"' in source for name in wanted):
        return []
    sides = [
        side
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
    ]
    return [str(side.value) for side in sides if isinstance(side, ast.Constant) and side.value in wanted]


def test_no_file_asks_for_a_substrate_by_name() -> None:
    root = Path(dlcp.__file__).parent
    found = {
        file.relative_to(root).as_posix(): compared_in(file.read_text("utf-8"), set(names()))
        for file in root.rglob("*.py")
    }
    assert {file: texts for file, texts in found.items() if texts} == {}
    assert compared_in('substrate == "emulate"', set(names())) == ["emulate"]
