"""The comparison as frames: what the CSV files hold, one row a fact."""

from __future__ import annotations

import pandas as pd

from dlcp.model.metrics import METRICS
from dlcp.report.background import background
from dlcp.report.checks import fidelity, losses, replicas
from dlcp.report.comparison import Comparison
from dlcp.report.expectations import Outcome
from dlcp.report.fabric_plots import queue_counts


def figures(comparison: Comparison) -> pd.DataFrame:
    """One row a (job, scheme, metric): value, 95 % interval, n, method, reason of a refusal. Seconds, shares 0 to 1."""
    return pd.DataFrame([
        {"job": job.job, "label": label, "metric": name, "unit": METRICS[name].unit, "value": one.value,
         "low": one.low, "high": one.high, "n": one.n, "method": one.method, "why": one.why}
        for job in comparison.jobs
        for (label, name), one in job.estimates.items()
    ])  # fmt: skip


def gains(comparison: Comparison) -> pd.DataFrame:
    """One row a (job, against, metric): ratio or difference of the subject to it, 95 % interval, verdict."""
    return pd.DataFrame([
        {"job": job.job, "label": gain.subject, "against": gain.against, "metric": gain.metric.name,
         "compare": gain.metric.compare, "value": gain.estimate.value, "low": gain.estimate.low,
         "high": gain.estimate.high, "n": gain.estimate.n, "method": gain.estimate.method,
         "verdict": gain.verdict, "why": gain.estimate.why}
        for job in comparison.jobs
        for gain in job.gains.values()
    ])  # fmt: skip


def all_tables(comparison: Comparison, outcomes: tuple[Outcome, ...]) -> dict[str, pd.DataFrame]:
    """File name without its ending → frame."""
    results = comparison.results
    return {
        "report-runs": comparison.runs,
        "report-figures": figures(comparison),
        "report-gains": gains(comparison),
        "report-losses": losses(results),
        "report-replicas": replicas(results),
        "report-queues": queue_counts(results),
        "report-background": background(results),
        "report-fidelity": fidelity(results),
        "report-expectations": pd.DataFrame([vars(outcome) for outcome in outcomes]),
    }
