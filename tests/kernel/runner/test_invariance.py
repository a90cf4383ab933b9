"""The sweep over time dilations: what a bias is, and which verdicts of the monitors are false."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from attempts import several_attempts
from extras import needs

from dlcp.errors import Problem
from dlcp.model.loading.experiment_files import find_experiment
from dlcp.runner.machine.invariance import Cell, Trial, busy_loop, cells, options_for, summary, untrusted
from dlcp.runner.planning.check import ready

of_a_summary = needs("scipy")
JCTS = (2.0, 2.02, 1.98)


def trials(
    label: str = "DLCP", dilation: float = 1.0, factor: float = 1.0, planted: float = 0.0, status: str = "ok"
) -> list[Trial]:
    objected = ("core_wait",) if status == "suspect" else ()
    return [
        Trial(label, dilation, planted, repeat, status, None if status == "failed" else jct_s * factor, objected, "")
        for repeat, jct_s in enumerate(JCTS)
    ]


REFERENCE = trials(dilation=4.0)


def cell_of(*others: Trial) -> Cell:
    found = cells([*REFERENCE, *others])
    assert [one.reference for one in found] == [True, False]
    return found[1]


@of_a_summary
def test_bias__is_of_pairs_of_one_seed() -> None:
    found = cell_of(*trials(factor=1.1))
    assert found.bias == pytest.approx(0.1)
    assert found.half_width == pytest.approx(0.0, abs=1e-9)


@of_a_summary
@pytest.mark.parametrize(
    ("factor", "status", "verdict", "false_ok", "false_suspect"),
    [
        (1.01, "ok", "holds", 0, 0),
        (1.04, "ok", "FALSE OK", 3, 0),
        (0.96, "ok", "FALSE OK", 3, 0),  # too fast is as wrong
        (1.04, "suspect", "caught", 0, 0),
        (1.01, "suspect", "holds, though suspect", 0, 3),
    ],
)
def test_verdict__is_false_where_monitors_and_bias_disagree(
    factor: float, status: str, verdict: str, false_ok: int, false_suspect: int
) -> None:
    found = cell_of(*trials(factor=factor, status=status))
    assert (found.verdict, found.false_ok, found.false_suspect) == (verdict, false_ok, false_suspect)


@of_a_summary
@pytest.mark.parametrize("of_suspects", [1.05, 0.95])
def test_verdict__of_a_believed_run_is_not_excused_by_suspect_ones(of_suspects: float) -> None:
    mixed = cell_of(*trials(factor=of_suspects, status="suspect")[:2], trials(factor=1.07)[2])
    assert (mixed.false_ok, mixed.false_suspect, mixed.verdict) == (1, 0, "FALSE OK")
    assert mixed.bias == pytest.approx(0.07)
    assert mixed.suspect_bias == pytest.approx(of_suspects - 1)


@of_a_summary
def test_a_failed_run_is_neither_and_is_told() -> None:
    found = cell_of(*trials(status="failed"))
    assert (found.verdict, found.bias, found.failed) == ("3 failed", None, 3)


@of_a_summary
def test_a_planted_load_is_compared_with_the_reference_that_has_none() -> None:
    found = cells([*REFERENCE, *trials(), *trials(planted=0.4, factor=1.2)])
    assert [(one.dilation, one.planted, one.verdict) for one in found[1:]] == [
        (1.0, 0.0, "holds"),
        (1.0, 0.4, "FALSE OK"),
    ]


def test_a_reference_that_is_suspect_itself_says_nothing() -> None:
    found = cells([*trials(dilation=4.0, status="suspect"), *trials()])
    assert untrusted(found) == ["DLCP"]
    assert (found[1].bias, found[1].suspect_bias) == (None, None)
    assert found[1].verdict == "no reference"


@of_a_summary
def test_summary__counts_runs_but_not_references() -> None:
    experiment = ready(find_experiment("headline"))
    options = options_for(experiment, None, ["DLCP"], (1.0, 4.0), (0.0,), 3)
    found = summary(experiment, options, [*REFERENCE, *trials(factor=1.05)])
    assert (found["runs"], found["false_ok"], found["false_suspect"]) == (3, 3, 0)
    assert found["options"]["job"] == "resnet50"


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (("nothing", None, (1.0, 2.0), (0.0,), 3), "--job"),
        ((None, ["nothing"], (1.0, 2.0), (0.0,), 3), "--scheme"),
        ((None, None, (2.0, 2.0), (0.0,), 3), "--dilation"),
        ((None, None, (0.5, 2.0), (0.0,), 3), "--dilation"),
        ((None, None, (1.0, 2.0), (-0.1,), 3), "--planted"),
        ((None, None, (1.0, 2.0), (0.0,), 0), "--repeats"),
    ],
)
def test_what_cannot_be_swept_is_refused(options: tuple, where: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(Problem) as problem:
        options_for(ready(find_experiment("headline")), *options)
    assert problem.value.where == where


def cpu_s(pid: int) -> float:
    """CPU time of a process so far: fields 14 and 15 of proc_pid_stat(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@several_attempts
def test_busy_loop__takes_its_share_of_a_core_and_ends() -> None:
    with busy_loop(0.4) as [pid]:
        time.sleep(1.0)
        taken_s = cpu_s(pid)
    assert 0.15 < taken_s < 0.75
    assert not Path(f"/proc/{pid}").exists()


def test_no_busy_loop__is_no_process() -> None:
    with busy_loop(0.0) as pids:
        assert pids == []
