"""The order of runs on a lab, what tells them from others', and the lock of its fabric."""

from __future__ import annotations

import itertools
from pathlib import Path

from dlcp.runner.lab.lab_runs import few_deployments, needs
from dlcp.runner.planning.check import Ready, ready
from dlcp.runner.planning.plan import plan
from dlcp.substrates.lab.fabric_lock import held
from experiments import document, write


def experiment(folder: Path, **changes: object) -> Ready:
    return ready(write(folder, document(**changes)), folder / "workloads")


def test_runs_that_need_the_same_are_next_to_each_other_and_repeats_stay_whole(tmp_path: Path) -> None:
    before = plan(experiment(tmp_path), "lab", where="rack")
    after = few_deployments(before)
    assert sorted(cell.run.id for cell in after.cells) == sorted(cell.run.id for cell in before.cells)
    repeats = [cell.run.repeat for cell in after.cells]
    assert repeats == sorted(repeats)
    changes = sum(needs(a) != needs(b) for a, b in itertools.pairwise(after.cells))
    assert changes == 2 * 5, "three needs: two changes in each of five repeats, none between repeats"
    assert changes < sum(needs(a) != needs(b) for a, b in itertools.pairwise(before.cells))


def test_the_same_needs_under_two_labels_are_one_deployment(tmp_path: Path) -> None:
    schemes = [{"scheme": "tcp", "label": "A"}, {"scheme": "tcp", "label": "B"}]
    cells = plan(experiment(tmp_path, schemes=schemes), "lab", where="rack").cells
    assert len({needs(cell) for cell in cells}) == 1


def test_runs_on_two_labs_are_two_runs(tmp_path: Path) -> None:
    found = experiment(tmp_path)
    labs = [plan(found, "lab", where=where).run_ids for where in ("rack", "bench")]
    assert labs[0].isdisjoint(labs[1])
    assert labs[0] == plan(found, "lab", where="rack").run_ids
    assert labs[0].isdisjoint(plan(found).run_ids)


def test_a_scheme_that_the_switches_cannot_do_is_unsupported_with_its_reason(tmp_path: Path) -> None:
    found = plan(experiment(tmp_path), "lab", where="rack", lacking={"DLCP": "no drop precedences"})
    assert {cell.run.scheme.label for cell in found.cells} == {"TCP", "TCP tuned"}
    assert [(one.label, one.why) for one in found.unsupported] == [("DLCP", "no drop precedences")]


def test_a_run_keeps_the_fabric_when_a_deployment_of_its_own_is_over(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with held(lock, "running"):
        with held(lock, "deploying"):
            pass
        assert "running" in lock.read_text()
    assert lock.read_text() == ""
