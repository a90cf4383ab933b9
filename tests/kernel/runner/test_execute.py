"""Executing a plan: one result a run whatever happens in it, what is missing is made, what is there is kept.

The substrate here is a script of outcomes; real ones run in tests/kernel/emulate and tests/kernel/crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import Damage, change_every_37th_byte, cut_in_half, zero_the_rows

from dlcp.errors import ExitCode, MachineCannot, Problem
from dlcp.model.base import OnProgress
from dlcp.model.loading.stored_result import read_result
from dlcp.model.result import TABLES, RunResult
from dlcp.model.run import Run
from dlcp.model.tables import write_columns, write_rows
from dlcp.runner.planning.plan import Plan, plan
from dlcp.runner.running import execute as executing
from dlcp.runner.running.clean import find, remove
from dlcp.runner.running.execute import execute
from dlcp.runner.running.status import status
from dlcp.runner.running.store import Store
from experiments import small

SCHEMES = [{"scheme": "tcp", "label": "TCP"}, {"scheme": "dlcp", "label": "DLCP"}]
Outcome = Callable[[Run, Path], RunResult]


def fine(run: Run, directory: Path, **changes: Any) -> RunResult:
    """A run with empty tables."""
    for table in TABLES:
        write_rows(directory, table, [])
    return RunResult(
        run_id=run.id,
        experiment=run.experiment.name,
        scheme=run.scheme.scheme,
        is_dlcp=run.scheme.scheme.startswith("dlcp"),
        label=run.scheme.label,
        job=run.job_name,
        repeat=run.repeat,
        seed=run.seed,
        substrate=run.substrate,
        **({"status": "ok", "jct_s": 1.0} | changes),
    )


class Scripted:
    """A substrate whose runs end as `outcome` says."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.made: list[str] = []

    @contextmanager
    def open(self, name: str) -> Iterator[Scripted]:
        assert name == "emulate"
        yield self

    def run(self, run: Run, directory: Path, on_progress: OnProgress) -> RunResult:
        on_progress(0.5, "half")
        self.made.append(run.id)
        assert list(directory.iterdir()) == []
        return self.outcome(run, directory)


class Silent:
    """Listens, and remembers how runs ended."""

    def __init__(self) -> None:
        self.endings: list[tuple[int, int, str]] = []

    def again(self, count: int) -> None:
        self.endings.append((0, count, "again"))

    def begins(self, number: int, total: int, run: Run) -> OnProgress:
        return lambda share, text: None

    def ends(self, number: int, total: int, run: Run, result: RunResult, took_s: float) -> None:
        self.endings.append((number, total, result.status))


@pytest.fixture
def found(tmp_path: Path) -> Plan:
    jobs = {"one": {"workload": "small", "workers": ["h1", "h2"], "servers": ["h4"], "iterations": 4}}
    return plan(small(tmp_path, repeats=2, schemes=SCHEMES, jobs=jobs))


@pytest.fixture
def run_with(found: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    def run_it(outcome: Outcome, **options: bool) -> tuple[Any, Scripted]:
        substrate = Scripted(outcome)
        monkeypatch.setattr(executing, "open_substrate", substrate.open)
        return execute(found, tmp_path / "results", Silent(), **options), substrate

    return run_it


def only_for(label: str, outcome: Outcome) -> Outcome:
    return lambda run, directory: (outcome if run.scheme.label == label else fine)(run, directory)


def raising(error: BaseException) -> Outcome:
    def outcome(run: Run, directory: Path) -> RunResult:
        raise error

    return outcome


def stored(tmp_path: Path) -> dict[str, RunResult]:
    return Store(tmp_path / "results", "small").load()[0]


def test_all_runs_in_the_plan_s_order_and_nothing_twice(found: Plan, tmp_path: Path, run_with: Any) -> None:
    execution, substrate = run_with(fine)
    assert substrate.made == [cell.run.id for cell in found.cells]
    assert (execution.statuses, execution.made, execution.exit_code) == ({"ok": 4}, 4, ExitCode.FINE)
    again, substrate = run_with(fine)
    assert (substrate.made, again.made, again.kept) == ([], 0, 4)
    result = stored(tmp_path)[found.cells[0].run.id]
    assert result.run["definition"] == found.cells[0].definition
    assert result.run["planned"]["repeats"] == 2


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (
            raising(Problem("h3", "did not answer", "look at its log", exit_code=ExitCode.RUN_FAILED)),
            "h3: did not answer",
        ),
        (raising(ZeroDivisionError("a bug")), "ZeroDivisionError: a bug"),
        (lambda run, directory: fine(run, directory, status="failed", reason="lost"), "lost"),
    ],
)
def test_a_failed_run_is_kept_with_its_reason_the_others_go_on_and_it_is_tried_again(
    found: Plan, tmp_path: Path, run_with: Any, outcome: Outcome, reason: str
) -> None:
    execution, _ = run_with(only_for("DLCP", outcome))
    assert execution.statuses == {"ok": 2, "failed": 2}
    assert execution.exit_code == ExitCode.RUN_FAILED
    failed = [result for result in stored(tmp_path).values() if result.status == "failed"]
    assert [result.label for result in failed] == ["DLCP", "DLCP"]
    assert all(reason in result.reason for result in failed)

    again, substrate = run_with(fine)
    assert sorted(substrate.made) == sorted(result.run_id for result in failed)
    assert again.statuses == {"ok": 4}
    assert {result.status for result in stored(tmp_path).values()} == {"ok"}
    assert Store(tmp_path / "results", "small").unfinished() == []


def test_wrong_or_missing_tables_make_a_run_fail(tmp_path: Path, run_with: Any) -> None:
    def lacks_one(run: Run, directory: Path) -> RunResult:
        result = fine(run, directory)
        (directory / "messages.parquet").unlink()
        (directory / "ports.parquet").write_bytes(b"no table")
        return result

    execution, _ = run_with(only_for("TCP", lacks_one))
    assert execution.statuses == {"ok": 2, "failed": 2}
    failed = next(result for result in stored(tmp_path).values() if result.status == "failed")
    assert "messages.parquet is missing" in failed.reason
    assert "ports.parquet cannot be read" in failed.reason


def test_a_machine_that_cannot_ends_all_and_leaves_nothing(tmp_path: Path, run_with: Any) -> None:
    with pytest.raises(MachineCannot):
        run_with(raising(MachineCannot("emulation", "needs root")))
    assert list((tmp_path / "results" / "small").iterdir()) == []


def test_ctrl_c_keeps_finished_runs_and_leaves_nothing_half_done(found: Plan, tmp_path: Path, run_with: Any) -> None:
    def interrupted(run: Run, directory: Path) -> RunResult:
        if run.id == found.cells[2].run.id:
            raise KeyboardInterrupt
        return fine(run, directory)

    with pytest.raises(KeyboardInterrupt):
        run_with(interrupted)
    names = {path.name for path in (tmp_path / "results" / "small").iterdir()}
    assert names == {cell.run.id for cell in found.cells[:2]}


def test_suspect_runs_count_unless_asked_again(tmp_path: Path, run_with: Any) -> None:
    def suspect(run: Run, directory: Path) -> RunResult:
        return fine(run, directory, status="suspect", reason="cpu_busy")

    execution, _ = run_with(suspect)
    assert (execution.exit_code, execution.trusted) == (ExitCode.SUSPECT, False)
    assert run_with(fine)[0].made == 0
    assert run_with(fine, retry_suspect=True)[0].statuses == {"ok": 4}


def test_suspect_runs_get_more_chances(found: Plan, run_with: Any) -> None:
    """A machine that was busy once does not cost a repeat; what is trusted is not made again."""
    attempts: dict[str, int] = {}

    def busy_at_first(run: Run, directory: Path) -> RunResult:
        attempts[run.id] = attempts.get(run.id, 0) + 1
        calm = run.scheme.label == "DLCP" or attempts[run.id] == 2
        return fine(run, directory, status="ok" if calm else "suspect", reason="" if calm else "cpu_busy")

    execution, _ = run_with(busy_at_first)
    assert execution.statuses == {"ok": 4}
    assert {cell.run.scheme.label: attempts[cell.run.id] for cell in found.cells} == {"TCP": 2, "DLCP": 1}


@pytest.mark.parametrize("version", [5, 6])
@pytest.mark.parametrize("damage", [None, cut_in_half, zero_the_rows, change_every_37th_byte])
def test_a_run_whose_table_is_damaged_is_made_again(
    found: Plan, tmp_path: Path, run_with: Any, damage: Damage | None, version: int
) -> None:
    """None: the file is gone. A result of format 5 has no checksums; its tables are read in full."""
    run_with(with_messages)
    folder = tmp_path / "results" / "small" / found.cells[2].run.id
    if version == 5:
        older = read_result(folder).model_copy(update={"format_version": 5, "tables": {}})
        (folder / "result.json").write_text(older.model_dump_json(), encoding="utf-8")
    file = folder / "messages.parquet"
    content = file.read_bytes()
    file.unlink()
    if damage is not None:
        file.write_bytes(damage(content))
    (one,) = status(tmp_path / "results")
    assert [(invalid.path, invalid.why.split(" ")[0]) for invalid in one.invalid] == [(folder, "messages.parquet")]
    execution, substrate = run_with(with_messages)
    assert substrate.made == [found.cells[2].run.id]
    assert (execution.made, execution.kept) == (1, 3)
    assert file.read_bytes() == content
    assert status(tmp_path / "results")[0].invalid == ()


def with_messages(run: Run, directory: Path) -> RunResult:
    """A run whose table `messages` is large enough to be damaged in its rows."""
    result = fine(run, directory)
    numbers = np.random.default_rng(run.seed).integers(0, 2**31, 20_000)
    kinds = {"string": numbers.astype(str), "bool": numbers > 0, "double": numbers / 3}
    write_columns(directory, "messages", {name: kinds.get(kind, numbers) for name, kind in TABLES["messages"].items()})
    return result


@pytest.mark.parametrize("name", ["{}.tmp", "{}.replaced.tmp", "{}"])
@pytest.mark.parametrize("there", [True, False], ids=["folder", "nothing"])
def test_a_link_in_the_place_of_a_run_goes_and_what_it_points_to_stays(
    found: Plan, tmp_path: Path, run_with: Any, name: str, there: bool
) -> None:
    folder, other = tmp_path / "results" / "small", tmp_path / "other"
    folder.mkdir(parents=True)
    if there:
        other.mkdir()
        (other / "mine.txt").write_text("mine")
    link = folder / name.format(found.cells[0].run.id)
    link.symlink_to(other)
    execution, _ = run_with(fine)
    assert execution.statuses == {"ok": 4}
    assert not link.is_symlink()
    assert sorted(stored(tmp_path)) == sorted(cell.run.id for cell in found.cells)
    assert [path.name for path in other.glob("*")] == (["mine.txt"] if there else [])


@pytest.mark.parametrize("name", ["{}.tmp", "{}.replaced.tmp", "{}"])
def test_a_file_in_the_place_of_a_run_goes(found: Plan, tmp_path: Path, run_with: Any, name: str) -> None:
    stale = tmp_path / "results" / "small" / name.format(found.cells[0].run.id)
    stale.parent.mkdir(parents=True)
    stale.write_text("no folder")
    execution, _ = run_with(fine)
    assert execution.statuses == {"ok": 4}
    assert not stale.is_file()
    assert sorted(stored(tmp_path)) == sorted(cell.run.id for cell in found.cells)


def test_clean_removes_links_and_not_what_they_point_to(found: Plan, tmp_path: Path, run_with: Any) -> None:
    run_with(fine)
    folder, other = tmp_path / "results" / "small", tmp_path / "other"
    (folder / found.cells[0].run.id).rename(other)
    (folder / found.cells[0].run.id).symlink_to(other)
    (folder / "0123456789ab.tmp").symlink_to(other)
    run_with(fine)
    (folder / "0123456789ab.tmp").symlink_to(other)
    listed = find(tmp_path / "results", with_results=True)
    assert next(one.size_bytes for one in listed.leftovers if one.path.name == "0123456789ab.tmp") < 1000
    remove(tmp_path / "results", with_results=True)
    assert not folder.exists()
    assert (other / "messages.parquet").is_file()


def test_two_at_once_are_refused(tmp_path: Path, run_with: Any) -> None:
    with Store(tmp_path / "results", "small").locked(), pytest.raises(Problem, match="another dlcp"):
        run_with(fine)


def test_status_counts_repeats(tmp_path: Path, run_with: Any) -> None:
    run_with(only_for("DLCP", raising(Problem("h1", "gone"))))
    (one,) = status(tmp_path / "results")
    assert status(tmp_path / "results" / "small") == [one]
    counts = {row.label: (row.counts, row.repeats, row.missing) for row in one.rows}
    assert counts == {"TCP": ({"ok": 2}, 2, 0), "DLCP": ({"failed": 2}, 2, 0)}
    assert any("h1: gone" in reason for row in one.rows for reason in row.reasons)


def test_status_does_not_count_results_of_another_scale(tmp_path: Path, run_with: Any) -> None:
    """After a calibration that chose another dilation, with one scheme measured so far."""

    def at_dilation(dilation: float, hour: int) -> Outcome:
        return lambda run, directory: fine(
            run, directory, regime={"time_dilation": dilation}, provenance={"made_at": f"2026-01-01T0{hour}:00:00"}
        )

    run_with(only_for("DLCP", at_dilation(2, 9)))
    for result in stored(tmp_path).values():
        if result.label == "TCP":
            older = result.model_copy(
                update={"regime": {"time_dilation": 4.0}, "provenance": {"made_at": "2026-01-01T08:00:00"}}
            )
            file = tmp_path / "results" / "small" / result.run_id / "result.json"
            file.write_text(older.model_dump_json(), encoding="utf-8")
    (one,) = status(tmp_path / "results")
    counts = {row.label: (row.counts, row.missing) for row in one.rows}
    assert counts == {"TCP": ({}, 2), "DLCP": ({"ok": 2}, 0)}
    assert one.older == 2


def test_clean_removes_what_is_ours_alone(tmp_path: Path, run_with: Any) -> None:
    run_with(fine)
    folder = tmp_path / "results" / "small"
    (folder / "0123456789ab.tmp").mkdir()
    (folder / "0123456789ab.tmp" / "part.parquet").write_bytes(b"x" * 1000)
    (folder / "mine.tmp").mkdir()
    (folder / "notes.txt").write_text("mine")
    listed = find(tmp_path / "results")
    assert [(one.path.name, one.size_bytes) for one in listed.leftovers] == [("0123456789ab.tmp", 1000)]
    assert (folder / "0123456789ab.tmp").is_dir()
    with Store(tmp_path / "results", "small").locked():
        (folder / "0123456789ab.tmp").mkdir()
        assert find(tmp_path / "results").leftovers == ()
        assert len(find(tmp_path / "results").kept) == 1
    remove(tmp_path / "results")
    assert len(stored(tmp_path)) == 4
    remove(tmp_path / "results", with_results=True)
    assert sorted(path.name for path in folder.iterdir()) == ["mine.tmp", "notes.txt"]
