"""The figures of a run, from its tables. Names, units and directions: dlcp.model.metrics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from dlcp.model.metrics import METRICS, Metric
from dlcp.model.result import DROP_CAUSES
from dlcp.report.load import Results
from dlcp.report.statistics import quantile, refuse_quantile

_DROPS = [f"dropped_{cause}_packets" for cause in DROP_CAUSES]

_BLOCKS_A_RUN = 1_000_000
"""More than a job's iterations: run number × this + iteration names a block."""


@dataclass(frozen=True)
class Samples:
    """Durations in seconds, and for each the number of the (run, iteration) that it belongs to."""

    values: npt.NDArray[np.float64]
    blocks: npt.NDArray[np.int64]


def run_metrics(results: Results) -> pd.DataFrame:
    """One row a run (suspect ones too): results.frame and a column for every metric of METRICS.

    NaN = the run does not have it (no `training` table, no ideal given), or its samples cannot carry it.
    """
    frame = results.frame.set_index("run_id", drop=False)
    frame = frame.join(_durations(results)).join(_messages(results)).join(_ports(results)).join(_training(results))
    ideal = pd.DataFrame([run.result.ideal for run in results.runs], index=frame.index)
    for name, over in (("jct_over_ideal", "jct_s"), ("iteration_over_ideal", "iteration_p50_s")):
        best = ideal["jct_s" if over == "jct_s" else "iteration_s"] if len(ideal.columns) else np.nan
        frame[name] = frame[over] / best
    for name in METRICS:
        frame[name] = pd.to_numeric(frame[name], errors="coerce") if name in frame else np.nan
    return frame.reset_index(drop=True)


def samples(results: Results, job: str, label: str, metric: Metric) -> Samples:
    """The pooled samples behind a quantile metric, over the trusted runs of one scheme and job."""
    table = _timed(results, metric)
    mine = table[(table["job"] == job) & (table["label"] == label) & table["trusted"].astype(bool)]
    runs = pd.factorize(mine["run_id"])[0].astype(np.int64)
    blocks = runs * _BLOCKS_A_RUN + mine["iteration"].to_numpy(dtype=np.int64)
    return Samples(mine["duration_s"].to_numpy(dtype=np.float64), blocks)


def message_durations(results: Results) -> pd.DataFrame:
    """Completed messages after warm-up: job, label, run_id, trusted, leg, iteration, duration_s."""
    return _with_duration(results.table("messages"), ["leg"])


def iteration_durations(results: Results) -> pd.DataFrame:
    """Workers' iterations after warm-up: job, label, run_id, trusted, iteration, duration_s, exposed_comm_s."""
    return _with_duration(results.table("iterations"), ["exposed_comm_s"])


def target_accuracy(results: Results, job: str) -> float | None:
    """The test accuracy that every trusted run of the job reached at some time; None if the job does not train."""
    training = results.table("training")
    mine = training[(training["job"] == job) & training["trusted"].astype(bool)]
    return float(mine.groupby("run_id")["accuracy"].max().min()) if len(mine) else None


def _with_duration(table: pd.DataFrame, extra: list[str]) -> pd.DataFrame:
    counted = table[~table["warmup"].astype(bool)].dropna(subset=["start_s", "end_s"])
    durations = (counted["end_s"] - counted["start_s"]).astype(float)
    columns = ["job", "label", "run_id", "trusted", "iteration", *extra]
    return counted[columns].assign(duration_s=durations)


def _timed(results: Results, metric: Metric) -> pd.DataFrame:
    source = metric.name.split("_")[0]
    if source == "iteration":
        return iteration_durations(results)
    table = message_durations(results)
    return table if source == "message" else table[table["leg"] == source]


def _durations(results: Results) -> pd.DataFrame:
    """Per run: the quantile metrics that its own samples carry, and the mean exposed communication."""
    columns: dict[str, pd.Series[float]] = {}
    for metric in METRICS.values():
        if metric.quantile is not None:
            columns[metric.name] = _by_run(_timed(results, metric), metric.quantile)
    iterations = iteration_durations(results)
    columns["exposed_comm_s"] = iterations.groupby("run_id")["exposed_comm_s"].mean()
    return pd.DataFrame(columns)


def _by_run(table: pd.DataFrame, q: float) -> pd.Series[float]:
    found: dict[str, float] = {}
    for run_id, mine in table.groupby("run_id"):
        values = mine["duration_s"].to_numpy(dtype=np.float64)
        refused = refuse_quantile(values, mine["iteration"].to_numpy(dtype=np.int64), q)
        found[str(run_id)] = float("nan") if refused else quantile(values, q)
    return pd.Series(found, dtype=float)


def _messages(results: Results) -> pd.DataFrame:
    """Per run: shares of bytes and energy lost (push) and of bytes sent again (both legs). Warm-up counts here."""
    table = results.table("messages")
    totals = table.groupby("run_id")[["bytes", "resent_bytes"]].sum(min_count=1)
    pushed = table[table["leg"] == "push"]
    energy = (pushed["lost_energy_share"].astype(float) * pushed["bytes"].astype(float)).groupby(pushed["run_id"])
    push = pushed.groupby("run_id")[["bytes", "lost_bytes"]].sum(min_count=1)
    return pd.DataFrame({
        "lost_share": push["lost_bytes"] / push["bytes"],
        "lost_energy_share": energy.sum(min_count=1) / push["bytes"],
        "resent_share": totals["resent_bytes"] / totals["bytes"],
    })  # fmt: skip


def _ports(results: Results) -> pd.DataFrame:
    table = results.table("ports")
    totals = table.groupby("run_id")[
        ["enqueued_packets", *_DROPS, "marked_ce_packets"]
    ].sum()  # older results know fewer causes
    dropped = totals[_DROPS].sum(axis=1)
    enqueued = totals["enqueued_packets"]
    return pd.DataFrame({
        "dropped_share": dropped / (enqueued + dropped).where(enqueued + dropped > 0),
        "marked_share": totals["marked_ce_packets"] / enqueued.where(enqueued > 0),
    })  # fmt: skip


def _training(results: Results) -> pd.DataFrame:
    """Per run of a real job: accuracy after the last step, and the time to the target accuracy of its job."""
    rows: dict[str, dict[str, float]] = {}
    for job in results.jobs:
        target = target_accuracy(results, job)
        table = results.table("training")
        for run_id, mine in table[table["job"] == job].groupby("run_id"):
            curve = mine.sort_values("step")
            rows[str(run_id)] = {
                "final_accuracy": float(curve["accuracy"].iloc[-1]),
                "time_to_accuracy_s": time_to(curve["time_s"].to_numpy(dtype=float),
                                              curve["accuracy"].to_numpy(dtype=float), target),
            }  # fmt: skip
    return pd.DataFrame.from_dict(rows, orient="index", columns=["final_accuracy", "time_to_accuracy_s"])


def time_to(times_s: npt.NDArray[np.float64], accuracy: npt.NDArray[np.float64], target: float | None) -> float:
    """When the curve first reaches the target, on the straight line between evaluations; NaN if it never does."""
    if target is None or not np.any(accuracy >= target):
        return float("nan")
    at = int(np.argmax(accuracy >= target))
    if at == 0:
        return float(times_s[0])
    share = (target - accuracy[at - 1]) / (accuracy[at] - accuracy[at - 1])
    return float(times_s[at - 1] + share * (times_s[at] - times_s[at - 1]))
