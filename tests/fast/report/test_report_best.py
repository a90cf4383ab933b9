"""DLCP against the best other scheme: the interval holds whichever is the best, and says what it could not tell."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from synthetic_results import write_run

from dlcp.model.experiment import Expectation
from dlcp.model.metrics import BEST_OTHER, METRICS
from dlcp.model.result import RunResult
from dlcp.report import report
from dlcp.report.analysis.best import best_other, over_tcp_of
from dlcp.report.analysis.causes import cause
from dlcp.report.analysis.comparison import Comparison, compare
from dlcp.report.analysis.expectations import evaluate
from dlcp.report.analysis.fairness import costs, sheet
from dlcp.report.analysis.headroom import headroom
from dlcp.report.analysis.repeats import unranked
from dlcp.report.analysis.tables import speedups
from dlcp.report.data.load import load
from dlcp.report.data.statistics import mean_interval, repeats_to_rank
from dlcp.report.output.results_md_tables import cost_table, metric_table
from dlcp.report.plots.job_comparison import draw_times


def write(root: Path, times: dict[str, list[float]], **fields: object) -> Path:
    """One run a value: label (also the scheme's name) → completion times by repeat."""
    for label, found in times.items():
        for repeat, jct_s in enumerate(found):
            given = {
                "run_id": f"{label}-{repeat}",
                "experiment": "tiny",
                "scheme": label,
                "is_dlcp": label.startswith("dlcp"),
                "label": label,
                "job": "j",
                "repeat": repeat,
                "seed": repeat,
                "substrate": "emulate",
                "status": "ok",
                "jct_s": jct_s,
                "ideal": {"jct_s": 5.0},
            }
            write_run(root / f"{label}-{repeat}", RunResult.model_validate(given | fields), {})
    return root


def compared(root: Path, times: dict[str, list[float]], **fields: object) -> Comparison:
    return compare(load(write(root, times, **fields)))


def around(mean: float, spread: float, seed: int, n: int = 5) -> list[float]:
    return list(mean * np.exp(np.random.default_rng(seed).normal(0, spread, n)))


def test_headroom__ends_at_the_reachable_bound_where_results_have_it(tmp_path: Path) -> None:
    times = {"tcp": around(8.0, 0.01, 1), "dlcp": around(7.0, 0.01, 2)}
    older = compared(tmp_path / "older", times)
    newer = compared(tmp_path / "newer", times, ideal={"jct_s": 5.0, "reachable_jct_s": 6.25})
    (before,), (now,) = headroom(older), headroom(newer)
    assert (before.gain, before.best_other) == (now.gain, now.best_other)
    assert (before.most, now.most) == (pytest.approx(8.0 / 5 - 1, abs=0.01), pytest.approx(8.0 / 6.25 - 1, abs=0.01))
    rows = [line for line in metric_table(newer, METRICS["jct_s"]) if line.startswith("| *")]
    assert rows == ["| *ideal transport* | 5 |", "| *least of any transport* | 6.25 |"]
    (job,) = newer.jobs
    axes = Figure().subplots()
    draw_times(axes, newer, job, METRICS["jct_s"])
    assert {"least of any transport", "ideal transport"} <= {text.get_text() for text in axes.texts}


def test_best_other__is_the_fastest_other_and_its_interval_is_wider_than_that_of_a_named_one(tmp_path: Path) -> None:
    found = compared(
        tmp_path,
        {
            "dlcp": around(10, 0.01, 1),
            "tcp": around(15, 0.01, 2),
            "p3": around(12, 0.01, 3),
            "dlcp-no-loss": around(9, 0.01, 4),
        },
    )
    one = best_other(found, "j")
    named = found.job("j")
    assert named is not None
    assert (one.subject, one.best, one.possible, one.verdict) == ("dlcp", "p3", ("p3",), "better")
    plain = named.gains["p3", "jct_s"].estimate
    assert plain.value is not None
    assert plain.low is not None
    assert plain.high is not None
    assert one.estimate.value == pytest.approx(1 / plain.value)
    assert one.estimate.low == pytest.approx(1 / plain.high)  # the lower end needs no correction
    assert one.estimate.high is not None
    assert one.estimate.high > 1 / plain.low  # the upper one does
    assert "over p3" in one.words


def test_best_other__names_those_that_may_be_the_best(tmp_path: Path) -> None:
    found = compared(
        tmp_path,
        {"dlcp": around(10, 0.01, 1), "tcp": around(12, 0.03, 2), "p3": around(12.05, 0.03, 3), "ltp": [30.0, 31.0]},
    )
    one = best_other(found, "j")
    assert set(one.possible) == {"tcp", "p3"}
    assert one.left_out == {"ltp": "an interval needs 5 pairs, there are 2"}
    assert " (or " in one.words
    assert "ltp not counted" in one.words


def test_best_other__counts_a_rival_that_lacks_a_run(tmp_path: Path) -> None:
    times = {"dlcp": around(10, 0.01, 1), "tcp": around(15, 0.01, 2), "ltp": around(9, 0.01, 3, n=4)}
    one = best_other(compared(tmp_path, times), "j")
    assert (one.best, one.few, one.left_out, one.verdict) == ("ltp", {"ltp": 4}, {}, "worse")
    assert one.words.endswith("over ltp; of ltp 4 pairs")


def test_best_other__of_none_says_so(tmp_path: Path) -> None:
    one = best_other(compared(tmp_path, {"dlcp": around(10, 0.01, 1), "dlcp-ect": around(10, 0.01, 2)}), "j")
    assert (one.best, one.verdict, one.words) == ("", "n/a", "n/a (there is no other scheme)")


def test_best_other__covers_the_truth_when_all_others_are_equal() -> None:
    """Eight equal rivals: picking the winner's own interval would miss the true ratio far more often than 5 %."""
    generator = np.random.default_rng(9)
    honest = naive = 0
    for _ in range(600):
        ours = generator.normal(0, 0.004, 5)
        advantages = [generator.normal(0, 0.02, 5) - ours for _ in range(8)]  # the truth is 0
        plain, wide = ([mean_interval(a, c) for a in advantages] for c in (0.95, 1 - 0.05 / 8))
        winner = plain[int(np.argmin([one.value for one in plain]))]
        naive += (winner.low or 0) <= 0 <= (winner.high or 0)
        honest += min(one.low or 0 for one in plain) <= 0 <= min(one.high or 0 for one in wide)
    assert honest / 600 > 0.94
    assert naive / 600 < 0.9


def test_expectation__against_the_best_other(tmp_path: Path) -> None:
    found = compared(tmp_path, {"dlcp": around(10, 0.01, 1), "tcp": around(15, 0.01, 2), "p3": around(12, 0.01, 3)})

    def line(relation: str, scheme: str = "dlcp", margin: float | None = None) -> Expectation:
        return Expectation.model_validate(
            {
                "job": "j",
                "metric": "jct_s",
                "scheme": scheme,
                "against": BEST_OTHER,
                "relation": relation,
                "margin": margin,
                "paper": "p",
                "why": "w",
            }
        )

    first, second, third, fourth = evaluate(
        found, [line("better"), line("better", "p3"), line("not-worse", "tcp"), line("not-worse", margin=0.05)]
    )
    assert (first.verdict, first.claim) == ("holds", "j: job completion of dlcp better than best other")
    assert (first.paper, first.why) == ("p", "w")
    assert second.verdict == "holds"  # the others of P3 are TCP alone: DLCP is not among the others
    assert third.verdict == "does not hold"
    assert fourth.verdict == "holds"


def test_expectation__against_the_best_other_cannot_hold_while_a_rival_is_not_counted(tmp_path: Path) -> None:
    line = {"job": "j", "metric": "jct_s", "scheme": "dlcp", "against": BEST_OTHER, "relation": "better"}
    times = {"dlcp": around(10, 0.01, 1), "tcp": around(15, 0.01, 2), "ltp": around(8, 0.01, 3, n=2)}
    faster = compared(tmp_path / "faster", times)
    (found,) = evaluate(faster, [Expectation.model_validate(line)])
    assert found.verdict == "cannot tell"  # LTP, with two runs, would be the best
    assert "ltp not counted" in found.words
    (room,) = headroom(faster)
    assert (room.best_other, room.left_out, room.verdict) == ("tcp", ("ltp",), "cannot tell")
    slower = compared(tmp_path / "slower", times | {"dlcp": around(20, 0.01, 1)})
    (found,) = evaluate(slower, [Expectation.model_validate(line)])
    assert found.verdict == "does not hold"  # a rival more would not make it better
    assert re.match(r"tcp is (19|20)\d % above the ideal transport's job completion", cause(slower, found))


def test_repeats_to_rank__is_what_the_power_of_a_paired_t_test_needs() -> None:
    generator = np.random.default_rng(4)
    differences = generator.normal(0, 1, 8)
    differences = (differences - differences.mean()) / differences.std(ddof=1) + 0.6
    needed = repeats_to_rank(differences)
    assert needed is not None
    ranked = [mean_interval(generator.normal(0.6, 1, needed)) for _ in range(2000)]
    assert 0.77 < np.mean([(one.low or 0) > 0 for one in ranked]) < 0.84
    assert repeats_to_rank(np.array([1.0, -1.0, 1.0, -1.0])) is None
    assert repeats_to_rank(np.array([1.0])) is None


def test_unranked__says_how_many_more_repeats_would_tell(tmp_path: Path) -> None:
    found = compared(
        tmp_path,
        {"dlcp": around(10, 0.04, 1), "tcp": around(10.2, 0.04, 2), "p3": [9.0, 9.0, 9.0], "ltp": around(20, 0.01, 3)},
    )
    words = [one.words for one in unranked(found)]
    assert len(words) == 2
    assert words[0].startswith("j: job completion, dlcp against p3: an interval needs 5 pairs, there are 3; 2 more")
    assert "dlcp against tcp: no clear difference" in words[1]
    assert "repeats would rank them" in words[1] or "more than 1000 repeats" in words[1]


def test_speedups__are_over_plain_tcp_and_end_with_the_ideal(tmp_path: Path) -> None:
    found = speedups(compared(tmp_path, {"dlcp": [8.0] * 5, "tcp": [16.0] * 5}))
    assert found[["label", "value"]].to_numpy().tolist() == [
        ["tcp", 1.0],
        ["dlcp", pytest.approx(2.0)],
        ["ideal transport", pytest.approx(3.2)],
    ]
    assert set(found["reference"]) == {"tcp"}


def test_best_other__of_those_that_tcp_carries(tmp_path: Path) -> None:
    write(tmp_path, {"dlcp": around(8, 0.01, 1), "ltp": around(9, 0.01, 2)}, traffic={"dlcp": 1000, "tcp": 0})
    write(tmp_path, {"tcp": around(16, 0.01, 3)}, traffic={"tcp": 1000})
    comparison = compare(load(tmp_path))
    assert best_other(comparison, "j").best == "ltp"
    over_tcp = over_tcp_of(comparison.results, "j")
    assert over_tcp == ("tcp",)
    found = best_other(comparison, "j", among=over_tcp)
    assert (found.best, found.possible) == ("tcp", ("tcp",))
    assert found.estimate.value == pytest.approx(2, rel=0.02)
    assert best_other(comparison, "j", among=()).best == ""
    (room,) = headroom(comparison)
    assert room.best_other == "ltp"
    assert room.over_tcp.endswith(" over tcp")


COSTS = {
    "hosts": {
        "h1": {
            "cpu_user_s": 1.5,
            "cpu_system_s": 0.5,
            "sent_packets": 4000,
            "sent_bytes": 4_400_000,
            "received_packets": 1,
            "received_bytes": 1,
            "resent_packets": 0,
            "resent_bytes": 0,
        }
    },
    "machines": [{"hosts": ["h1"], "cores": 2, "cpu_s": 6.0}],
}


def test_costs__are_per_byte_handed_over_and_unknown_in_old_results(tmp_path: Path) -> None:
    one = {
        "job": "j",
        "iteration": 0,
        "warmup": False,
        "tensor": 0,
        "layer": 0,
        "leg": "push",
        "src": "h1",
        "dst": "h2",
        "bytes": 4_000_000,
        "start_s": 0.0,
        "end_s": 1.0,
        "delivered_bytes": 4_000_000,
        "lost_bytes": 0,
        "resent_bytes": 40_000,
        "probes": 0,
        "loss_bound": 0.0,
        "lost_energy_share": 0.0,
        "energy_bound": 1.0,
        "tensor_bytes": 8_000_000,
    }
    for label, costed in (("dlcp", COSTS), ("tcp", None)):
        fields = {
            "run_id": label,
            "experiment": "tiny",
            "scheme": label,
            "is_dlcp": label.startswith("dlcp"),
            "label": label,
            "job": "j",
            "repeat": 0,
            "seed": 0,
            "substrate": "emulate",
            "status": "ok",
            "costs": costed,
        }
        columns = {name: [value] for name, value in one.items()}
        write_run(tmp_path / label, RunResult.model_validate(fields), {"messages": columns})
    found = costs(load(tmp_path)).set_index(["label", "cost"])["value"]
    assert found["dlcp", "of_gradients"] == pytest.approx(0.5)
    assert found["dlcp", "sent_ratio"] == pytest.approx(1.1)
    assert found["dlcp", "agent_s_per_gb"] == pytest.approx(500)
    assert found["dlcp", "machine_s_per_gb"] == pytest.approx(1500)
    assert found["dlcp", "packets_per_mb"] == pytest.approx(1000)
    assert found["tcp", "resent_share"] == pytest.approx(1.0)
    assert np.isnan(found["tcp", "sent_ratio"])
    shown = set(cost_table(compare(load(tmp_path))))
    assert {"| dlcp | 0.50 | 1.10 | 1.0 | 500 |", "| tcp | 0.50 | – | 1.0 | – |"} <= shown


def test_sheet__puts_every_setting_side_by_side_and_marks_differences(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"tcp": [1.0]},
        knobs={"rto_min_s": 0.2, "ecn": False},
        tuning={"chosen": {"ecn": False}},
        intended={
            "load_balancing": {"s1": "flow-hash", "s2": "flow-hash"},
            "ports": {"all": {"queues": {}}},
            "hosts": {"all": {"sysctls": {"net.ipv4.tcp_sack": "1"}}},
        },
    )
    write(
        tmp_path,
        {"dlcp": [1.0]},
        knobs={"ecn": False},
        intended={
            "load_balancing": {"s1": "per-packet", "s2": "flow-hash"},
            "hosts": {"all": {"sysctls": {"net.ipv4.tcp_sack": "1"}}},
        },
    )
    rows = {(row["group"], row["name"]): (row["texts"], row["differs"]) for row in sheet(load(tmp_path))}
    assert rows["knobs", "rto_min_s"] == (["200 ms", "–"], True)
    assert rows["knobs", "ecn"] == (["no", "no"], False)
    assert rows["tuning", "chosen.ecn"] == (["no", "–"], True)
    assert rows["hosts", "all.sysctls.net.ipv4.tcp_sack"] == (["1", "1"], False)
    assert rows["switches", "load_balancing.s1"] == (["–", "per-packet"], True)
    assert not any("queues" in name for _, name in rows)


def test_against__lists_what_differs_before_what_changed(tmp_path: Path) -> None:
    from rich.console import Console

    before = write(
        tmp_path / "before",
        {"dlcp": around(10, 0.01, 1), "tcp": around(15, 0.01, 2)},
        regime={"link_rate_bps": 1e8},
        provenance={"commit": "aaa"},
    )
    after = write(
        tmp_path / "after",
        {"dlcp": around(8, 0.01, 1), "tcp": around(15, 0.01, 5), "p3": [1.0]},
        regime={"link_rate_bps": 1e8},
        provenance={"commit": "bbb"},
    )
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115 - lives as long as the test
    summary = report(after, console=console, against=before)
    text = console.export_text()
    assert summary.comparable
    assert "code and machine: commit: bbb here, aaa there" in text
    assert "only here: p3, j" in text
    assert "−20" in next(
        line for line in text.splitlines() if " dlcp " in line and "job completion" in line and "%" in line
    )
    html = summary.html.read_text(encoding="utf-8")
    assert "bbb" in html
    assert {"report-changes.csv", "report-changes.parquet"} <= {file.name for file in summary.files}

    file = before / "dlcp-0" / "result.json"
    for file in before.glob("*/result.json"):
        data = json.loads(file.read_text())
        file.write_text(json.dumps(data | {"regime": {"link_rate_bps": 1e9}, "seed": data["seed"] + 100}))
    summary = report(after, console=console, against=before)
    text = console.export_text()
    assert not summary.comparable
    assert summary.exit_code == 4
    assert "the fabrics or jobs were not the same" in text
    assert "fabric: regime.link_rate_bps: 100 Mbit/s here, 1 Gbit/s there" in text
    changed = (after / "report-changes.csv").read_text()
    assert "Welch t" in changed  # no seed is on both sides
