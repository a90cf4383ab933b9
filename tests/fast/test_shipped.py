"""The experiments that ship: each loads and plans; those of the comparison say what was published, and fit the time."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlcp.errors import Problem
from dlcp.model.loading.experiment_files import experiment_names, find_experiment
from dlcp.runner.paper import parts, reduced, reduction, shipped
from dlcp.runner.planning.check import Ready, ready
from dlcp.runner.planning.estimate import SET_UP_S, estimate
from dlcp.runner.planning.plan import Plan, plan, usual_substrate
from experiments import small

CLAIMS = {
    "headline",
    "headline-packets",
    "ring",
    "ablation",
    "tail",
    "compression",
    "scale",
    "gray-failure",
    "microburst",
    "transpose",
    "two-jobs",
    "loss-tolerance",
    "uneven-loss",
    "message-size",
}
"""The experiments that carry the published claims."""
LONGEST_S = 4 * 3600
"""Of the whole comparison, its searches made: a machine half as fast as two usual cores carries it, but in slow motion.
"""
LONGEST_QUICK_S = 3600
"""Of the quick one, with all its searches."""

_READY: dict[str, Ready] = {}


def shipped_file(name: str) -> Ready:
    if name not in _READY:
        _READY[name] = ready(find_experiment(name))
    return _READY[name]


def usual(one: Ready) -> Plan:
    return plan(one, usual_substrate(one))


def test_every_claim_has_its_experiment() -> None:
    assert set(shipped()) >= CLAIMS


@pytest.mark.parametrize("name", experiment_names())
def test_it_plans_as_it_ships(name: str) -> None:
    found = usual(shipped_file(name))
    experiment = found.ready.experiment
    assert experiment.name == name
    jobs = [job for job in experiment.jobs.values() if job.measured]
    cells = len(jobs) * experiment.repeats * (len(experiment.schemes) - len(found.unsupported))
    assert len(found.cells) == len(found.run_ids) == cells


@pytest.mark.parametrize("name", sorted(CLAIMS))
def test_every_expectation_says_what_was_published_and_why(name: str) -> None:
    expect = shipped_file(name).experiment.expect
    assert expect
    assert [line for line in expect if not line.paper or not line.why] == []


@pytest.mark.parametrize("name", sorted(CLAIMS))
def test_the_reduced_experiment_is_part_of_the_whole(name: str) -> None:
    whole = shipped_file(name)
    part = usual(reduced(whole))
    assert part.run_ids
    assert part.run_ids <= usual(whole).run_ids
    expected = {line.job for line in whole.experiment.expect}
    assert expected & set(part.ready.experiment.jobs), "none of its expectations is judged"


def test_the_whole_comparison_fits_into_the_time() -> None:
    planned = [usual(reduced(shipped_file(name))) for name in sorted(CLAIMS)]
    seconds = sum(estimate(one, list(one.cells), {}).seconds for one in planned)
    assert seconds < LONGEST_S


def test_the_quick_comparison_fits_into_an_hour_and_is_part_of_the_whole(tmp_path: Path) -> None:
    quick = parts(tmp_path, quick=True)
    assert {part.name for part in quick} >= {"headline", "ablation", "scale"}
    assert sum(part.seconds for part in quick) < LONGEST_QUICK_S
    for part in quick:
        whole = usual(shipped_file(part.name)).run_ids
        assert {cell.run.id for cell in part.cells} < whole
        judged = {(line.job, line.scheme) for line in part.whole.experiment.expect}
        made = {(cell.run.job_name, cell.run.scheme.label) for cell in part.cells}
        assert judged & made, f"none of the expectations of {part.name} is judged"


def test_reduced__leaves_out_what_is_not_named(tmp_path: Path) -> None:
    whole = small(tmp_path, reduced={"repeats": 2, "jobs": ["two"], "schemes": ["TCP", "DLCP"]})
    part = plan(reduced(whole))
    assert {(cell.run.job_name, cell.run.scheme.label, cell.run.repeat) for cell in part.cells} == {
        ("two", label, repeat) for label in ("TCP", "DLCP") for repeat in range(2)
    }
    assert part.run_ids < plan(whole).run_ids
    assert reduction(whole.experiment) == (
        "2 of 5 repeats; 1 of 2 jobs (without one); 2 of 3 schemes (without TCP tuned)"
    )


def test_reduced__without_the_word_is_whole(tmp_path: Path) -> None:
    whole = small(tmp_path)
    assert reduced(whole) is whole
    assert reduction(whole.experiment) == "whole"


def test_parts__names_what_there_is(tmp_path: Path) -> None:
    (part,) = parts(tmp_path, ["gray-failure"])
    assert part.name == "gray-failure"
    assert len(part.todo) == len(part.cells) > 0
    assert part.seconds > len(part.cells) * SET_UP_S
    with pytest.raises(Problem, match="does not say what of it is part of the comparison"):
        parts(tmp_path, ["smoke"])
    with pytest.raises(Problem, match="part of the quick comparison"):
        parts(tmp_path, ["transpose"], quick=True)
