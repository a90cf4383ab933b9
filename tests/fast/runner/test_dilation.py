"""A dilated experiment: every time longer, every rate lower, nothing forgotten, nothing else touched."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from dlcp.model.experiment import Experiment
from dlcp.model.loading.experiment_files import experiment_names, find_experiment
from dlcp.runner.machine.dilation import KEPT, dilated, kind_of
from dlcp.runner.planning.check import ready
from dlcp.runner.planning.plan import plan
from experiments import small

FACTOR = 4.0
RICH: dict[str, Any] = {
    "topology": {
        "kind": "leaf-spine",
        "leaves": 2,
        "spines": 2,
        "hosts": 4,
        "rate": "100 Mbit/s",
        "uplink_rate": "80 Mbit/s",
        "delay": "1 ms",
    },
    "scaling": {"lab_rate": "10 Gbit/s", "byte_scale": 100},
    "flowlet_gap": "500 us",
    "backlog_every": "2 ms",
    "pfc": {"queues": [3], "xoff": "20 kB", "xon": "10 kB"},
    "faults": [
        {"kind": "link-down", "at": "1 s", "for": "2 s", "link": ["l1", "s1"], "reroute_after": "50 ms"},
        {"kind": "gray-failure", "at": "4 s", "for": "1 s", "from": "l1", "to": "s1", "loss": "2 %"},
        {"kind": "rate-drop", "at": "6 s", "for": "1 s", "link": ["h1", "l1"], "rate": "20 Mbit/s"},
        {"kind": "queue-frozen", "at": "8 s", "for": "10 ms", "port": ["l1", "h1"], "queue": 0},
    ],
    "background": [
        {"kind": "incast", "sources": ["h1"], "sinks": ["h4"], "burst": "8 kB", "interval": "100 ms"},
        {"kind": "constant", "sources": ["h2"], "sinks": ["h3"], "rate": "2 Mbit/s"},
    ],
}
"""Says every kind of fault and background, and each optional time and rate, that an experiment can."""


def models_in(annotation: Any, seen: dict[type[BaseModel], None]) -> None:
    """Every model that a type holds, to any depth."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        if annotation not in seen:
            seen[annotation] = None
            for field in annotation.model_fields.values():
                models_in(field.annotation, seen)
        return
    for part in get_args(annotation):
        models_in(part, seen)


def every_field() -> list[tuple[type[BaseModel], str]]:
    seen: dict[type[BaseModel], None] = {}
    models_in(Experiment, seen)
    return [(model, name) for model in seen for name in model.model_fields]


def leaves(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Path → what stands there, for all that is no container."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, f"{where}.{key}")
    elif isinstance(value, tuple | list):
        for place, inner in enumerate(value):
            yield from leaves(inner, f"{where}[{place}]")
    else:
        yield where, value


def test_the_walk_reaches_all_that_an_experiment_is_made_of() -> None:
    names = {model.__name__ for model, _ in every_field()}
    assert names >= {
        "Star",
        "Dumbbell",
        "LeafSpine",
        "FatTree",
        "WrittenLink",
        "LinkDown",
        "RateDrop",
        "Incast",
        "Constant",
        "Poisson",
        "Pfc",
        "Job",
        "Scaling",
        "SizeTable",
    }


def test_every_time_and_rate_is_stretched_or_kept_for_a_reason() -> None:
    """By its name a field is a time or a rate; by its type it must be one that dilation knows."""
    suffixes = {"_s": "duration", "_bps": "rate"}
    for model, name in every_field():
        by_name = next((kind for suffix, kind in suffixes.items() if name.endswith(suffix)), None)
        assert kind_of(model, name) == by_name, f"{model.__name__}.{name} is not what its name says"
    known = {(model.__name__, name) for model, name in every_field()}
    assert set(KEPT) <= known, "a reason for a field that is not there"
    assert all(KEPT.values())


def test_times_are_longer_rates_lower_and_nothing_else_changes(tmp_path: Path) -> None:
    before = small(tmp_path, **RICH).experiment
    after = dilated(before, FACTOR)
    old, new = dict(leaves(before.model_dump())), dict(leaves(after.model_dump()))
    assert set(old) == set(new)
    said = set()
    for where, value in old.items():
        name = where.rpartition(".")[2].partition("[")[0]
        if where in (".scaling.time_dilation", ".scaling.dilated_by"):
            assert new[where] == value * FACTOR
        elif name.endswith("_bps") and value is not None and where != ".scaling.lab_rate_bps":
            assert new[where] == pytest.approx(value / FACTOR), where
            said.add(name)
        elif name.endswith("_s") and value is not None:
            assert new[where] == pytest.approx(value * FACTOR), where
            said.add(name)
        else:
            assert new[where] == value, where
    assert said == {
        "rate_bps",
        "uplink_rate_bps",
        "delay_s",
        "flowlet_gap_s",
        "backlog_every_s",
        "at_s",
        "for_s",
        "reroute_after_s",
        "interval_s",
        "time_limit_s",
    }


def test_a_graph_s_links_and_a_bottleneck_follow(tmp_path: Path) -> None:
    links = [{"a": f"h{i}", "b": "s1", "rate": f"{i}00 Mbit/s", "delay": f"{i} ms"} for i in range(1, 5)]
    graph = {"kind": "graph", "hosts": ["h1", "h2", "h3", "h4"], "switches": ["s1"], "links": links}
    experiment = small(tmp_path, topology=graph).experiment
    assert experiment.topology.graph.slowest_host_bps == 100e6, "so that what is cached would be seen"
    slow = dilated(experiment, FACTOR).topology.graph
    assert [link.rate_bps for link in slow.links] == pytest.approx([i * 1e8 / FACTOR for i in range(1, 5)])
    assert [link.delay_s for link in slow.links] == pytest.approx([i * 1e-3 * FACTOR for i in range(1, 5)])
    bell = {"kind": "dumbbell", "left": 2, "right": 2, "rate": "100 Mbit/s", "bottleneck": "50 Mbit/s"}
    narrow = dilated(small(tmp_path, topology=bell).experiment, FACTOR).topology.graph
    assert narrow.link_rate_bps("s1", "s2") == pytest.approx(50e6 / FACTOR)


def test_a_job_s_own_faults_and_background_follow(tmp_path: Path) -> None:
    job = {"workload": "small", "workers": ["h1", "h2", "h3"], "servers": ["h4"], "iterations": 4, "bucket": "60 kB"}
    own = {"faults": RICH["faults"], "background": RICH["background"]}
    experiment = small(tmp_path, topology=RICH["topology"], jobs={"one": job | own}).experiment
    after = dilated(experiment, FACTOR).jobs["one"]
    assert after.faults is not None
    assert after.background is not None
    assert after.faults[0].at_s == pytest.approx(FACTOR)
    assert after.background[0].interval_s == pytest.approx(0.1 * FACTOR)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", experiment_names())
def test_shipped_experiments_can_be_dilated_twice(name: str) -> None:
    whole = ready(find_experiment(name)).experiment
    once, twice = dilated(whole, 6.0), dilated(dilated(whole, 2.0), 3.0)
    old, new = dict(leaves(once.model_dump())), dict(leaves(twice.model_dump()))
    assert set(old) == set(new)
    for where, value in old.items():
        assert new[where] == (pytest.approx(value) if isinstance(value, float) else value), where


def test_what_only_a_lab_knows_follows_too(tmp_path: Path) -> None:
    experiment = small(tmp_path, pfc=RICH["pfc"]).experiment
    assert experiment.pfc is not None
    with_watchdog = experiment.model_copy(update={"pfc": experiment.pfc.model_copy(update={"watchdog_s": 0.1})})
    after = dilated(with_watchdog, FACTOR).pfc
    assert after is not None
    assert after.watchdog_s == pytest.approx(0.1 * FACTOR)


def test_a_load_stays_the_share_of_a_link_that_it_is() -> None:
    experiment = ready(find_experiment("tail")).experiment
    before, after = (one.jobs["web-search-5"].background for one in (experiment, dilated(experiment, FACTOR)))
    assert before
    assert before == after


def test_by_one_nothing_changes(tmp_path: Path) -> None:
    whole = small(tmp_path, **RICH)
    assert dilated(whole.experiment, 1.0) == whole.experiment


def test_fit_is_no_part_of_what_defines_a_run(tmp_path: Path) -> None:
    scaling = {"lab_rate": "10 Gbit/s", "byte_scale": 100}
    plain, fitting = (small(tmp_path, scaling=scaling | more) for more in ({}, {"fit": "machine"}))
    assert plan(plain).run_ids == plan(fitting).run_ids
