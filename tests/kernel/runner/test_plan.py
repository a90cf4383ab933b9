"""Planning: the same file gives the same runs, in a fair order, paired by seed; loads and regimes are told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dlcp.errors import Problem
from dlcp.model.host_settings import HostSettings
from dlcp.model.result import RunResult
from dlcp.runner.machine.lab_equivalent import idle_rtt_s, sentences, stands_for
from dlcp.runner.planning.check import ready
from dlcp.runner.planning.estimate import OVER_IDEAL, SET_UP_S, estimate, expected_s
from dlcp.runner.planning.plan import Plan, plan
from dlcp.runner.preview.outline import outline
from dlcp.runner.running.execute import missing
from dlcp.substrates.run_plan import plan_run
from experiments import LIGHT, WORKLOAD, document, small, write


def planned(folder: Path, **changes: object) -> Plan:
    return plan(small(folder, **changes))


def test_every_cell_once(tmp_path: Path) -> None:
    cells = [(cell.run.job_name, cell.run.scheme.label, cell.run.repeat) for cell in planned(tmp_path).cells]
    assert len(cells) == len(set(cells)) == 2 * 3 * 5
    assert [repeat for _, _, repeat in cells] == sorted(repeat for _, _, repeat in cells)


def test_seeds_are_paired_across_schemes_and_differ_otherwise(tmp_path: Path) -> None:
    seeds: dict[tuple[str, int], set[int]] = {}
    for cell in planned(tmp_path).cells:
        seeds.setdefault((cell.run.job_name, cell.run.repeat), set()).add(cell.run.seed)
    assert all(len(found) == 1 for found in seeds.values())
    assert len(set.union(*seeds.values())) == len(seeds)


def test_the_order_of_schemes_changes_from_repeat_to_repeat(tmp_path: Path) -> None:
    cells = planned(tmp_path, repeats=20).cells
    orders = {tuple(cell.run.scheme.label for cell in cells[i : i + 3]) for i in range(0, len(cells), 3)}
    assert all(sorted(order) == ["DLCP", "TCP", "TCP tuned"] for order in orders)
    assert len(orders) == 6
    firsts = [cells[i].run.scheme.label for i in range(0, len(cells), 3)]
    assert all(firsts.count(label) >= 5 for label in ("TCP", "TCP tuned", "DLCP"))  # of 40; 13 expected


def test_the_plan_is_the_same_in_another_process(tmp_path: Path) -> None:
    small(tmp_path)
    code = (
        "import sys; from pathlib import Path; from dlcp.runner.planning.check import ready\n"
        "from dlcp.runner.planning.plan import plan\n"
        "folder = Path(sys.argv[1]); workloads = folder / 'workloads'\n"
        "print(*(c.run.id for c in plan(ready(folder / 'small.yaml', workloads)).cells))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    outputs = {
        subprocess.run(command, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True).stdout
        for seed in ("1", "2")
    }
    assert outputs == {" ".join(cell.run.id for cell in planned(tmp_path).cells) + "\n"}


def ids(found: Plan) -> dict[tuple[str, str, int], str]:
    return {(c.run.job_name, c.run.scheme.label, c.run.repeat): c.run.id for c in found.cells}


def test_an_id_changes_with_what_defines_the_run_alone(tmp_path: Path) -> None:
    before = ids(planned(tmp_path))
    assert len(set(before.values())) == len(before)

    same = {"description": "other words", "repeats": 6, "time_limit": "50 s"}
    after = ids(planned(tmp_path, **same))
    assert {cell: after[cell] for cell in before} == before

    for changes in (
        {"port_buffer": "50 kB"},
        {"buffering": "static"},
        {"buffering": {"alpha": 2}},
        {"seed": 8},
        {"scaling": {"lab_rate": "20 Gbit/s", "byte_scale": 200}},
    ):
        assert not set(ids(planned(tmp_path, **changes)).values()) & set(before.values()), changes

    schemes = document()["schemes"]
    knobs = [*schemes[:2], schemes[2] | {"knobs": {"loss_bound": "5 %"}}]
    after = ids(planned(tmp_path, schemes=knobs))
    assert {cell for cell in before if before[cell] != after[cell]} == {cell for cell in before if cell[1] == "DLCP"}


def test_a_job_s_own_background_faults_and_scale_define_its_runs_alone(tmp_path: Path) -> None:
    before = ids(planned(tmp_path))
    jobs = document()["jobs"]
    burst = {"kind": "incast", "sources": ["h1"], "sinks": ["h4"], "burst": "20 kB", "interval": "200 ms"}
    gray = {"kind": "gray-failure", "at": "0 s", "from": "s1", "to": "h4", "loss": "1 %"}
    for own in (
        {"background": [burst]},
        {"faults": [gray]},
        {"byte_scale": 50},
        {"port_buffer": "50 kB"},
        {"buffering": "static"},
    ):
        found = planned(tmp_path, jobs={"one": jobs["one"], "two": jobs["two"] | own})
        after = ids(found)
        assert {cell for cell in before if before[cell] != after[cell]} == {cell for cell in before if cell[0] == "two"}
    found = planned(tmp_path, faults=[gray], jobs={"one": jobs["one"], "two": jobs["two"] | {"faults": []}})
    met = {cell.run.job_name: len(cell.run.experiment.faults) for cell in found.cells}
    assert met == {"one": 1, "two": 0}
    assert {cell: one for cell, one in ids(found).items() if cell[0] == "two"} == {
        cell: one for cell, one in before.items() if cell[0] == "two"
    }


def test_a_run_is_defined_by_how_switches_buffer_whatever_the_kind(tmp_path: Path) -> None:
    for kind in ("static", "dynamic"):
        definition = planned(tmp_path, buffering=kind).cells[0].definition
        assert definition["buffering"] == {"kind": kind, "alpha": 1.0, "minimum": 1514}
        assert not {"port_buffer", "buffering"} & set(definition["job"])


def test_a_job_s_own_buffer_is_that_of_its_runs_and_of_its_regime(tmp_path: Path) -> None:
    jobs = document()["jobs"]
    own = {"port_buffer": "20 kB", "buffering": {"alpha": 0.25}}
    found = planned(tmp_path, jobs={"one": jobs["one"], "two": jobs["two"] | own})
    met = {cell.run.job_name: plan_run(cell.run) for cell in found.cells if cell.run.scheme.label == "TCP"}
    assert {name: one.intent.shared_buffer_bytes for name, one in met.items()} == {"one": 80_000, "two": 100_000}
    regimes = {name: one.blank_result().regime for name, one in met.items()}
    assert {name: one["port_buffer_packets"] for name, one in regimes.items()} == {"one": 26, "two": 13}
    assert {name: one["shared_buffer_lab_bytes"] for name, one in regimes.items()} == {"one": 8e6, "two": 10e6}
    assert "port_buffer_bytes" not in met["two"].blank_result().run["job"]


def test_what_a_job_has_of_its_own_is_told_and_admitted(tmp_path: Path) -> None:
    jobs = document()["jobs"]
    stream = {"kind": "constant", "sources": ["h1"], "sinks": ["h4"], "rate": "4 Mbit/s"}
    own = {"byte_scale": 400, "background": [stream]}
    jobs = {"one": jobs["one"], "two": jobs["one"] | own}
    found = outline(small(tmp_path, **LIGHT, jobs=jobs), "emulate", tmp_path)
    told = "\n".join(found.regime_words)
    assert "byte scale 400: the links stand for 40 Gbit/s" in told
    assert "of two alone: background constant in queue 0: 1 streams of 4 Mbit/s" in told
    one, two = found.loads
    assert two.packets_per_s > one.packets_per_s
    assert found.regime["two"]["lab_rate_bps"] == 40e9


def test_a_stored_result_that_cannot_be_used_is_named_and_the_run_is_to_be_made(tmp_path: Path) -> None:
    experiment = small(tmp_path, **LIGHT)
    run_id = plan(experiment).cells[0].run.id
    folder = tmp_path / "results" / "small" / run_id
    folder.mkdir(parents=True)
    (folder / "result.json").write_text("[" * 100_000)
    found = outline(experiment, "emulate", tmp_path / "results")
    assert run_id in [cell.run.id for cell in found.todo]
    (sentence,) = found.damaged
    assert sentence.startswith(f"{folder} cannot be used, so that run is made again: ")
    assert "line 1 column 65" in sentence


def test_a_default_written_out_is_no_change(tmp_path: Path) -> None:
    schemes = document()["schemes"]
    default = plan(small(tmp_path)).ready.schemes["DLCP"].model_dump()["loss_bound"]
    written = [*schemes[:2], schemes[2] | {"knobs": {"loss_bound": default}}]
    assert ids(planned(tmp_path, schemes=written)) == ids(planned(tmp_path))


def test_an_id_changes_with_the_workload_s_content(tmp_path: Path) -> None:
    before = ids(planned(tmp_path))
    path = write(tmp_path, document(), WORKLOAD | {"batch": 2})
    found = plan(ready(path, tmp_path / "workloads"))
    assert not set(ids(found).values()) & set(before.values())


def test_an_unknown_substrate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="no substrate is called 'emulat'") as caught:
        plan(small(tmp_path), "emulat")
    assert "did you mean `emulate`" in caught.value.hint


def test_the_regime_is_told_in_lab_units(tmp_path: Path) -> None:
    dilated = small(tmp_path, scaling={"lab_rate": "100 Gbit/s", "byte_scale": 100, "time_dilation": 10})
    found = stands_for(dilated)["one"]
    assert found["port_buffer_packets"] == 26
    assert found["port_buffer_lab_s"] == pytest.approx(320e-6)
    assert found["TCP_rto_floor_lab_s"] == pytest.approx(0.2)
    assert found["TCP tuned_rto_floor_lab_s"] == pytest.approx(0.005)
    text = "\n".join(sentences(dilated))
    assert "stand for 100 Gbit/s" in text
    assert "RTO floor  TCP 200 ms, TCP tuned 5 ms in lab time" in text


def test_the_idle_round_trip_is_store_and_forward(tmp_path: Path) -> None:
    graph = small(tmp_path).experiment.topology.graph
    assert idle_rtt_s(graph) == pytest.approx(2 * (1514 + 64) * 8 / 100e6)


def test_the_idle_round_trip_takes_the_slowest_of_the_shortest_paths(tmp_path: Path) -> None:
    topology = {
        "kind": "graph",
        "hosts": ["h1", "h2", "h3", "h4"],
        "switches": ["a", "slow", "fast", "b"],
        "links": [
            {"a": "h1", "b": "a", "rate": "100 Mbit/s"},
            {"a": "h2", "b": "a", "rate": "100 Mbit/s"},
            {"a": "h3", "b": "b", "rate": "100 Mbit/s"},
            {"a": "h4", "b": "b", "rate": "100 Mbit/s"},
            {"a": "a", "b": "fast", "rate": "100 Mbit/s"},
            {"a": "fast", "b": "b", "rate": "100 Mbit/s"},
            {"a": "a", "b": "slow", "rate": "10 Mbit/s", "delay": "3 ms"},
            {"a": "slow", "b": "b", "rate": "10 Mbit/s"},
        ],
    }
    ready = small(tmp_path, topology=topology)
    bits = (1514 + 64) * 8
    assert idle_rtt_s(ready.experiment.topology.graph) == pytest.approx(2 * bits / 1e8 + 2 * bits / 1e7 + 2 * 0.003)
    text = "\n".join(sentences(ready))
    assert "of 10 Mbit/s to 100 Mbit/s; the slowest of a host, 100 Mbit/s, stand for 10 Gbit/s" in text
    assert "link delays of up to 3 ms (emulated)" in text


def test_a_topology_file_defines_a_run_by_what_it_says(tmp_path: Path) -> None:
    named = small(tmp_path, topology="star-8")
    written = small(tmp_path, topology={"kind": "star", "hosts": 8, "rate": "100 Mbit/s"})
    assert plan(named).cells[0].definition == plan(written).cells[0].definition
    (tmp_path / "mine.yaml").write_text("{kind: star, hosts: 4, rate: 100 Mbit/s}")
    beside = small(tmp_path, topology="mine.yaml")
    assert beside.experiment == small(tmp_path).experiment


def test_the_estimate_follows_the_ideal_and_then_what_was_measured(tmp_path: Path) -> None:
    found = planned(tmp_path)
    cell = found.cells[0]
    push_s = 9_000_000 * 4 / 100 * 3 * 8 / 100e6
    assert expected_s(cell.run) == pytest.approx(cell.run.job.iterations * (0.06 + push_s) * OVER_IDEAL)
    guess = estimate(found, list(found.cells), {})
    assert guess.measured == 0
    results = {c.run.id: result_of(c, jct_s=10.0) for c in found.cells[:6]}
    informed = estimate(found, missing(found, results), results)
    assert informed.measured == 6
    assert informed.seconds == pytest.approx(24 * (10 + SET_UP_S))
    assert informed.at_most_s == pytest.approx(24 * (30 + SET_UP_S))


def test_the_outline_as_data_is_json(tmp_path: Path) -> None:
    data = json.loads(json.dumps(outline(small(tmp_path, **LIGHT), "emulate", tmp_path / "results").data()))
    assert len(data["runs"]) == 30
    assert not any(run["done"] for run in data["runs"])
    assert data["estimate"]["seconds"] > 0


def result_of(cell: object, **changes: object) -> RunResult:
    run = cell.run  # type: ignore[attr-defined]
    facts: dict[str, object] = {
        "run_id": run.id,
        "experiment": run.experiment.name,
        "scheme": run.scheme.scheme,
        "is_dlcp": run.scheme.scheme.startswith("dlcp"),
        "label": run.scheme.label,
        "job": run.job_name,
        "repeat": run.repeat,
        "seed": run.seed,
        "substrate": run.substrate,
        "status": "ok",
    }
    return RunResult.model_validate(facts | changes)


PAIR = {"workload": "small", "iterations": 4, "bucket": "60 kB"}
ONE = PAIR | {"workers": ["h1"], "servers": ["h2"], "beside": ["other"]}
OTHER = PAIR | {"workers": ["h3"], "servers": ["h4"], "measured": False}


def test_a_job_that_is_not_measured_runs_beside_others_only(tmp_path: Path) -> None:
    found = planned(tmp_path, jobs={"one": ONE, "other": OTHER})
    assert {cell.run.job_name for cell in found.cells} == {"one"}
    for cell in found.cells:
        (tenant,) = cell.run.tenants
        assert (tenant.job_name, tenant.scheme.label) == ("other", cell.run.scheme.label)


def test_jobs_beside_each_other_are_both_measured_and_their_scheme_may_be_named(tmp_path: Path) -> None:
    jobs = {"one": ONE | {"beside_scheme": "DLCP"}, "other": OTHER | {"measured": True, "beside": ["one"]}}
    cells = planned(tmp_path, jobs=jobs).cells
    assert len(cells) == 2 * 3 * 5
    beside = {(cell.run.job_name, cell.run.scheme.label): cell.run.tenants[0].scheme.label for cell in cells}
    assert beside == {("one", label): "DLCP" for label in ("TCP", "TCP tuned", "DLCP")} | {
        ("other", label): label for label in ("TCP", "TCP tuned", "DLCP")
    }


def test_what_runs_beside_a_job_is_part_of_what_defines_its_run(tmp_path: Path) -> None:
    ids = planned(tmp_path, jobs={"one": ONE, "other": OTHER}).run_ids
    assert not ids & planned(tmp_path, jobs={"one": ONE, "other": OTHER | {"iterations": 5}}).run_ids
    assert not ids & planned(tmp_path, jobs={"one": ONE | {"beside": []}}).run_ids


def test_a_run_s_plan_has_every_job_s_settings_and_the_hosts_of_those_that_ask(tmp_path: Path) -> None:
    jobs = {"one": ONE | {"beside_scheme": "DLCP"}, "other": OTHER}
    for cell in planned(tmp_path, jobs=jobs).cells:
        found = plan_run(cell.run)
        (tenant,) = found.tenants
        assert tenant.settings.kind == "dlcp"
        assert tenant.spec.hosts == ("h3", "h4")
        asks_nothing = cell.run.scheme.label == "DLCP"
        assert (found.hosts == HostSettings()) == asks_nothing
        assert found.intent.name == cell.run.scheme.scheme


def test_a_run_is_expected_to_last_as_long_as_the_longest_of_its_jobs(tmp_path: Path) -> None:
    (alone, *_) = planned(tmp_path, jobs={"one": ONE | {"beside": []}}).cells
    (both, *_) = planned(tmp_path, jobs={"one": ONE, "other": OTHER | {"iterations": 8}}).cells
    assert expected_s(both.run) == pytest.approx(2 * expected_s(alone.run))
