"""`dlcp tune`: which runs a search makes, what its record holds, and when `dlcp run` believes it.

The substrate is a script of outcomes: a run's time follows from its knobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from dlcp.cli.main import run as run_experiment
from dlcp.errors import ExitCode, Problem, Problems
from dlcp.model.base import OnProgress
from dlcp.model.loading.search_record import RUNS_A_POINT, read_record, record_path
from dlcp.model.result import TABLES, RunResult
from dlcp.model.run import Run
from dlcp.model.tables import write_rows
from dlcp.runner.planning.check import Ready, check, ready
from dlcp.runner.planning.plan import Plan, plan, seed_of
from dlcp.runner.running.execute import MORE_CHANCES, execute
from dlcp.runner.search import Tuner, Tuning, tune, tuning_seed
from dlcp.substrates.run_plan import plan_run
from experiments import document, write

SLICES = ["15 kB", "30 kB", "60 kB"]
SEARCH = {"scheme": "p3", "label": "P3", "search": {"slice": SLICES}}
Outcome = Callable[[Run], tuple[str, float]]


def by_slice(run: Run) -> tuple[str, float]:
    """For job `one` 30 kB is best, for `two` 60 kB."""
    best = {"one": "30 kB", "two": "60 kB"}[run.job_name]
    return "ok", 1.0 + (run.scheme.knobs["slice"] != best) + run.seed % 7 / 100


class Scripted:
    """A substrate that makes nothing. made: what was asked of it."""

    def __init__(self, outcome: Outcome = by_slice, most: int = 1000) -> None:
        self._outcome, self._most = outcome, most
        self.made: list[Run] = []

    @contextmanager
    def opened(self) -> Iterator[Scripted]:
        yield self

    def run(self, run: Run, directory: Path, on_progress: OnProgress) -> RunResult:
        if len(self.made) == self._most:
            raise KeyboardInterrupt
        self.made.append(run)
        for table in TABLES:
            write_rows(directory, table, [])
        status, jct_s = self._outcome(run)
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
            status=status,
            jct_s=jct_s,
        )


class Silent:
    """Listens and says nothing."""

    def again(self, count: int) -> None: ...

    def begins(self, number: int, total: int, run: Run) -> OnProgress:
        return lambda share, text: None

    def ends(self, number: int, total: int, run: Run, result: RunResult, took_s: float) -> None: ...


def written(folder: Path, **changes: Any) -> Path:
    return write(folder, document(**({"repeats": 1, "schemes": [SEARCH]} | changes)))


def loaded(path: Path) -> Ready:
    return ready(path, path.parent / "workloads")


def tuned(path: Path, substrate: Scripted, **options: Any) -> Tuning:
    return tune(Tuner(loaded(path), **options), Silent(), substrate=substrate.opened())


def chosen(path: Path) -> dict[str, Any]:
    """Job → slice, of the runs that would be made."""
    return {cell.run.job_name: cell.run.scheme.knobs.get("slice") for cell in plan(loaded(path)).cells}


def test_search__every_point_runs_for_every_job_and_the_best_is_used_by_its_job(tmp_path: Path) -> None:
    path, substrate = written(tmp_path), Scripted()
    found = tuned(path, substrate)
    assert found.exit_code == ExitCode.FINE
    asked = sorted((run.job_name, run.scheme.knobs["slice"]) for run in substrate.made)
    assert asked == sorted([(job, size) for job in ("one", "two") for size in SLICES] * RUNS_A_POINT)
    assert chosen(path) == {"one": "30 kB", "two": "60 kB"}
    settings = {cell.run.job_name: plan_run(cell.run).settings for cell in plan(loaded(path)).cells}
    assert {job: one.partition_bytes for job, one in settings.items()} == {"one": 30_000, "two": 60_000}
    search = read_record(path, "small").of("P3", "one")
    assert search is not None
    assert [len(point.runs) for point in search.points] == [RUNS_A_POINT] * 3
    assert search.points[0].mean_jct_s == pytest.approx(2.0, abs=0.07)


def test_seeds__are_common_to_all_points_and_never_measured(tmp_path: Path) -> None:
    substrate = Scripted()
    tuned(written(tmp_path), substrate)
    for job in ("one", "two"):
        by_point = {}
        for run in substrate.made:
            if run.job_name == job:
                by_point.setdefault(run.scheme.knobs["slice"], set()).add(run.seed)
        assert set(map(frozenset, by_point.values())) == {
            frozenset(tuning_seed(7, job, k) for k in range(RUNS_A_POINT))
        }
        measured = {seed_of(7, job, repeat) for repeat in range(1000)}
        assert not measured & set.union(*by_point.values())


def test_order__every_point_runs_once_before_any_runs_twice(tmp_path: Path) -> None:
    substrate = Scripted()
    tuned(written(tmp_path), substrate)
    assert [run.repeat for run in substrate.made] == [0] * 6 + [1] * 6
    assert {run.scheme.label for run in substrate.made} == {f"P3 (slice {size})" for size in SLICES}
    named = [(run.job_name, run.scheme.knobs["slice"]) for run in substrate.made[:6]]
    assert named != sorted(named), "what drifts must not favour the first"


def test_resume__a_search_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    path, first = written(tmp_path), Scripted(most=5)
    with pytest.raises(KeyboardInterrupt):
        tuned(path, first)
    assert {why for _, why in loaded(path).untuned} == {"has no knobs yet that all runs agree to trust"}
    second = Scripted()
    assert tuned(path, second).made == 12 - 5
    made = [(run.job_name, run.scheme.knobs["slice"], run.seed) for run in (*first.made, *second.made)]
    assert len(made) == len(set(made)) == 12
    third = Scripted()
    assert (tuned(path, third).made, third.made) == (0, [])
    assert chosen(path) == {"one": "30 kB", "two": "60 kB"}


def test_suspect__a_point_that_is_never_trusted_is_not_chosen_and_tried_again_next_time(tmp_path: Path) -> None:
    """The fastest point is suspect as long as the machine is busy."""

    def busy(run: Run) -> tuple[str, float]:
        return ("suspect", 0.5) if run.scheme.knobs["slice"] == "15 kB" else by_slice(run)

    path, substrate = written(tmp_path), Scripted(busy)
    found = tuned(path, substrate)
    assert found.exit_code == ExitCode.SUSPECT
    asked = [run for run in substrate.made if (run.job_name, run.scheme.knobs["slice"]) == ("one", "15 kB")]
    assert len(asked) == RUNS_A_POINT * (1 + MORE_CHANCES)
    assert chosen(path) == {"one": "30 kB", "two": "60 kB"}
    assert any("1 of 3 points have no trusted runs" in one.what for one in loaded(path).warnings)
    assert tuned(path, Scripted(lambda run: ("ok", 0.5))).made == 2 * RUNS_A_POINT
    assert chosen(path) == {"one": "15 kB", "two": "15 kB"}


def test_suspect__where_no_point_is_trusted_nothing_is_chosen(tmp_path: Path) -> None:
    path = written(tmp_path)
    found = tuned(path, Scripted(lambda run: ("suspect", 1.0)))
    assert found.exit_code == ExitCode.SUSPECT
    assert {search.chosen for search in found.searches} == {None}
    assert len(loaded(path).untuned) == 2


def test_failed__a_point_whose_run_fails_is_not_chosen(tmp_path: Path) -> None:
    path = written(tmp_path)
    tuned(path, Scripted(lambda run: ("failed", 0.1) if run.scheme.knobs["slice"] == "30 kB" else by_slice(run)))
    assert chosen(path)["one"] == "15 kB"


def test_run__without_an_answer_is_refused_and_check_warns(tmp_path: Path) -> None:
    path = written(tmp_path)
    found = check(path, path.parent / "workloads")
    assert found.problems == []
    assert [one.what for one in found.warnings if "tuned" in one.what] == [
        "P3 was not tuned, for job one",
        "P3 was not tuned, for job two",
    ]
    with pytest.raises(Problems, match=rf"P3, job one: was not tuned\n    dlcp tune {path}"):
        run_all(loaded(path), tmp_path)
    tuned(path, Scripted(), jobs=["one"])
    with pytest.raises(Problems) as caught:
        run_all(loaded(path), tmp_path)
    assert [one.where for one in caught.value.problems] == ["P3, job two"]


def test_run__the_command_makes_what_lacks_first_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The substrate is the script, and nothing is asked of this machine. No measured run is trusted, so no report."""
    job = {"workload": "resnet50", "workers": ["h1", "h2"], "servers": ["h3"], "iterations": 4, "bucket": "60 kB"}
    changes = {"topology": {"kind": "star", "hosts": 3, "rate": "100 Mbit/s"}, "jobs": {"one": job}}
    path, measured = written(tmp_path, **changes), seed_of(7, "one", 0)
    substrate = Scripted(lambda run: ("suspect", 1.0) if run.seed == measured else by_slice(run))
    for module in ("running.execute", "search"):
        monkeypatch.setattr(f"dlcp.runner.{module}.open_substrate", lambda name: substrate.opened())
    for check_machine in ("preflight", "preflight_tuning"):
        monkeypatch.setattr(f"dlcp.runner.preview.preflight.{check_machine}", lambda *given: None)
    assert run_experiment(str(path), results=tmp_path / "results") == ExitCode.SUSPECT
    assert "small: its schemes' knobs are searched first, as by `dlcp tune`" in capsys.readouterr().out
    searching = RUNS_A_POINT * len(SLICES)
    assert [one.seed == measured for one in substrate.made] == [False] * searching + [True] * (1 + MORE_CHANCES)
    assert {one.scheme.knobs["slice"] for one in substrate.made[searching:]} == {"30 kB"}
    run_experiment(str(path), results=tmp_path / "results")
    assert len(substrate.made) == searching + 1 + MORE_CHANCES, "once only"


def test_run__its_results_carry_the_record_of_their_search(tmp_path: Path) -> None:
    path = written(tmp_path)
    tuned(path, Scripted())
    _, results = run_all(loaded(path), tmp_path)
    assert {result.job: result.tuning["chosen"] for result in results} == {
        "one": {"slice": "30 kB"},
        "two": {"slice": "60 kB"},
    }
    assert all(len(result.tuning["points"]) == 3 for result in results)
    assert all(result.run["definition"]["knobs"]["slice"] in (30_000, 60_000) for result in results)


def run_all(found: Ready, folder: Path) -> tuple[Plan, list[RunResult]]:
    from dlcp.runner.running.store import Store

    planned = plan(found)
    substrate = Scripted(lambda run: ("ok", 1.0))
    execute(planned, folder / "results", Silent(), substrate=substrate.opened())
    return planned, list(Store(folder / "results", "small").load()[0].values())


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({"port_buffer": "50 kB"}, False),
        ({"scaling": {"lab_rate": "10 Gbit/s", "byte_scale": 50, "time_dilation": 2}}, False),
        ({"background": [{"kind": "constant", "sources": ["h1"], "sinks": ["h2"], "rate": "1 Mbit/s"}]}, False),
        ({"schemes": [SEARCH | {"search": {"slice": SLICES[:2]}}]}, False),
        ({"schemes": [SEARCH | {"knobs": {"low_water": "8 kB"}}]}, False),
        ({"schemes": [SEARCH | {"scheme": "bytescheduler", "search": {"partition": SLICES}}]}, False),
        ({"seed": 8}, True),
        ({"repeats": 4}, True),
        ({"backlog_every": "2 ms"}, True),
        ({"schemes": [SEARCH, {"scheme": "tcp", "label": "TCP"}]}, True),
    ],
    ids=["buffer", "scaling", "background", "grid", "knobs", "scheme", "seed", "repeats", "samples", "others"],
)
def test_record__of_another_fabric_job_or_grid_does_not_fit(
    changes: dict[str, Any], holds: bool, tmp_path: Path
) -> None:
    tuned(written(tmp_path), Scripted())
    path = written(tmp_path, **changes)
    why = {why for _, why in loaded(path).untuned}
    assert why == (set() if holds else {"was tuned for something else: fabric, job, scheme or grid have changed since"})
    if not holds:
        tuner = Tuner(loaded(path))
        assert len(tuner.redone) == 2
        assert len(tuner.todo()) == sum(len(search.points) for search in tuner.searches) * RUNS_A_POINT


def test_record__a_job_that_only_runs_longer_keeps_its_answer_and_another_bucket_does_not(tmp_path: Path) -> None:
    tuned(written(tmp_path), Scripted())
    jobs = document()["jobs"]
    path = written(tmp_path, jobs=jobs | {"one": jobs["one"] | {"iterations": 40}})
    assert loaded(path).untuned == []
    path = written(tmp_path, jobs=jobs | {"one": jobs["one"] | {"bucket": "80 kB"}})
    assert [one.job for one, _ in loaded(path).untuned] == ["one"]


def test_record__whose_workload_has_changed_does_not_fit(tmp_path: Path) -> None:
    path = written(tmp_path)
    tuned(path, Scripted())
    workload = path.parent / "workloads" / "small.yaml"
    workload.write_text(workload.read_text().replace("backward: 20 ms", "backward: 21 ms"))
    assert len(loaded(path).untuned) == 2


@pytest.mark.parametrize("what", ["chosen", "time", "status"])
def test_record__that_was_changed_by_hand_is_not_believed(what: str, tmp_path: Path) -> None:
    path = written(tmp_path)
    tuned(path, Scripted())
    file = record_path(path)
    data = yaml.safe_load(file.read_text())
    search = data["searches"][0]
    if what == "chosen":
        search["chosen"] = {"slice": "15 kB"}
    elif what == "time":
        search["points"][0]["runs"][0]["jct_s"] = 0.1
    else:
        search["points"][0]["runs"][0]["status"] = "suspect"
    file.write_text(yaml.safe_dump(data))
    found = loaded(path)
    assert [(one.job, why) for one, why in found.untuned] == [
        ("one", "has a record that was changed by hand: its sum is wrong")
    ]
    substrate = Scripted()
    assert tuned(path, substrate).made == 3 * RUNS_A_POINT, "that job's search is made again, the other's stands"
    assert loaded(path).untuned == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("format: 1\nexperiment: other\n", "is the record of 'other'"),
        ("format: 2\nexperiment: small\n", "2 is not known"),
        ("format: [", "small.yaml"),
    ],
    ids=["other", "newer", "broken"],
)
def test_record__that_cannot_be_read_is_a_problem_with_its_place(text: str, why: str, tmp_path: Path) -> None:
    path = written(tmp_path)
    record_path(path).parent.mkdir()
    record_path(path).write_text(text)
    found = check(path, path.parent / "workloads")
    assert found.experiment is None
    assert any(why in f"{one.where}: {one.what}" for one in found.problems)


def test_unfit__points_that_cannot_do_are_told_and_not_run(tmp_path: Path) -> None:
    search = {"partition": ["20 kB", "60 kB"], "credit": ["30 kB", "240 kB"]}
    path = written(tmp_path, schemes=[{"scheme": "bytescheduler", "label": "BS", "search": search}])
    substrate = Scripted(lambda run: ("ok", 1.0))
    found = tuned(path, substrate)
    assert found.exit_code == ExitCode.FINE
    one = found.searches[0]
    assert [bool(point.unfit) for point in one.points] == [False, False, True, False]
    assert "30000 B hold no partition" in one.points[2].unfit
    assert len(substrate.made) == 3 * 2 * RUNS_A_POINT


def test_knobs_for__a_job_has_its_own_and_the_rest_is_common(tmp_path: Path) -> None:
    choice = {"scheme": "p3", "label": "P3", "knobs": {"low_water": "8 kB"}, "knobs_for": {"two": {"slice": "30 kB"}}}
    cells = plan(loaded(written(tmp_path, schemes=[choice]))).cells
    told = {cell.run.job_name: cell.definition["knobs"] for cell in cells}
    assert {job: (knobs["slice"], knobs["low_water"]) for job, knobs in told.items()} == {
        "one": (None, 8_000),
        "two": (30_000, 8_000),
    }
    run = cells[0].run
    sent = TypeAdapter(Run).validate_python(TypeAdapter(Run).dump_python(run, mode="json"))
    assert plan_run(sent).settings == plan_run(run).settings, "as the emulation is handed it"


def test_tuner__names_what_is_not_there(tmp_path: Path) -> None:
    found = loaded(written(tmp_path, schemes=[SEARCH, {"scheme": "tcp", "label": "TCP"}]))
    with pytest.raises(Problem, match="no scheme with a search is labelled 'TCP'"):
        Tuner(found, ["TCP"])
    with pytest.raises(Problem, match="no job is called 'three'"):
        Tuner(found, None, ["three"])
    with pytest.raises(Problem, match="no scheme here has a `search`"):
        Tuner(loaded(written(tmp_path, schemes=[{"scheme": "tcp", "label": "TCP"}])))


def test_tuning__two_at_once_would_measure_each_other(tmp_path: Path) -> None:
    path = written(tmp_path)
    with Tuner(loaded(path)).alone(), pytest.raises(Problem, match="another dlcp is tuning here"):
        tuned(path, Scripted())


def test_beside__each_job_is_searched_alone_and_neighbours_get_their_own_knobs(tmp_path: Path) -> None:
    """Job `two` runs only beside `one`; both are searched, and a run of `one` needs both answers."""
    jobs = document(topology={"kind": "star", "hosts": 8, "rate": "100 Mbit/s"})["jobs"]
    other = {"workers": ["h5", "h6", "h7"], "servers": ["h8"], "measured": False}
    path = written(
        tmp_path,
        topology={"kind": "star", "hosts": 8, "rate": "100 Mbit/s"},
        jobs={"one": jobs["one"] | {"beside": ["two"]}, "two": jobs["two"] | other},
    )
    substrate = Scripted()
    tuned(path, substrate, jobs=["one"])
    assert all(run.tenants == () for run in substrate.made)
    with pytest.raises(Problems, match="P3, job two: was not tuned"):
        run_all(loaded(path), tmp_path)
    tuned(path, substrate)
    (cell,) = plan(loaded(path)).cells
    assert cell.run.scheme.knobs == {"slice": "30 kB"}
    assert [tenant.scheme.knobs for tenant in cell.run.tenants] == [{"slice": "60 kB"}]
