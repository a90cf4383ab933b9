"""What a load costs, when it is refused, and how it is scaled down; arithmetic alone, nothing is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dlcp.errors import ExitCode, MachineCannot, Problems
from dlcp.model.units import parse_rate_bps
from dlcp.model.workload import Profile
from dlcp.paths import EXPERIMENTS
from dlcp.runner.machine.admission import admit
from dlcp.runner.machine.calibration import DEFAULT, Costs
from dlcp.runner.machine.choose_scale import LONGEST_RUN_S, READABLE, SLOWEST_BPS, scale_that_fits
from dlcp.runner.machine.invariance import options_for
from dlcp.runner.machine.job_load import ACKS_A_PACKET, OF_PLAIN, USABLE_SHARE, Machine, load_of, loads_of
from dlcp.runner.machine.lab_equivalent import stands_for
from dlcp.runner.machine.scale_down import Scale, scaled_down, sentence
from dlcp.runner.planning.check import Ready, common_substrate, ready
from dlcp.runner.planning.estimate import job_s
from dlcp.runner.planning.plan import plan
from dlcp.runner.preview.outline import outline
from experiments import document, small, write

TWO_CORES = Machine(2, DEFAULT)
ONE_LINK_BOTH_WAYS_PPS = 2 * 100e6 / (1514 * 8)
INCAST = {"kind": "incast", "sources": ["h1"], "sinks": ["h4"], "burst": "10 MB", "interval": "10 ms"}


def star(folder: Path, rate: str, **changes: Any) -> Ready:
    """The small experiment on links of another rate, standing for the same lab."""
    scaling = {"lab_rate": "100 Gbit/s", "byte_scale": 100e9 / parse_rate_bps(rate)}
    return small(folder, topology={"kind": "star", "hosts": 4, "rate": rate}, scaling=scaling, **changes)


def test_a_load_that_fits_is_admitted(tmp_path: Path) -> None:
    loads = admit(star(tmp_path, "50 Mbit/s"), TWO_CORES)
    assert [load.packets_per_s for load in loads] == pytest.approx([ONE_LINK_BOTH_WAYS_PPS / 2] * 2)
    assert all(load.fits for load in loads)


def test_the_cost_is_that_of_packets_acknowledgements_and_processes(tmp_path: Path) -> None:
    costs = Costs(4e-6, 1e-6, "for this test", measured=True)
    load = load_of(small(tmp_path), "one", Machine(2, costs))
    packet_s = (1 + ACKS_A_PACKET) * (4e-6 + 1e-6) * OF_PLAIN["dlcp"]
    assert load.peak_cpu == pytest.approx(ONE_LINK_BOTH_WAYS_PPS * packet_s)
    twice = load_of(small(tmp_path), "one", Machine(2, Costs(8e-6, 2e-6, "", measured=True)))
    assert twice.peak_cpu == pytest.approx(2 * load.peak_cpu)
    assert twice.carried_rate_bps == pytest.approx(load.carried_rate_bps / 2)
    assert load.usable == pytest.approx(2 * USABLE_SHARE)


def test_kernel_tcp_alone_is_cheaper(tmp_path: Path) -> None:
    alone = small(tmp_path, schemes=[{"scheme": "tcp", "label": "TCP"}])
    assert load_of(alone, "one", TWO_CORES).peak_cpu < load_of(small(tmp_path), "one", TWO_CORES).peak_cpu


def test_the_mean_has_pauses_for_the_forward_pass(tmp_path: Path) -> None:
    found = small(tmp_path)
    load = load_of(found, "one", TWO_CORES)
    workload = found.workloads["small"]
    assert isinstance(workload, Profile)
    push_s = workload.parameters * 4 / 100 * 3 * 8 / 100e6
    assert load.cpu == pytest.approx(load.peak_cpu * push_s / (0.02 + max(0.04, push_s)))


def test_a_slow_core_between_switches_bounds_the_packet_rate(tmp_path: Path) -> None:
    """Two leaves joined by one spine: what crosses it is less than what the hosts could send."""
    job = {"workload": "small", "workers": ["h1", "h2"], "servers": ["h3", "h4"], "iterations": 4, "bucket": "60 kB"}
    topology = {"kind": "leaf-spine", "leaves": 2, "hosts": 4, "rate": "100 Mbit/s"}
    narrow = small(tmp_path, topology=topology | {"spines": 1}, jobs={"one": job})
    assert load_of(narrow, "one", TWO_CORES).packets_per_s == pytest.approx(ONE_LINK_BOTH_WAYS_PPS)
    wide = small(tmp_path, topology=topology | {"spines": 2}, jobs={"one": job})
    assert load_of(wide, "one", TWO_CORES).packets_per_s == pytest.approx(2 * ONE_LINK_BOTH_WAYS_PPS)
    assert load_of(narrow, "one", TWO_CORES).peak_cpu < load_of(wide, "one", TWO_CORES).peak_cpu


def test_a_ring_fills_every_worker_s_link(tmp_path: Path) -> None:
    job = {"workload": "small", "workers": ["h1", "h2", "h3"], "pattern": "ring", "iterations": 4, "bucket": "300 kB"}
    load = load_of(small(tmp_path, jobs={"one": job}), "one", TWO_CORES)
    assert load.packets_per_s == pytest.approx(3 * ONE_LINK_BOTH_WAYS_PPS / 2)


def test_a_transpose_fills_every_worker_s_link_in_both_directions(tmp_path: Path) -> None:
    job = {
        "workload": "small",
        "workers": ["h1", "h2", "h3"],
        "pattern": "transpose",
        "iterations": 4,
        "bucket": "300 kB",
    }
    load = load_of(small(tmp_path, jobs={"one": job}), "one", TWO_CORES)
    assert load.packets_per_s == pytest.approx(3 * ONE_LINK_BOTH_WAYS_PPS / 2)


def test_jobs_side_by_side_load_the_machine_together(tmp_path: Path) -> None:
    pair = {"workload": "small", "iterations": 4, "bucket": "60 kB"}
    jobs = {
        "one": pair | {"workers": ["h1"], "servers": ["h2"], "beside": ["other"]},
        "other": pair | {"workers": ["h3"], "servers": ["h4"], "beside": ["one"]},
        "alone": pair | {"workers": ["h1"], "servers": ["h2"]},
    }
    one, other, alone = loads_of(small(tmp_path, jobs=jobs), TWO_CORES)
    assert one.packets_per_s == other.packets_per_s == pytest.approx(2 * alone.packets_per_s)
    assert one.cpu == pytest.approx(2 * alone.cpu)


def test_a_load_that_does_not_fit_is_refused_with_the_rate_that_does(tmp_path: Path) -> None:
    heavy = star(tmp_path, "10 Gbit/s")
    with pytest.raises(MachineCannot, match=r"of 2 cores a run may take 1\.2:") as caught:
        admit(heavy, TWO_CORES)
    assert caught.value.exit_code == ExitCode.MACHINE_CANNOT
    assert "--scale-down" in caught.value.hint
    assert DEFAULT.source in caught.value.what
    carried_bps = load_of(heavy, "one", TWO_CORES).carried_rate_bps
    assert 100e6 < carried_bps < 2e9
    assert admit(star(tmp_path, f"{carried_bps * 0.999} bit/s"), TWO_CORES)
    with pytest.raises(MachineCannot):
        admit(star(tmp_path, f"{carried_bps * 1.001} bit/s"), TWO_CORES)


def test_background_alone_can_be_too_much(tmp_path: Path) -> None:
    calm = star(tmp_path, "10 Mbit/s")
    assert admit(calm, TWO_CORES)
    with pytest.raises(MachineCannot) as caught:
        admit(star(tmp_path, "10 Mbit/s", background=[INCAST]), TWO_CORES)
    assert "less background" in caught.value.hint


HALF_AS_FAST = Machine(2, Costs(2 * DEFAULT.ends_s, 2 * DEFAULT.hop_s, "twice the defaults", measured=True))
"""Two cores of half the speed of those that the defaults are of."""


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_experiment_fits_a_machine_half_as_fast(path: Path) -> None:
    shipped = ready(path)
    if common_substrate(shipped.schemes.values()) != "emulate":
        return  # it sends nothing that a machine would have to carry
    if shipped.experiment.scaling.fit:
        scale = scale_that_fits(shipped, HALF_AS_FAST)
        assert scale is not None
        assert scale.byte_scale == 1, "dilation alone is enough"
        shipped = scaled_down(shipped, scale)
    assert admit(shipped, HALF_AS_FAST)


SHORT = {"workload": "small", "workers": ["h1", "h2", "h3"], "servers": ["h4"], "iterations": 2, "bucket": "60 kB"}


@pytest.mark.parametrize("rate", ["1 Gbit/s", "4 Gbit/s", "30 Gbit/s"])
def test_the_dilation_is_the_least_readable_one_that_fits(rate: str, tmp_path: Path) -> None:
    whole = star(tmp_path, rate, jobs={"one": SHORT})
    scale = scale_that_fits(whole, TWO_CORES)
    assert scale is not None
    assert scale.byte_scale == 1
    readable = [step * 10.0**decade for decade in range(4) for step in READABLE]
    needed = max(load.cpu / load.usable for load in loads_of(whole, TWO_CORES))
    assert scale.dilation == min(step for step in readable if step >= needed)
    assert all(load.fits for load in loads_of(scaled_down(whole, scale), TWO_CORES))


def test_beyond_the_longest_run_bytes_are_scaled_too(tmp_path: Path) -> None:
    jobs = {"one": SHORT | {"iterations": 400}}
    whole = star(tmp_path, "4 Gbit/s", jobs=jobs)
    scale = scale_that_fits(whole, TWO_CORES)
    assert scale is not None
    assert scale.byte_scale > 1
    (job,) = whole.experiment.jobs.values()
    alone_s = job_s(job, whole.workloads["small"], whole.experiment)
    assert alone_s * scale.dilation <= LONGEST_RUN_S
    slower = min(step for step in READABLE if step > scale.dilation)
    assert alone_s * slower > LONGEST_RUN_S, "no longer dilation would have done"
    assert all(load.fits for load in loads_of(scaled_down(whole, scale), TWO_CORES))


def test_links_are_never_slower_than_a_packet_in_12_ms(tmp_path: Path) -> None:
    slow = Machine(2, Costs(9e-3, 9e-3, "", measured=True))
    heavy = star(tmp_path, f"{4 * SLOWEST_BPS:.0f} bit/s")
    assert max(load.cpu / load.usable for load in loads_of(heavy, slow)) > 4
    assert scale_that_fits(heavy, slow) is None
    with pytest.raises(MachineCannot, match="no scale of it fits"):
        admit(heavy, slow)


def test_training_without_a_declared_compute_is_not_dilated(tmp_path: Path) -> None:
    """Its compute would stay as long as this machine needs, with everything else dilated."""
    training = {
        "kind": "training",
        "name": "small",
        "script": "fashion_mnist_mlp.py",
        "dataset": "fashion-mnist",
        "batch": 16,
        "learning_rate": 0.1,
        "momentum": 0.9,
    }
    content = document(
        topology={"kind": "star", "hosts": 4, "rate": "1 Gbit/s"}, scaling={"lab_rate": "10 Gbit/s", "byte_scale": 10}
    )
    path = write(tmp_path, content, training)
    (tmp_path / "workloads" / "fashion_mnist_mlp.py").write_text("")
    undeclared = ready(path, tmp_path / "workloads")
    with pytest.raises(MachineCannot):
        outline(undeclared, "emulate", tmp_path / "results")
    with pytest.raises(Problems) as caught:
        outline(undeclared, "emulate", tmp_path / "results", scale_down=True)
    assert [problem.where for problem in caught.value.problems] == [f"{path}: job one", f"{path}: job two"]
    assert "small declares no compute" in caught.value.problems[0].what
    assert "compute: 60 ms" in caught.value.problems[0].hint
    with pytest.raises(Problems, match="job two: workload small declares no compute"):
        options_for(undeclared, "two", None, (1.0, 2.0), (0.0,), 1)
    write(tmp_path, content, training | {"compute": "60 ms"})
    declared = ready(path, tmp_path / "workloads")
    assert outline(declared, "emulate", tmp_path / "results", scale_down=True).scaled


def test_what_fits_is_not_scaled(tmp_path: Path) -> None:
    fits = star(tmp_path, "10 Mbit/s")
    assert scale_that_fits(fits, TWO_CORES) == Scale()
    assert scaled_down(fits, Scale()) is fits


@pytest.mark.parametrize("scale", [Scale(4), Scale(1, 4), Scale(2, 5)])
def test_a_scaled_experiment_stands_for_the_same_lab(scale: Scale, tmp_path: Path) -> None:
    fault = {"kind": "rate-drop", "at": "1 s", "link": ["h1", "s1"], "rate": "500 Mbit/s"}
    whole = star(tmp_path, "1 Gbit/s", background=[INCAST], faults=[fault])
    lighter = scaled_down(whole, scale)
    experiment = lighter.experiment
    before, after = (stands_for(one)["one"] for one in (whole, lighter))
    assert after["lab_rate_bps"] == pytest.approx(before["lab_rate_bps"])
    assert after["byte_scale"] == pytest.approx(100 * scale.byte_scale)
    assert after["time_dilation"] == pytest.approx(scale.dilation)
    assert (after.get("dilated_by", 1), after.get("scaled_down", 1)) == (scale.dilation, scale.byte_scale)
    assert not {"scaled_down", "dilated_by"} & set(before)
    assert after["port_buffer_packets"] == before["port_buffer_packets"]
    assert after["bucket_packets"] == before["bucket_packets"]
    assert {link.rate_bps for link in experiment.topology.graph.links} == {1e9 / scale.slower}
    assert experiment.background[0].interval_s == pytest.approx(0.01 * scale.slower)  # type: ignore[union-attr]
    assert experiment.background[0].burst_bytes == 10_000_000  # type: ignore[union-attr]
    assert experiment.faults[0].rate_bps == pytest.approx(500e6 / scale.slower)  # type: ignore[union-attr]
    assert experiment.faults[0].at_s == pytest.approx(scale.dilation), "bytes do not change when things happen"
    assert experiment.time_limit_s == pytest.approx(30 * scale.dilation)
    assert "links 1 Gbit/s → " in sentence(whole, lighter)


def test_a_load_sinks_as_much_as_the_scale(tmp_path: Path) -> None:
    whole = star(tmp_path, "1 Gbit/s", jobs={"one": SHORT}, background=[INCAST | {"burst": "10 kB"}])
    (load,) = loads_of(whole, TWO_CORES)
    (dilated_load,) = loads_of(scaled_down(whole, Scale(4)), TWO_CORES)
    assert dilated_load.cpu == pytest.approx(load.cpu / 4, rel=0.02)
    assert dilated_load.packets_per_s == pytest.approx(load.packets_per_s / 4)


def test_scaled_runs_are_other_runs(tmp_path: Path) -> None:
    whole = star(tmp_path, "1 Gbit/s")
    ids = {cell.run.id for cell in plan(whole).cells}
    scales = [Scale(10), Scale(20), Scale(1, 10), Scale(1, 20), Scale(10, 2)]
    every = [cell.run.id for scale in scales for cell in plan(scaled_down(whole, scale)).cells]
    assert len({*ids, *every}) == len(ids) + len(every)
    definition = plan(scaled_down(whole, Scale(10, 2))).cells[0].definition
    assert (definition["scaling"]["dilated_by"], definition["scaling"]["scaled_down"]) == (10, 2)


def test_small_buckets_are_warned_of_after_scaling(tmp_path: Path) -> None:
    whole = small(tmp_path)
    assert whole.warnings == []
    assert scaled_down(whole, Scale(1, 2)).warnings == []
    assert scaled_down(whole, Scale(1, 20)).warnings == []
    assert scaled_down(whole, Scale(40)).warnings == [], "dilation leaves all packets"
    warned = scaled_down(whole, Scale(1, 40)).warnings
    assert len(warned) == 2, "one for each job"
    assert "byte_scale 4000" in warned[0].what
    assert "6 packets" in warned[0].what


def test_without_leave_nothing_is_scaled(tmp_path: Path) -> None:
    heavy = star(tmp_path, "10 Gbit/s")
    with pytest.raises(MachineCannot):
        outline(heavy, "emulate", tmp_path / "results")
    found = outline(heavy, "emulate", tmp_path / "results", scale_down=True)
    data = json.loads(json.dumps(found.data()))
    assert data["dilated_by"] > 1
    assert f"time dilation {data['dilated_by']:g}" in data["scaled"]
    assert all(load["fits"] for load in data["loads"])
    fits = outline(star(tmp_path, "4 Mbit/s"), "emulate", tmp_path / "results", scale_down=True)
    assert (fits.scaled, fits.data()["dilated_by"], fits.data()["scaled_down"]) == ("", 1.0, 1.0)


@pytest.mark.parametrize("word", ["scaled_down", "dilated_by"])
def test_a_person_cannot_write_what_only_scaling_down_does(word: str, tmp_path: Path) -> None:
    path = write(tmp_path, document(scaling={"lab_rate": "10 Gbit/s", "byte_scale": 100, word: 2}))
    with pytest.raises(Problems) as caught:
        ready(path, tmp_path / "workloads")
    assert "--scale-down" in str(caught.value)


def test_a_delay_costs_as_much_as_a_switch(tmp_path: Path) -> None:
    """A star's packets cross two links and one switch; with a delay on both links they cost as over three switches."""
    links = [{"a": f"h{i}", "b": "s1", "rate": "100 Mbit/s"} for i in range(1, 5)]
    graph = {"kind": "graph", "hosts": ["h1", "h2", "h3", "h4"], "switches": ["s1"]}
    machine = Machine(2, Costs(10e-6, 2e-6, "", measured=True))
    straight = load_of(small(tmp_path, topology=graph | {"links": links}), "one", machine)
    delayed = load_of(
        small(tmp_path, topology=graph | {"links": [link | {"delay": "1 ms"} for link in links]}), "one", machine
    )
    assert delayed.peak_cpu / straight.peak_cpu == pytest.approx((10 + 3 * 2) / (10 + 2))
