"""An experiment and a lab: what fits, and every reason why something does not, before anything is reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dlcp.errors import ExitCode, Problems
from dlcp.model.lab.inventory import Lab
from dlcp.model.topology import Graph, LeafSpine, Link, Star
from dlcp.runner.planning.check import Ready, ready
from dlcp.substrates.lab.fit import require_fit
from experiments import document, write

LEAF_SPINE = LeafSpine(kind="leaf-spine", leaves=2, spines=2, hosts=4, rate=1e8).graph


def lab(graph: Graph) -> Lab:
    return Lab(name="rack", path=Path("lab.yaml"), graph=graph, networks=(), switches={}, hosts={})


def experiment(folder: Path, **changes: Any) -> Ready:
    return ready(write(folder, document(**changes)), folder / "workloads")


def told(found: Ready, on: Graph) -> list[str]:
    with pytest.raises(Problems) as caught:
        require_fit(found.experiment, lab(on))
    assert {problem.exit_code for problem in caught.value.problems} == {ExitCode.MACHINE_CANNOT}
    return [f"{problem.where}: {problem.what}" for problem in caught.value.problems]


def test_the_labs_own_topology_fits(tmp_path: Path) -> None:
    found = experiment(
        tmp_path, topology={"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts": 4, "rate": "100 Mbit/s"}
    )
    require_fit(found.experiment, lab(LEAF_SPINE))


def test_some_of_its_hosts_fit_when_packets_go_the_same_ways(tmp_path: Path) -> None:
    small, large = (Star(kind="star", hosts=hosts, rate=1e8).graph for hosts in (4, 6))
    assert set(small.switches) == set(large.switches)
    require_fit(experiment(tmp_path).experiment, lab(large))


def test_nodes_that_are_not_there_are_named_with_those_that_are(tmp_path: Path) -> None:
    [line] = told(experiment(tmp_path), Star(kind="star", hosts=3, rate=1e8).graph)
    assert line == "topology: unsupported: lab rack has no host h4; it has h1, h2, h3"


def test_other_rates_are_told_link_by_link(tmp_path: Path) -> None:
    lines = told(experiment(tmp_path), Star(kind="star", hosts=4, rate=25e9).graph)
    assert len(lines) == 4
    assert all("100 Mbit/s, but lab rack has 25 Gbit/s there" in line for line in lines)


def test_a_spine_less_would_be_another_fabric(tmp_path: Path) -> None:
    """All its nodes are there, and packets would go over the other spine all the same."""
    found = experiment(
        tmp_path, topology={"kind": "leaf-spine", "leaves": 2, "spines": 1, "hosts": 4, "rate": "100 Mbit/s"}
    )
    assert set(found.experiment.topology.graph.switches) < set(LEAF_SPINE.switches)
    [line] = told(found, LEAF_SPINE)
    assert "by s1, in lab rack by s1, s2: packets would take ways that the experiment does not have" in line


def test_a_cable_that_the_lab_has_not(tmp_path: Path) -> None:
    star = Star(kind="star", hosts=4, rate=1e8).graph
    links = tuple(link for link in star.links if "h4" not in (link.a, link.b))
    other = star.model_copy(update={"links": (*links, Link(a="h4", b="x1", rate_bps=1e8))})
    lines = told(experiment(tmp_path), other.model_copy(update={"switches": (*star.switches, "x1")}))
    assert any("lab rack has no cable between them" in line for line in lines)


def test_what_only_an_emulated_fabric_does_is_unsupported(tmp_path: Path) -> None:
    switch = Star(kind="star", hosts=4, rate=1e8).graph.switches[0]
    fault = {"kind": "link-down", "link": ["h1", switch], "at": "1 s", "for": "1 s"}
    found = experiment(tmp_path, faults=[fault], backlog_every="10 ms")
    lines = told(found, Star(kind="star", hosts=4, rate=1e8).graph)
    assert [line.split(":")[0] for line in lines] == ["faults", "backlog_every"]
    assert all("unsupported" in line for line in lines)
