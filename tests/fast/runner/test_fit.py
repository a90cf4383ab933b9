"""An experiment that fits itself to the machine: which dilation it chooses, what it says, what it never pools."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from extras import needs

from dlcp.errors import MachineCannot
from dlcp.model.loading.experiment_files import find_experiment
from dlcp.model.result import TABLES, RunResult
from dlcp.model.scaling import regime
from dlcp.model.tables import write_rows
from dlcp.runner.doubts import doubts
from dlcp.runner.machine.calibration import DEFAULT, Costs
from dlcp.runner.planning.check import Ready, ready
from dlcp.runner.planning.plan import Cell, plan
from dlcp.runner.preview.outline import Outline, outline, this_machine
from dlcp.runner.preview.preflight import preflight_tuning
from dlcp.runner.running.store import Store
from experiments import small

FIT = {"lab_rate": "10 Gbit/s", "byte_scale": 100, "fit": "machine"}
HERE = Costs(30e-6, 6e-6, "measured for this test", measured=True)
SLOWER = replace(HERE, ends_s=60e-6, hop_s=12e-6)
JOB = {"workload": "small", "workers": ["h1", "h2", "h3"], "servers": ["h4"], "iterations": 4, "bucket": "60 kB"}


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("dlcp.runner.preview.outline.usable_cores", lambda: 2.0)
    monkeypatch.setattr("dlcp.runner.preview.outline.cores", lambda: 2)
    monkeypatch.setenv("DLCP_STATE", str(tmp_path / "state"))


@pytest.fixture
def fitting(tmp_path: Path) -> Ready:
    return small(tmp_path, scaling=FIT, jobs={"one": JOB})


def planned(whole: Ready, folder: Path, costs: Costs | None = HERE) -> Outline:
    return outline(whole, "emulate", folder / "results", measured=costs)


def keep(outlined: Outline, folder: Path, cells: list[Cell] | None = None, **changes: Any) -> list[RunResult]:
    """Store a result of each of a plan's runs, as if they had been made."""
    store = Store(folder / "results", outlined.plan.ready.experiment.name)
    results = []
    with store.locked():
        for cell in outlined.plan.cells if cells is None else cells:
            run = cell.run
            directory = store.begin(run.id)
            for table in TABLES:
                write_rows(directory, table, [])
            result = RunResult(
                run_id=run.id,
                experiment=run.experiment.name,
                scheme=run.scheme.scheme,
                is_dlcp=run.scheme.scheme.startswith("dlcp"),
                label=run.scheme.label,
                job=run.job_name,
                repeat=run.repeat,
                seed=run.seed,
                substrate=run.substrate,
                regime=regime(run.experiment, run.job, {}),
                **({"status": "ok", "jct_s": 1.0} | changes),
            )
            store.finish(result)
            results.append(result)
    return results


def test_it_dilates_as_far_as_the_machine_needs_and_says_so_in_a_line(fitting: Ready, tmp_path: Path) -> None:
    found = planned(fitting, tmp_path)
    scaling = found.plan.ready.experiment.scaling
    assert scaling.dilated_by == scaling.time_dilation > 1
    assert (scaling.byte_scale, scaling.scaled_down) == (100, 1)
    assert found.scaled.startswith(f"fitted to this machine: time dilation {scaling.time_dilation:g} (written: 1)")
    assert "links 100 Mbit/s → " in found.scaled
    assert HERE.source in found.scaled
    assert "\n" not in found.scaled
    assert all(load.fits for load in found.loads)


def test_the_same_machine_chooses_the_same_runs(fitting: Ready, tmp_path: Path) -> None:
    first = planned(fitting, tmp_path)
    keep(first, tmp_path)
    again = planned(fitting, tmp_path)
    assert again.plan.run_ids == first.plan.run_ids
    assert again.todo == ()
    assert again.elsewhere == ""


def test_a_slower_machine_dilates_more(fitting: Ready, tmp_path: Path) -> None:
    here, slower = (planned(fitting, tmp_path, costs).plan.ready.experiment.scaling for costs in (HERE, SLOWER))
    assert slower.time_dilation > 1.5 * here.time_dilation


def test_results_of_another_scale_are_named_and_never_counted_as_done(fitting: Ready, tmp_path: Path) -> None:
    slower = planned(fitting, tmp_path, SLOWER)
    keep(slower, tmp_path)
    found = planned(fitting, tmp_path)
    assert len(found.todo) == len(found.plan.cells)
    assert not found.plan.run_ids & slower.plan.run_ids
    dilation = slower.plan.ready.experiment.scaling.time_dilation
    assert f"{len(slower.plan.cells)} at time dilation {dilation:g} and byte scale 100" in found.elsewhere
    assert found.data()["elsewhere"] == found.elsewhere


@needs("pandas")
def test_report_leaves_results_of_another_scale_out(fitting: Ready, tmp_path: Path) -> None:
    """Without a plan, too, the newest configuration is shown alone."""
    from dlcp.report.data.load import load

    keep(planned(fitting, tmp_path, SLOWER), tmp_path, provenance={"made_at": "2024-06-07T08:00:00"})
    newer = planned(fitting, tmp_path)
    keep(newer, tmp_path, provenance={"made_at": "2024-06-08T08:00:00"})
    loaded = load(tmp_path / "results" / "small")
    assert {run.result.run_id for run in loaded.runs} == newer.plan.run_ids
    assert len(loaded.left_out) == len(newer.plan.cells)


def test_without_a_calibration_the_defaults_count_and_the_line_says_so(fitting: Ready, tmp_path: Path) -> None:
    found = planned(fitting, tmp_path, None)
    assert DEFAULT.source in found.scaled
    assert "not calibrated" in found.scaled
    assert "`dlcp run` measures it first" in found.scaled


def test_what_fits_as_it_is_written_is_left_alone(tmp_path: Path) -> None:
    scaling = {"lab_rate": "1 Gbit/s", "byte_scale": 100, "fit": "machine"}
    light = small(tmp_path, scaling=scaling, topology={"kind": "star", "hosts": 4, "rate": "10 Mbit/s"})
    found = planned(light, tmp_path)
    assert found.plan.ready is light
    assert "fits this machine as it is written" in found.scaled


def test_only_an_emulation_is_fitted(tmp_path: Path) -> None:
    shipped = ready(find_experiment("uneven-loss"))
    scaling = shipped.experiment.scaling.model_copy(update={"fit": "machine"})
    masked = replace(shipped, experiment=shipped.experiment.model_copy(update={"scaling": scaling}))
    found = outline(masked, "inprocess", tmp_path / "results", measured=HERE)
    assert (found.plan.ready, found.scaled) == (masked, "")


def test_what_was_searched_for_on_the_written_fabric_is_not_used_on_another(tmp_path: Path) -> None:
    schemes = [{"scheme": "dctcp-udp", "label": "DCTCP", "search": {"mark_from": [0.25, 0.5]}}]
    searched = small(tmp_path, scaling=FIT, schemes=schemes, jobs={"one": JOB})
    with pytest.raises(Exception, match="searched for on the fabric as it is written"):
        planned(searched, tmp_path)


@pytest.mark.parametrize(("others_share", "cores"), [(0.0, 2.0), (0.1, 1.8), (0.4, 1.2)])
def test_what_others_took_when_it_was_calibrated_is_not_counted_with(others_share: float, cores: float) -> None:
    assert this_machine(replace(HERE, others_share=others_share), fit=True).cores == pytest.approx(cores)


def test_others_at_the_calibration_do_not_bind_an_experiment_that_does_not_fit_itself(tmp_path: Path) -> None:
    """A first run while others took most of the cores must not refuse every experiment from then on."""
    quiet, busy = HERE, replace(HERE, others_share=0.6)
    topology = {"kind": "star", "hosts": 4, "rate": "50 Mbit/s"}
    written = small(tmp_path, scaling={"lab_rate": "5 Gbit/s", "byte_scale": 100}, topology=topology, jobs={"one": JOB})
    assert this_machine(busy, fit=False).cores == this_machine(quiet, fit=False).cores == 2.0
    loads = planned(written, tmp_path, busy).loads
    assert loads == planned(written, tmp_path, quiet).loads
    assert loads[0].usable * (1 - busy.others_share) < loads[0].cpu, "it would be refused on the cores that others left"


def test_a_search_is_refused_when_the_machine_cannot_carry_it(tmp_path: Path) -> None:
    heavy = small(
        tmp_path,
        scaling={"lab_rate": "100 Gbit/s", "byte_scale": 100},
        jobs={"one": JOB},
        topology={"kind": "star", "hosts": 4, "rate": "1 Gbit/s"},
    )
    with pytest.raises(MachineCannot, match="of 2 cores a run may take 1"):
        preflight_tuning(heavy, "emulate", plan(heavy).cells)


@pytest.mark.parametrize("others_share", [0.96, 1.0, 3.5])
def test_a_machine_that_others_filled_at_its_calibration_says_what_to_do(
    others_share: float, fitting: Ready, tmp_path: Path
) -> None:
    with pytest.raises(MachineCannot, match=r"others' work took .* of 2 cores") as caught:
        planned(fitting, tmp_path, replace(HERE, others_share=others_share))
    assert "doctor --calibrate" in caught.value.hint


def test_a_quota_of_nearly_nothing_says_so(monkeypatch: pytest.MonkeyPatch, fitting: Ready, tmp_path: Path) -> None:
    monkeypatch.setattr("dlcp.runner.preview.outline.usable_cores", lambda: 0.004)
    with pytest.raises(MachineCannot, match=r"0\.004 cores may be used") as caught:
        planned(fitting, tmp_path)
    assert "more CPU" in caught.value.hint


def test_a_quota_counts_as_fewer_cores(monkeypatch: pytest.MonkeyPatch, fitting: Ready, tmp_path: Path) -> None:
    whole = planned(fitting, tmp_path).plan.ready.experiment.scaling.time_dilation
    monkeypatch.setattr("dlcp.runner.preview.outline.usable_cores", lambda: 1.0)
    assert planned(fitting, tmp_path).plan.ready.experiment.scaling.time_dilation >= 1.5 * whole


LATE = {
    "sched_late_s": {"value": 0.009, "bound": 0.005, "unit": "s", "ok": False, "meaning": "", "source": ""},
    "cpu_busy": {"value": 0.4, "bound": 0.85, "unit": "share", "ok": True, "meaning": "", "source": ""},
}


def test_doubts__say_what_happened_which_runs_what_stands_and_what_to_do(fitting: Ready, tmp_path: Path) -> None:
    found = planned(fitting, tmp_path)
    spoiled = [cell for cell in found.plan.cells if cell.run.scheme.label == "DLCP" and cell.run.repeat in (1, 3)]
    keep(found, tmp_path)
    for cell in spoiled:
        keep(found, tmp_path, [cell], status="suspect", reason="late", fidelity=LATE)
    lines = doubts(found, tmp_path / "results", "small.yaml")
    text = "\n".join(lines)
    assert lines[0].startswith("2 of 15 runs cannot be believed (exit code 4): the machine was too busy")
    assert lines[1] == "  not believed: one over DLCP, repeat 2, 4: sched_late_s up to 0.009 where 0.005 is the bound"
    assert "The other 13 runs stand" in text
    assert "Too few for an interval, which takes 5: one over DLCP (3)." in text
    assert f"`dlcp run small.yaml --retry-suspect --results {tmp_path / 'results'}` makes those 2 again" in text
    assert "TCP" not in lines[1]


def test_doubts__of_an_expectation_alone_do_not_blame_the_machine(fitting: Ready, tmp_path: Path) -> None:
    found = planned(fitting, tmp_path)
    keep(found, tmp_path)
    (line,) = doubts(found, tmp_path / "results", "small.yaml")
    assert line.startswith("All runs are believed")
    assert "busy" not in line


@needs("scipy")
def test_doubts__ask_for_as_many_pairs_as_check_and_report() -> None:
    from dlcp.model.loading import check_experiment
    from dlcp.report.data import statistics
    from dlcp.runner import doubts as of_doubts

    assert vars(of_doubts)["MIN_REPEATS"] == check_experiment.MIN_REPEATS == statistics.MIN_REPEATS
