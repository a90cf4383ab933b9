"""Gains and expectations: what holds, what does not, what these results cannot tell."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_results import write_run

from dlcp.model.experiment import Expectation
from dlcp.model.result import TABLES, RunResult
from dlcp.report.analysis.comparison import compare
from dlcp.report.analysis.expectations import Outcome, evaluate
from dlcp.report.analysis.headline import headline
from dlcp.report.data.formatting import show_gain
from dlcp.report.data.load import load

FAST, SLOW, NEAR = (10.0, 10.2, 9.9, 10.1, 10.0), (14.0, 14.4, 13.9, 14.1, 14.2), (10.1, 10.1, 10.0, 10.0, 10.1)


def outcomes(
    root: Path, *expect: dict[str, Any], times: dict[str, tuple[float, ...]], seeds: int = 0, status: str = "ok"
) -> tuple[Outcome, ...]:
    """Runs of job "j" with these completion times; `seeds` shifts those of TCP; the last TCP run has `status`."""
    for label, given in times.items():
        for repeat, jct_s in enumerate(given):
            tcp = label == "TCP"
            write_run(
                root / f"{label}-{repeat}",
                RunResult.model_validate(
                    {
                        "run_id": f"{label}-{repeat}",
                        "experiment": "e",
                        "scheme": label.lower(),
                        "is_dlcp": label.startswith("DLCP"),
                        "label": label,
                        "job": "j",
                        "repeat": repeat,
                        "seed": repeat + seeds * tcp,
                        "substrate": "emulate",
                        "jct_s": jct_s,
                        "status": status if tcp and repeat == len(given) - 1 else "ok",
                        "expect": list(expect),
                    }
                ),
                {},
            )
    return evaluate(compare(load(root)))


def claim(relation: str = "better", metric: str = "jct_s", scheme: str = "DLCP", job: str = "j") -> dict[str, Any]:
    return {"job": job, "metric": metric, "scheme": scheme, "against": "TCP", "relation": relation}


def test_better__holds_when_the_intervals_are_apart(tmp_path: Path) -> None:
    (found,) = outcomes(tmp_path, claim(), times={"DLCP": FAST, "TCP": SLOW})
    assert (found.verdict, found.words) == ("holds", "10.04 ± 0.14 s against 14.12 ± 0.24 s")
    assert found.claim == "j: job completion of DLCP better than TCP"


@pytest.mark.parametrize("times", [{"DLCP": NEAR, "TCP": FAST}, {"DLCP": SLOW, "TCP": FAST}])
def test_better__does_not_hold_when_they_overlap_or_lie_the_wrong_way(
    tmp_path: Path, times: dict[str, tuple[float, ...]]
) -> None:
    (found,) = outcomes(tmp_path, claim(), times=times)
    assert found.verdict == "does not hold"


def test_better__cannot_be_told_when_only_the_pairs_are_apart(tmp_path: Path) -> None:
    spread = (10.0, 12.0, 14.0, 11.0, 13.0)
    (found,) = outcomes(tmp_path, claim(), times={"DLCP": tuple(0.95 * one for one in spread), "TCP": spread})
    assert (found.verdict, found.words.endswith("; paired: −5.0 % [−5.0, −5.0]")) == ("cannot tell", True)


@pytest.mark.parametrize(("ours", "verdict"), [(NEAR, "holds"), (FAST, "holds"), (SLOW, "does not hold")])
def test_not_worse__asks_the_paired_interval(tmp_path: Path, ours: tuple[float, ...], verdict: str) -> None:
    (found,) = outcomes(tmp_path, claim("not-worse"), times={"DLCP": ours, "TCP": FAST})
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("metric", "change", "margin", "verdict"),
    [
        ("final_accuracy", (-0.004, -0.006, -0.005, -0.005, -0.005), None, "does not hold"),
        ("final_accuracy", (-0.004, -0.006, -0.005, -0.005, -0.005), 0.01, "holds"),
        ("final_accuracy", (-0.010, -0.012, -0.011, -0.009, -0.010), 0.01, "does not hold"),
        ("final_accuracy", (-0.03, 0.03, -0.02, 0.02, 0.0), None, "holds"),  # reaches zero because nothing is known
        ("final_accuracy", (-0.03, 0.03, -0.02, 0.02, 0.0), 0.01, "does not hold"),
        ("jct_s", (0.10, 0.12, 0.11, 0.09, 0.10), None, "does not hold"),
        ("jct_s", (0.10, 0.12, 0.11, 0.09, 0.10), 0.02, "holds"),  # 10 s: 1 per cent slower
        ("jct_s", (0.10, 0.12, 0.11, 0.09, 0.10), 0.01, "does not hold"),
    ],
)
def test_margin__asks_for_the_whole_interval(
    tmp_path: Path, metric: str, change: tuple[float, ...], margin: float | None, verdict: str
) -> None:
    write_pairs(tmp_path, metric, change)
    line = Expectation.model_validate(claim("not-worse", metric) | {"margin": margin})
    (found,) = evaluate(compare(load(tmp_path)), [line])
    assert found.verdict == verdict
    assert found.claim.endswith(
        "no worse than TCP"
        + {("final_accuracy", 0.01): " by 1 pt", ("jct_s", 0.02): " by 2 %", ("jct_s", 0.01): " by 1 %"}.get(
            (metric, margin or 0), ""
        )
    )


def write_pairs(root: Path, metric: str, change: tuple[float, ...]) -> None:
    """Runs of both schemes, alike but for one metric: DLCP's is that of TCP plus the change of the repeat."""
    for repeat, more in enumerate(change):
        for label, added in (("TCP", 0.0), ("DLCP", more)):
            accuracy = 0.8 + 0.01 * repeat + added * (metric == "final_accuracy")
            training = {"job": ["j"], "step": [1], "time_s": [1.0], "loss": [1.0], "accuracy": [accuracy]}
            write_run(
                root / f"{label}-{repeat}",
                RunResult(
                    run_id=f"{label}-{repeat}",
                    experiment="e",
                    scheme=label.lower(),
                    is_dlcp=label.startswith("DLCP"),
                    label=label,
                    job="j",
                    repeat=repeat,
                    seed=repeat,
                    substrate="emulate",
                    status="ok",
                    jct_s=10.0 + added * (metric == "jct_s"),
                ),
                {"training": training},
            )


def test_evaluate__takes_the_lines_of_the_newest_run_or_those_it_is_given(tmp_path: Path) -> None:
    (found,) = outcomes(tmp_path, claim(), times={"DLCP": FAST, "TCP": SLOW})
    file = tmp_path / "TCP-3" / "result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"expect": [claim("not-worse"), claim("not-worse")]}))
    os.utime(file, (4e9, 4e9))  # made after the experiment file was edited
    comparison = compare(load(tmp_path))
    assert [one.relation for one in evaluate(comparison)] == ["not-worse"]
    given = [Expectation.model_validate(claim(metric="message_p99_s"))]
    assert [one.metric for one in evaluate(comparison, given)] == ["message_p99_s"]
    assert evaluate(comparison, []) == ()
    assert found.relation == "better"


def test_cannot_tell__in_words(tmp_path: Path) -> None:
    found = outcomes(
        tmp_path,
        claim(),
        claim("not-worse"),
        claim(metric="speed"),
        claim(metric="final_accuracy"),
        claim(scheme="pfabric"),
        claim(job="k"),
        times={"DLCP": FAST, "TCP": SLOW},
        status="suspect",
    )
    assert {one.verdict for one in found} == {"cannot tell"}
    assert [one.words for one in found] == [
        "TCP: an interval needs 5 repeats, there are 4",
        "an interval needs 5 pairs, there are 4",
        "there is no metric 'speed'",
        "no run of this job has final accuracy",
        "no run of pfabric",
        "no run of this job",
    ]


def test_pairs__need_the_same_seed(tmp_path: Path) -> None:
    (found,) = outcomes(tmp_path, claim("not-worse"), times={"DLCP": FAST, "TCP": SLOW}, seeds=1)
    assert (found.verdict, found.words) == ("cannot tell", "no pair of trusted runs has it")


def test_a_scheme_may_be_named_instead_of_its_label(tmp_path: Path) -> None:
    (found,) = outcomes(tmp_path, claim(scheme="dlcp"), times={"DLCP": FAST, "TCP": SLOW})
    assert found.verdict == "holds"


def test_gain__is_a_paired_change_with_its_direction(tmp_path: Path) -> None:
    outcomes(tmp_path, times={"DLCP": tuple(0.8 * one for one in SLOW), "TCP": SLOW})
    comparison = compare(load(tmp_path))
    gain = comparison.jobs[0].gains["TCP", "jct_s"]
    assert (gain.verdict, gain.estimate.value) == ("better", pytest.approx(0.8))
    assert gain.estimate.high == pytest.approx(0.8)  # every pair says the same, however much the repeats differ
    assert show_gain(gain).startswith("−20.0 % [−20.0, −20.0]")
    other = compare(load(tmp_path), subject="TCP").jobs[0].gains["DLCP", "jct_s"]
    assert (other.verdict, other.estimate.value) == ("worse", pytest.approx(1.25))


def write_messages(directory: Path, label: str, repeat: int, iterations: int) -> None:
    """1000 messages over so many iterations, DLCP's in half the time of TCP's; p99 needs ten slow iterations."""
    i = np.arange(1000)
    end_s = (1 + i * 37 % 1000 / 1000) * (0.5 if label == "DLCP" else 1.0)  # 1 to 2 s, the slow ones far apart
    number = {name: np.zeros(1000, int) for name in TABLES["messages"]} | {
        "job": ["j"] * 1000,
        "leg": ["push"] * 1000,
        "src": ["h1"] * 1000,
        "dst": ["h2"] * 1000,
        "warmup": np.zeros(1000, bool),
        "iteration": i * iterations // 1000,
        "bytes": np.full(1000, 1000),
        "start_s": np.zeros(1000),
        "end_s": end_s,
        "loss_bound": np.zeros(1000),
    }
    write_run(
        directory,
        RunResult(
            run_id=directory.name,
            experiment="e",
            scheme=label.lower(),
            is_dlcp=label.startswith("DLCP"),
            label=label,
            job="j",
            repeat=repeat,
            seed=repeat,
            substrate="emulate",
            status="ok",
            jct_s=1.0,
        ),
        {"messages": number},
    )


@pytest.mark.parametrize(("carrying", "method"), [(0, "bootstrap"), (3, "bootstrap"), (5, "paired t")])
def test_tail__is_compared_pooled_where_too_few_runs_carry_it(tmp_path: Path, carrying: int, method: str) -> None:
    for repeat in range(5):
        for label in ("DLCP", "TCP"):
            write_messages(tmp_path / f"{label}-{repeat}", label, repeat, 100 if repeat < carrying else 5)
    gain = compare(load(tmp_path)).jobs[0].gains["TCP", "message_p99_s"]
    assert (gain.verdict, gain.estimate.method) == ("better", method)
    assert gain.estimate.value == pytest.approx(0.5)


def test_headline__claims_no_more_than_the_interval(tmp_path: Path) -> None:
    outcomes(tmp_path, times={"DLCP": NEAR, "TCP": FAST})
    assert headline(compare(load(tmp_path))) == (
        "DLCP finishes job j in 10.060 ± 0.068 s: no clear difference from TCP (0.2 % [−1.1, 1.6]).",
    )
