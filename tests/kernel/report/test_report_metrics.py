"""Figures of a run against tables small enough to compute by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from synthetic_results import record_again, write_run

from dlcp.model.metrics import METRICS
from dlcp.model.result import TABLES, RunResult
from dlcp.model.tables import check_table
from dlcp.report.data.load import load
from dlcp.report.data.metrics import run_metrics, samples, time_to
from dlcp.report.data.self_checks import losses, problems, replicas


def result(**fields: Any) -> RunResult:
    given = {
        "run_id": "a",
        "experiment": "tiny",
        "scheme": "dlcp",
        "is_dlcp": True,
        "label": "DLCP",
        "job": "j",
        "repeat": 0,
        "seed": 1,
        "substrate": "emulate",
        "status": "ok",
        "jct_s": 12.0,
    }
    return RunResult.model_validate(given | fields)


def rows(table: str, *given: dict[str, Any]) -> dict[str, list[Any]]:
    """Columns of a table from rows; what a row does not name is zero of its type."""
    zero: dict[str, Any] = {"string": "j", "bool": False, "list<int64>": []}
    return {name: [row.get(name, zero.get(kind, 0)) for row in given] for name, kind in TABLES[table].items()}


def message(leg: str = "push", *, bytes: int = 1000, lost: int = 0, bound: float = 0.1, **more: Any) -> dict[str, Any]:
    return {
        "leg": leg,
        "bytes": bytes,
        "lost_bytes": lost,
        "delivered_bytes": bytes - lost,
        "loss_bound": bound,
        **more,
    }


def test_run_metrics__iterations_leave_warm_up_out(tmp_path: Path) -> None:
    iterations = [
        {"iteration": i, "worker": "h1", "start_s": 10.0 * i, "end_s": 10.0 * i + 1 + i, "exposed_comm_s": 0.1 * i}
        for i in range(1, 21)
    ]
    warmup = {"iteration": 0, "warmup": True, "end_s": 99.0, "exposed_comm_s": 99.0}
    write_run(tmp_path / "a", result(), {"iterations": rows("iterations", warmup, *iterations)})
    found = run_metrics(load(tmp_path)).iloc[0]
    assert found["jct_s"] == 12.0
    assert found["iteration_p50_s"] == pytest.approx(11)  # the 10th of 2 … 21 s
    assert found["exposed_comm_s"] == pytest.approx(1.05)
    assert np.isnan(found["iteration_p99_s"])  # 20 samples cannot carry it


def test_run_metrics__messages_by_leg(tmp_path: Path) -> None:
    pushes = [message(iteration=i, start_s=1.0, end_s=1.0 + 0.01 * i) for i in range(1, 21)]
    pulls = [message("pull", iteration=i, start_s=2.0, end_s=2.5, bound=0.0, resent_bytes=50) for i in range(1, 21)]
    write_run(tmp_path / "a", result(), {"messages": rows("messages", *pushes, *pulls)})
    found = run_metrics(load(tmp_path)).iloc[0]
    assert found["push_p50_s"] == pytest.approx(0.10)
    assert found["pull_p50_s"] == pytest.approx(0.5)
    assert found["message_p50_s"] == pytest.approx(0.20)
    assert found["resent_share"] == pytest.approx(20 * 50 / 40_000)
    pooled = samples(load(tmp_path), "j", "DLCP", METRICS["push_p50_s"])
    assert sorted(pooled.values) == pytest.approx([0.01 * i for i in range(1, 21)])
    assert len(set(pooled.blocks)) == 20


def test_run_metrics__losses_are_of_pushed_bytes_and_count_warm_up(tmp_path: Path) -> None:
    found = [
        message(lost=50, warmup=True, bytes=2000, lost_energy_share=0.01),
        message(lost=100, lost_energy_share=0.07),
        message("pull", bound=0.0),
    ]
    write_run(tmp_path / "a", result(), {"messages": rows("messages", *found)})
    row = run_metrics(load(tmp_path)).iloc[0]
    assert row["lost_share"] == pytest.approx(150 / 3000)
    assert row["lost_energy_share"] == pytest.approx((2000 * 0.01 + 1000 * 0.07) / 3000)


def test_run_metrics__energy_of_the_whole_gradient_is_what_a_run_in_one_process_tells(tmp_path: Path) -> None:
    one = result(statistics={"gradient": {"lost_energy_share": 0.98}}, jct_s=None)
    write_run(tmp_path / "a", one, {"messages": rows("messages", message(lost=100, lost_energy_share=0.2))})
    row = run_metrics(load(tmp_path)).iloc[0]
    assert (row["lost_energy_share"], row["gradient_energy_lost"]) == (pytest.approx(0.2), 0.98)


def test_run_metrics__a_result_of_format_1_does_not_know_its_lost_energy(tmp_path: Path) -> None:
    write_run(tmp_path / "a", result(), {"messages": rows("messages", message(lost=100))})
    file = tmp_path / "a" / "messages.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["lost_energy_share", "energy_bound"]), file)
    record_again(tmp_path)
    row = run_metrics(load(tmp_path)).iloc[0]
    assert row["lost_share"] == pytest.approx(0.1)
    assert np.isnan(row["lost_energy_share"])
    assert check_table(tmp_path / "a", "messages") == ""


@pytest.mark.parametrize(("pattern", "compared"), [("parameter-server", 2), ("transpose", 1)])
def test_replicas__are_not_compared_where_a_pull_lost_something(tmp_path: Path, pattern: str, compared: int) -> None:
    """Pulls of iterations 1 and 2 might lose something, that of 2 did; a transpose does not recover from it."""
    iterations = [{"iteration": i, "worker": f"h{w}", "parameters_crc32": 9 * i + w} for i in (1, 2, 3) for w in (1, 2)]
    pulls = [
        message("pull", bound=0.01, iteration=1),
        message("pull", bound=0.01, lost=5, iteration=2),
        message("pull", bound=0.0, iteration=3),
        message(bound=0.1, lost=9, iteration=3),
    ]
    write_run(
        tmp_path / "a",
        result(run={"job": {"pattern": pattern}}),
        {"iterations": rows("iterations", *iterations), "messages": rows("messages", *pulls)},
    )
    row = replicas(load(tmp_path)).iloc[0]
    assert (row["iterations"], row["differing"]) == (compared, compared)


def test_run_metrics__drops_and_marks_are_of_offered_and_enqueued_packets(tmp_path: Path) -> None:
    ports = rows(
        "ports",
        {"queue": 6, "enqueued_packets": 80, "dropped_wred_packets": 10, "marked_ce_packets": 20},
        {"queue": 0, "enqueued_packets": 0, "dropped_tail_packets": 7, "dropped_loss_packets": 3},
    )
    write_run(tmp_path / "a", result(), {"ports": ports})
    found = run_metrics(load(tmp_path)).iloc[0]
    assert found["dropped_share"] == pytest.approx(20 / 100)
    assert found["marked_share"] == pytest.approx(20 / 80)


def test_run_metrics__ideal_ratios(tmp_path: Path) -> None:
    write_run(tmp_path / "a", result(ideal={"jct_s": 8.0, "iteration_s": 0.5}), {})
    found = run_metrics(load(tmp_path)).iloc[0]
    assert found["jct_over_ideal"] == pytest.approx(1.5)
    assert np.isnan(found["iteration_over_ideal"])


def test_run_metrics__time_to_the_accuracy_that_every_trusted_run_reached(tmp_path: Path) -> None:
    for name, status, accuracies in (
        ("a", "ok", (0.5, 0.8, 0.9)),
        ("b", "ok", (0.4, 0.7, 0.6)),
        ("c", "suspect", (0.1, 0.1, 0.2)),
    ):
        curve = [{"step": i, "time_s": 10.0 * (i + 1), "accuracy": one} for i, one in enumerate(accuracies)]
        repeat = "abc".index(name)
        write_run(
            tmp_path / name, result(run_id=name, repeat=repeat, status=status), {"training": rows("training", *curve)}
        )
    found = run_metrics(load(tmp_path)).set_index("run_id")
    assert found["final_accuracy"].to_dict() == pytest.approx({"a": 0.9, "b": 0.6, "c": 0.2})
    assert found.loc["a", "time_to_accuracy_s"] == pytest.approx(10 + 10 * (0.7 - 0.5) / 0.3)
    assert found.loc["b", "time_to_accuracy_s"] == pytest.approx(20)
    assert np.isnan(found.loc["c", "time_to_accuracy_s"])


@pytest.mark.parametrize(("target", "expected"), [(0.1, 1.0), (0.5, 2.0), (0.4, 1.75), (None, None), (0.9, None)])
def test_time_to__lies_on_the_line_between_evaluations(target: float | None, expected: float | None) -> None:
    found = time_to(np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.5, 0.2]), target)
    assert np.isnan(found) if expected is None else found == pytest.approx(expected)


def test_losses__name_every_message_beyond_its_own_bound(tmp_path: Path) -> None:
    found = [message(lost=100), message(lost=60, bound=0.05), message("pull", lost=1, bound=0.0), message(lost=20)]
    write_run(tmp_path / "a", result(), {"messages": rows("messages", *found)})
    loaded = load(tmp_path)
    row = losses(loaded).iloc[0]
    assert (row["messages"], row["bounded"], row["violations"]) == (4, 3, 2)
    assert row["lost_share"] == pytest.approx(180 / 3000)
    assert row["worst_share"] == pytest.approx(0.1)
    assert row["worst_of_bound"] == pytest.approx(1.2)
    assert "2 of 4 messages lost more than their bound" in problems(loaded)[0]


def test_replicas__tell_when_workers_end_an_iteration_apart(tmp_path: Path) -> None:
    found = [
        {"iteration": i, "worker": worker, "parameters_crc32": 7 + i + (i == 2 and worker == "h2")}
        for i in range(4)
        for worker in ("h1", "h2")
    ]
    write_run(tmp_path / "a", result(), {"iterations": rows("iterations", *found)})
    row = replicas(load(tmp_path)).iloc[0]
    assert (row["iterations"], row["differing"]) == (4, 1)
    assert "after 1 of 4 iterations the workers' parameters differ" in problems(load(tmp_path))[0]


def test_problems__a_run_that_went_over_two_transports_is_named(tmp_path: Path) -> None:
    write_run(tmp_path / "a", result(traffic={"dlcp": 5, "tcp": 7}), {})
    write_run(tmp_path / "b", result(run_id="b", scheme="tcp", is_dlcp=False, label="TCP", traffic={"tcp": 7}), {})
    write_run(tmp_path / "c", result(run_id="c", scheme="pias", is_dlcp=False, label="PIAS", traffic={"dlcp": 7}), {})
    assert problems(load(tmp_path)) == (
        "DLCP, j, repeat 1: gradients or parameters went over dlcp and tcp, where a scheme has one transport",
    )


def test_metric_names__are_read_without_pandas() -> None:
    code = "import sys, dlcp.model.metrics as m; print('pandas' in sys.modules, 'scipy' in sys.modules, *m.METRICS)"
    words = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert words[:2] == ["False", "False"]
    assert {"jct_s", "message_p99_s", "iteration_p50_s", "final_accuracy", "time_to_accuracy_s"} <= set(words)


def test_samples__leave_out_tenants_beside_the_job(tmp_path: Path) -> None:
    mine = [message(iteration=i, end_s=1.0, bound=0.0) for i in range(20)]
    theirs = [message(iteration=i, end_s=50.0, lost=900, bound=0.1, job="beside") for i in range(20)]
    write_run(tmp_path / "a", result(), {"messages": rows("messages", *mine, *theirs)})
    loaded = load(tmp_path)
    assert samples(loaded, "j", "DLCP", METRICS["push_p50_s"]).values.tolist() == [1.0] * 20
    assert losses(loaded)[["messages", "violations"]].to_numpy().tolist() == [[20, 0]]


def test_table__reads_the_columns_that_are_asked_for(tmp_path: Path) -> None:
    write_run(tmp_path / "a", result(), {"messages": rows("messages", message())})
    table = load(tmp_path).table("messages", ("leg", "bytes"))
    assert list(table) == ["leg", "bytes", "run_id", "label", "repeat", "trusted", "scheme"]
