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
from dlcp.runner.admission import (
    ACKS_A_PACKET,
    OF_PLAIN,
    READABLE,
    SLOWEST_BPS,
    USABLE_SHARE,
    Machine,
    admit,
    factor_that_fits,
    load_of,
    loads_of,
)
from dlcp.runner.calibration import DEFAULT, Costs
from dlcp.runner.check import Ready, ready
from dlcp.runner.outline import outline
from dlcp.runner.plan import plan
from dlcp.runner.scale_down import scaled_down, sentence
from dlcp.runner.stands_for import stands_for
from experiments import document, small, write

TWO_CORES = Machine(2, DEFAULT)
ONE_LINK_BOTH_WAYS_PPS = 2 * 100e6 / (1514 * 8)
INCAST = {"kind": "incast", "sources": ["h1"], "sinks": ["h4"], "burst": "10 MB", "interval": "10 ms"}


def star(folder: Path, rate: str, **changes: Any) -> Ready:
    """The small experiment on links of another rate, standing for the same lab."""
    scaling = {"lab_rate": "100 Gbit/s", "byte_scale": 100e9 / parse_rate_bps(rate)}
    return small(folder, topology={"kind": "star", "hosts": 4, "rate": rate}, scaling=scaling, **changes)


def test_a_load_that_fits_is_admitted(tmp_path: Path) -> None:
    loads = admit(small(tmp_path), TWO_CORES)
    assert [load.packets_per_s for load in loads] == pytest.approx([ONE_LINK_BOTH_WAYS_PPS] * 2)
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
    with pytest.raises(MachineCannot, match=r"of 2 cores a run may take 1\.7") as caught:
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
    with pytest.raises(MachineCannot) as caught:
        admit(small(tmp_path, background=[INCAST]), TWO_CORES)
    assert "background alone" in caught.value.hint


def test_the_quickstart_and_the_smoke_test_fit_two_cores() -> None:
    for name in ("quickstart", "smoke"):
        assert admit(ready(EXPERIMENTS / f"{name}.yaml"), TWO_CORES)


@pytest.mark.parametrize("rate", ["4 Gbit/s", "30 Gbit/s", "90 Gbit/s"])
def test_the_factor_is_the_least_readable_one_that_fits(rate: str, tmp_path: Path) -> None:
    rate_bps = parse_rate_bps(rate)
    loads = loads_of(star(tmp_path, rate), TWO_CORES)
    factor = factor_that_fits(loads, rate_bps)
    assert factor is not None
    readable = [step * 10.0**decade for decade in range(4) for step in READABLE]
    needed = max(load.cpu / load.usable for load in loads)
    assert factor == min(step for step in readable if step >= needed)
    assert factor_that_fits(loads, SLOWEST_BPS * factor * 0.99) is None


def test_what_fits_is_not_scaled(tmp_path: Path) -> None:
    assert factor_that_fits(loads_of(small(tmp_path), TWO_CORES), 100e6) == 1.0


def test_a_scaled_experiment_fits_and_stands_for_the_same_lab(tmp_path: Path) -> None:
    fault = {"kind": "rate-drop", "at": "1 s", "link": ["h1", "s1"], "rate": "500 Mbit/s"}
    whole = star(tmp_path, "1 Gbit/s", background=[INCAST], faults=[fault])
    factor = factor_that_fits(loads_of(whole, TWO_CORES), 1e9)
    assert factor is not None
    lighter = scaled_down(whole, factor)
    assert admit(lighter, TWO_CORES)
    before, after = stands_for(whole)["one"], stands_for(lighter)["one"]
    assert after["lab_rate_bps"] == pytest.approx(before["lab_rate_bps"])
    assert after["link_rate_bps"] == pytest.approx(1e9 / factor)
    assert after["byte_scale"] == pytest.approx(100 * factor)
    assert after["scaled_down"] == factor
    assert "scaled_down" not in before
    assert after["port_buffer_packets"] == before["port_buffer_packets"]
    experiment = lighter.experiment
    assert {link.rate_bps for link in experiment.topology.graph.links} == {1e9 / factor}
    assert experiment.background[0].interval_s == pytest.approx(0.01 * factor)  # type: ignore[union-attr]
    assert experiment.background[0].burst_bytes == 10_000_000  # type: ignore[union-attr]
    assert experiment.faults[0].rate_bps == pytest.approx(500e6 / factor)  # type: ignore[union-attr]
    words = sentence(whole, lighter)
    assert f"scaled down by {factor:g}" in words
    assert "the lab's 100 Gbit/s" in words


def test_scaled_runs_are_other_runs(tmp_path: Path) -> None:
    whole = star(tmp_path, "1 Gbit/s")
    ids = {cell.run.id for cell in plan(whole).cells}
    assert not ids & {cell.run.id for cell in plan(scaled_down(whole, 10)).cells}
    assert not ids & {cell.run.id for cell in plan(scaled_down(whole, 20)).cells}


def test_small_buckets_are_warned_of_after_scaling(tmp_path: Path) -> None:
    whole = small(tmp_path)
    assert whole.warnings == []
    assert scaled_down(whole, 2).warnings == []
    assert scaled_down(whole, 20).warnings == []
    warned = scaled_down(whole, 40).warnings
    assert len(warned) == 2, "one for each job"
    assert "byte_scale 4000" in warned[0].what
    assert "6 packets" in warned[0].what


def test_without_leave_nothing_is_scaled(tmp_path: Path) -> None:
    heavy = star(tmp_path, "10 Gbit/s")
    with pytest.raises(MachineCannot):
        outline(heavy, "emulate", tmp_path / "results")
    found = outline(heavy, "emulate", tmp_path / "results", scale_down=True)
    data = json.loads(json.dumps(found.data()))
    assert data["scaled_down"] > 1
    assert str(data["scaled_down"]).rstrip("0").rstrip(".") in data["scaled"]
    assert all(load["fits"] for load in data["loads"])
    fits = outline(small(tmp_path), "emulate", tmp_path / "results", scale_down=True)
    assert (fits.scaled, fits.data()["scaled_down"]) == ("", 1.0)


def test_a_person_cannot_write_what_only_scaling_down_does(tmp_path: Path) -> None:
    path = write(tmp_path, document(scaling={"lab_rate": "10 Gbit/s", "byte_scale": 100, "scaled_down": 2}))
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
