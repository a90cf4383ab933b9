"""The comparison as frames: what the CSV files hold, one row a fact."""

from __future__ import annotations

import pandas as pd

from dlcp.model.metrics import METRICS
from dlcp.report.analysis import best, changes, fairness
from dlcp.report.analysis.changes import Changes
from dlcp.report.analysis.comparison import Comparison, gain
from dlcp.report.analysis.expectations import Outcome
from dlcp.report.data.background_flows import background
from dlcp.report.data.load import ideal_s_of
from dlcp.report.data.metrics import queue_counts
from dlcp.report.data.self_checks import fidelity, losses, replicas

IDEAL = "ideal transport"


def figures(comparison: Comparison) -> pd.DataFrame:
    """One row a (job, scheme, metric): value, 95 % interval, n, method, reason of a refusal. Seconds, shares 0 to 1."""
    return pd.DataFrame(
        [
            {
                "job": job.job,
                "label": label,
                "metric": name,
                "unit": METRICS[name].unit,
                "value": estimate.value,
                "low": estimate.low,
                "high": estimate.high,
                "n": estimate.n,
                "method": estimate.method,
                "why": estimate.why,
            }
            for job in comparison.jobs
            for (label, name), estimate in job.estimates.items()
        ]
    )


def gains(comparison: Comparison) -> pd.DataFrame:
    """One row a (job, against, metric): ratio or difference of the subject to it, 95 % interval, verdict."""
    return pd.DataFrame(
        [
            {
                "job": job.job,
                "label": gain.subject,
                "against": gain.against,
                "metric": gain.metric.name,
                "compare": gain.metric.compare,
                "value": gain.estimate.value,
                "low": gain.estimate.low,
                "high": gain.estimate.high,
                "n": gain.estimate.n,
                "method": gain.estimate.method,
                "verdict": gain.verdict,
                "repeats": gain.repeats,
                "why": gain.estimate.why,
            }
            for job in comparison.jobs
            for gain in job.gains.values()
        ]
    )


def speedups(comparison: Comparison) -> pd.DataFrame:
    """One row a (job, label): how many times as fast the job is as under the reference (Results.reference), with its
    paired 95 % interval; the ideal transport's row has the label "ideal transport"."""
    results, metric = comparison.results, METRICS["jct_s"]
    rows = []
    for job in comparison.jobs:
        reference = results.reference(job.job)
        runs = comparison.runs[comparison.runs["job"] == job.job]
        base = job.estimates.get((reference, metric.name))
        if base is None or base.value is None:
            continue
        for label in job.labels:
            estimate = gain(results, runs, job.job, reference, label, metric).estimate
            rows.append(
                {
                    "job": job.job,
                    "label": label,
                    "reference": reference,
                    "value": estimate.value,
                    "low": estimate.low,
                    "high": estimate.high,
                    "n": estimate.n,
                    "why": estimate.why,
                }
            )
        ideal_s = ideal_s_of(results, job.job, "jct_s")
        if ideal_s:
            rows.append(
                {
                    "job": job.job,
                    "label": IDEAL,
                    "reference": reference,
                    "value": base.value / ideal_s,
                    "low": None,
                    "high": None,
                    "n": 0,
                    "why": "computed",
                }
            )
    columns = ["job", "label", "reference", "value", "low", "high", "n", "why"]
    return pd.DataFrame(rows, columns=columns).astype({"value": float, "low": float, "high": float})


def all_tables(
    comparison: Comparison, outcomes: tuple[Outcome, ...], changed: Changes | None = None
) -> dict[str, pd.DataFrame]:
    """File name without its ending → frame."""
    changes_tables = (
        {}
        if changed is None
        else {"report-changes": changes.table(changed), "report-differences": changes.differences_table(changed)}
    )
    results = comparison.results
    return changes_tables | {
        "report-runs": comparison.runs,
        "report-figures": figures(comparison),
        "report-gains": gains(comparison),
        "report-best": best.table(comparison),
        "report-speedups": speedups(comparison),
        "report-costs": fairness.costs(results),
        "report-fairness": fairness.sheet_table(results),
        "report-searches": fairness.searches(results),
        "report-losses": losses(results),
        "report-replicas": replicas(results),
        "report-queues": queue_counts(results),
        "report-background": background(results),
        "report-fidelity": fidelity(results),
        "report-expectations": pd.DataFrame([vars(outcome) for outcome in outcomes]),
    }
