"""The figures of a run, from its tables. Names, units and directions: dlcp.model.metrics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from dlcp.model.metrics import IDEAL_OF, METRICS, OVER_IDEAL, Metric
from dlcp.model.result import DROP_CAUSES
from dlcp.report.data.digest import Durations, RunDigest
from dlcp.report.data.load import Results
from dlcp.report.data.statistics import quantile, refuse_quantile

_DROPS = [f"dropped_{cause}_packets" for cause in DROP_CAUSES]
QUEUE_COLUMNS = ["enqueued_packets", *_DROPS, "marked_ce_packets"]
"""Counters of a port's queue in the table `ports`."""


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
    frame = frame.join(_digested(results)).join(_ports(results)).join(_training(results))
    ideal = pd.DataFrame([run.result.ideal for run in results.runs], index=frame.index, dtype=float)
    ideal = ideal.reindex(columns=list(IDEAL_OF.values()))
    for name, over in OVER_IDEAL.items():
        frame[over] = frame[name].astype(float) / ideal[IDEAL_OF[name]]
    gradients = [run.result.statistics.get("gradient", {}) for run in results.runs]
    frame["gradient_energy_lost"] = [gradient.get("lost_energy_share", np.nan) for gradient in gradients]
    for name in METRICS:
        frame[name] = pd.to_numeric(frame[name], errors="coerce") if name in frame else np.nan
    return frame.reset_index(drop=True)


def samples(results: Results, job: str, label: str, metric: Metric) -> Samples:
    """The pooled samples behind a quantile metric, ascending, over the trusted runs of one scheme and job."""
    source = _source(metric)
    return results.made(("samples", job, label, source), lambda: _pooled(results, job, label, source))


def _source(metric: Metric) -> str:
    """Name of the durations in a run's digest that the metric summarises."""
    return metric.name.split("_")[0]


def _pooled(results: Results, job: str, label: str, source: str) -> Samples:
    samples = [results.digest(run).legs.get(source) for run in results.of(job, label) if run.trusted]
    parts = [part for part in samples if part is not None and len(part.values)]
    if not parts:
        return Samples(np.empty(0), np.empty(0, np.int64))
    blocks, taken = [], 0
    for part in parts:
        names, block = np.unique(part.iterations, return_inverse=True)
        blocks.append(block + taken)
        taken += len(names)
    values = np.concatenate([part.values for part in parts])
    order = np.argsort(values, kind="stable")
    return Samples(values[order], np.concatenate(blocks)[order])


def queue_counts(results: Results) -> pd.DataFrame:
    """Packets by job, label, queue and precedence, a run (mean over trusted runs), all ports together."""
    return results.made("queue counts", lambda: _count_queues(results))


def _count_queues(results: Results) -> pd.DataFrame:
    table = results.table("ports", ("queue", "precedence", *QUEUE_COLUMNS))
    table = table[table["trusted"].astype(bool)]
    runs = table.groupby("run_id")["run_id"].transform("size")
    jobs = {run.result.run_id: run.result.job for run in results.runs}
    table = table.assign(job=table["run_id"].map(jobs)) if len(runs) else table.assign(job=[])
    by_run = table.groupby(["job", "label", "run_id", "queue", "precedence"])[QUEUE_COLUMNS].sum()
    return by_run.groupby(["job", "label", "queue", "precedence"]).mean().reset_index()


def target_accuracy(results: Results, job: str) -> float | None:
    """The test accuracy that the job names as its target; else that every trusted run of it reached at some time; None
    if the job does not train."""
    training = results.own(results.table("training", ("job", "accuracy")))
    job_rows = training[(training["job"] == job) & training["trusted"].astype(bool)]
    if job_rows.empty:
        return None
    named = (results.example(job).run.get("job") or {}).get("target_accuracy")
    return float(job_rows.groupby("run_id")["accuracy"].max().min()) if named is None else float(named)


def _digested(results: Results) -> pd.DataFrame:
    """Per run: the quantile metrics that its own samples carry, the mean exposed communication, and the shares of bytes
    and energy lost (push) and of bytes sent again (both legs). Warm-up counts in the shares."""
    return pd.DataFrame.from_dict(
        {run.result.run_id: _figures(results.digest(run)) for run in results.runs}, orient="index", dtype=float
    )


def _figures(digest: RunDigest) -> dict[str, float]:
    quantiles = {
        metric.name: _quantile(digest.legs.get(_source(metric)), metric.quantile)
        for metric in METRICS.values()
        if metric.quantile is not None
    }
    return quantiles | {
        "exposed_comm_s": digest.exposed_comm_s,
        "lost_share": _share(digest.pushed.lost_bytes, digest.pushed.bytes),
        "lost_energy_share": _share(digest.pushed.lost_energy_bytes, digest.pushed.bytes),
        "resent_share": _share(digest.resent_bytes, digest.every.bytes),
    }


def _quantile(durations: Durations | None, q: float) -> float:
    if durations is None or refuse_quantile(durations.values, durations.iterations, q):
        return float("nan")
    return quantile(durations.values, q)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")


def _ports(results: Results) -> pd.DataFrame:
    counts = ["enqueued_packets", *_DROPS, "marked_ce_packets"]
    table = results.table("ports", counts)
    totals = table.groupby("run_id")[counts].sum()  # older results know fewer causes
    dropped = totals[_DROPS].sum(axis=1)
    enqueued = totals["enqueued_packets"]
    return pd.DataFrame(
        {
            "dropped_share": dropped / (enqueued + dropped).where(enqueued + dropped > 0),
            "marked_share": totals["marked_ce_packets"] / enqueued.where(enqueued > 0),
        }
    )


def _training(results: Results) -> pd.DataFrame:
    """Per run of a real job: accuracy after the last step, time and steps to the target accuracy of its job."""
    rows: dict[str, dict[str, float]] = {}
    table = results.own(results.table("training", ("job", "step", "time_s", "accuracy")))
    for job in results.jobs:
        target = target_accuracy(results, job)
        for run_id, run_rows in table[table["job"] == job].groupby("run_id"):
            curve = run_rows.sort_values("step")
            times_s, steps, accuracy = (curve[name].to_numpy(dtype=float) for name in ("time_s", "step", "accuracy"))
            rows[str(run_id)] = {
                "final_accuracy": float(accuracy[-1]),
                "time_to_accuracy_s": time_to(times_s, accuracy, target),
                "steps_to_accuracy": time_to(steps, accuracy, target),
            }
    columns = ["final_accuracy", "time_to_accuracy_s", "steps_to_accuracy"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def time_to(at: npt.NDArray[np.float64], accuracy: npt.NDArray[np.float64], target: float | None) -> float:
    """When (in the unit of `at`) the curve first reaches the target, on the straight line between evaluations; NaN if
    it never does."""
    if target is None or not np.any(accuracy >= target):
        return float("nan")
    first = int(np.argmax(accuracy >= target))
    if first == 0:
        return float(at[0])
    share = (target - accuracy[first - 1]) / (accuracy[first] - accuracy[first - 1])
    return float(at[first - 1] + share * (at[first] - at[first - 1]))
