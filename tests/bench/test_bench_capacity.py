"""The search for the frontier, its table and its picture; and one real search that is cut short."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench_command import bench
from extras import needs

from dlcp.bench.capacity import RATES_MBIT, CapacityOptions, Search, draw, experiment_of, rows
from dlcp.errors import Problem
from dlcp.model.topology import Graph


def searched(guess_mbit: float, carries: Callable[[float], bool]) -> tuple[Search, list[float]]:
    search, tried = Search(guess_mbit), []
    while (index := search.next()) is not None:
        tried.append(RATES_MBIT[index])
        assert len(tried) <= len(RATES_MBIT), tried
        search.tell(index, believed=carries(RATES_MBIT[index]))
    return search, tried


@pytest.mark.parametrize("limit", [1.0, 2.0, 9.0, 100.0, 101.0, 640.0, 1000.0, 5000.0])
@pytest.mark.parametrize("guess", [2.0, 31.0, 100.0, 1000.0])
def test_the_search_ends_at_the_last_rate_that_is_carried(limit: float, guess: float) -> None:
    search, tried = searched(guess, lambda rate: rate <= limit)
    carried = [rate for rate in RATES_MBIT if rate <= limit]
    assert (RATES_MBIT[search.good] if search.good >= 0 else None) == (carried[-1] if carried else None)
    assert len(tried) == len(set(tried)) <= 10, "halves, not one after the other"


def test_a_good_guess_takes_two_runs() -> None:
    _, tried = searched(100.0, lambda rate: rate <= 100)
    assert len(tried) == 2


def test_the_experiment_has_the_asked_hosts_and_rates() -> None:
    for hosts in (4, 10, 64):
        experiment = experiment_of("dlcp", hosts, 20.0, seed=3)
        graph: Graph = experiment.topology.graph
        job = experiment.jobs["capacity"]
        assert len(graph.hosts) == hosts
        assert sorted((*job.workers, *job.servers)) == sorted(graph.hosts)
        assert {link.rate_bps for link in graph.links} == {20e6}
        assert experiment.scaling.byte_scale * 20e6 == pytest.approx(experiment.scaling.lab_rate_bps)


def test_too_few_hosts_are_refused() -> None:
    with pytest.raises(Problem, match="3: from 4 to 256 hosts"):
        CapacityOptions(hosts=(3, 10))


def found() -> dict[str, Any]:
    def trial(scheme: str, hosts: int, rate: float, believed: bool) -> dict[str, Any]:
        return {
            "scheme": scheme,
            "hosts": hosts,
            "rate_mbit": rate,
            "believed": believed,
            "why": "",
            "cpu_busy": 0.5,
            "packets_per_s": 1000.0,
        }

    frontier = [
        {
            "scheme": "dlcp",
            "hosts": 4,
            "rate_mbit": 250.0,
            "complete": True,
            "why": "cpu_busy 0.95",
            "trials": [trial("dlcp", 4, 250.0, True), trial("dlcp", 4, 320.0, False)],
        },
        {
            "scheme": "tcp",
            "hosts": 4,
            "rate_mbit": None,
            "complete": True,
            "why": "sched_late_s 0.2",
            "trials": [trial("tcp", 4, 2.0, False)],
        },
        {
            "scheme": "dlcp",
            "hosts": 10,
            "rate_mbit": 80.0,
            "complete": False,
            "why": "",
            "trials": [trial("dlcp", 10, 80.0, True)],
        },
        {"scheme": "tcp", "hosts": 10, "rate_mbit": None, "complete": False, "why": "", "trials": []},
    ]
    return {
        "options": {"hosts": [4, 10], "schemes": ["dlcp", "tcp"]},
        "frontier": frontier,
        "machine": {"cores": 2, "kernel": "6.1", "words": "quiet"},
    }


def test_the_table_says_what_objected_and_what_was_not_measured() -> None:
    four, ten = rows(found())
    assert (four["dlcp"], four["dlcp: beyond it"]) == ("250 Mbit/s", "cpu_busy 0.95")
    assert (four["tcp"], four["tcp: beyond it"]) == ("none", "sched_late_s 0.2")
    assert ten["dlcp"] == "80 Mbit/s, search cut short"
    assert ten["tcp"] == "not measured"


@needs("seaborn")
@pytest.mark.parametrize("name", ["frontier.png", "frontier.svg"])
def test_the_picture(name: str, tmp_path: Path) -> None:
    draw(found(), tmp_path / name)
    assert (tmp_path / name).stat().st_size > 5000


@pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces; run as root")
@pytest.mark.long
def test_a_real_search_of_one_size(tmp_path: Path) -> None:
    """Cut short after a run or two: on a busy machine the frontier is nowhere, but each run ends with an answer."""
    done = bench("capacity", "--hosts", "4", "--scheme", "dlcp", "--minutes", "0.15", "--json")
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    (frontier,) = out["frontier"]
    assert frontier["trials"], "a run fits into nine seconds"
    for trial in frontier["trials"]:
        assert trial["believed"] == (trial["why"] == "")
        assert trial["packets_per_s"] > 0
    assert out["machine"]["cores"] >= 1
