"""Schemes against each other, job by job: every figure with its interval, every gain with its paired one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from dlcp.model.metrics import METRICS, Metric
from dlcp.report.data.load import Results
from dlcp.report.data.metrics import run_metrics, samples, target_accuracy
from dlcp.report.data.statistics import (
    CONFIDENCE,
    MIN_REPEATS,
    Estimate,
    Gain,
    mean_interval,
    paired_difference,
    paired_ratio,
    quantile_interval,
    quantile_ratio_interval,
    repeats_to_rank,
)

SEED = 20_200
"""Seed of every bootstrap, so that a report of the same results is the same report."""


@dataclass(frozen=True)
class JobComparison:
    """One job: labels in the order of display (the subject last) and what each has.

    estimates: (label, metric name) → figure. gains: (against, metric name) → gain of `subject`.
    counts: label → status → runs. target_accuracy: of time_to_accuracy_s, None for a job without training.
    """

    job: str
    labels: tuple[str, ...]
    subject: str
    metrics: tuple[Metric, ...]
    estimates: Mapping[tuple[str, str], Estimate]
    gains: Mapping[tuple[str, str], Gain]
    counts: Mapping[str, Mapping[str, int]]
    target_accuracy: float | None


@dataclass(frozen=True)
class Comparison:
    """All jobs, and the figures of every run that they were made from (run_metrics)."""

    results: Results
    runs: pd.DataFrame
    jobs: tuple[JobComparison, ...]

    def job(self, name: str) -> JobComparison | None:
        """A job's comparison, None if the results hold no run of it."""
        return next((job for job in self.jobs if job.job == name), None)


def compare(results: Results, subject: str | None = None) -> Comparison:
    """Figures, intervals and gains of all jobs. subject: the label whose gains are wanted; default: DLCP's."""
    runs = run_metrics(results)
    return Comparison(results, runs, tuple(_compare_job(results, runs, job, subject) for job in results.jobs))


def _compare_job(results: Results, runs: pd.DataFrame, job: str, subject: str | None) -> JobComparison:
    labels = results.labels(job)
    ours = subject if subject in labels else results.subject(job)
    labels = (*(label for label in labels if label != ours), ours)
    job_runs = runs[runs["job"] == job]
    metrics = tuple(metric for metric in METRICS.values() if _present(results, job_runs, job, labels, metric))
    estimates = {
        (label, metric.name): estimate(results, job_runs, job, label, metric) for label in labels for metric in metrics
    }
    gains = {
        (against, metric.name): gain(results, job_runs, job, ours, against, metric)
        for against in labels[:-1]
        for metric in metrics
    }
    counts = {label: Counter(job_runs[job_runs["label"] == label]["status"].astype(str)) for label in labels}
    return JobComparison(job, labels, ours, metrics, estimates, gains, counts, target_accuracy(results, job))


def _present(results: Results, runs: pd.DataFrame, job: str, labels: tuple[str, ...], metric: Metric) -> bool:
    if metric.tail:
        return any(len(samples(results, job, label, metric).values) for label in labels)
    return bool(runs[metric.name].notna().any())


def estimate(results: Results, runs: pd.DataFrame, job: str, label: str, metric: Metric) -> Estimate:
    """A scheme's figure: a bootstrapped quantile of the pooled samples for tails, a t-interval for the rest; refused
    where the metric is a goal that a run never reached."""
    if why := never_reached(runs, metric, label):
        return Estimate(None, None, None, len(trusted_values(runs, label, metric)), "t", why)
    if metric.tail and metric.quantile is not None:
        pooled = samples(results, job, label, metric)
        return quantile_interval(pooled.values, pooled.blocks, metric.quantile, seed=SEED)
    return mean_interval(np.array(list(trusted_values(runs, label, metric).values())))


def gain(
    results: Results,
    runs: pd.DataFrame,
    job: str,
    subject: str,
    against: str,
    metric: Metric,
    confidence: float = CONFIDENCE,
    fewest: int = MIN_REPEATS,
) -> Gain:
    """Subject against another scheme, over pairs of trusted runs with the same repeat and seed. fewest: pairs that a
    t-interval takes.

    A tail that too few single runs carry is compared through the pooled samples instead. A goal is not compared while
    a run of one of the two never reached it.
    """
    ours, theirs = paired(trusted_values(runs, subject, metric), trusted_values(runs, against, metric))
    if why := never_reached(runs, metric, subject, against):
        return Gain(metric, subject, against, Estimate(None, None, None, len(ours), "refused", why), "n/a")
    if metric.tail and metric.quantile is not None and len(ours) < min(MIN_REPEATS, _pairs(runs, subject, against)):
        pooled = [samples(results, job, label, metric) for label in (subject, against)]
        found = quantile_ratio_interval(
            (pooled[0].values, pooled[0].blocks),
            (pooled[1].values, pooled[1].blocks),
            metric.quantile,
            seed=SEED,
            confidence=confidence,
        )
        return Gain(metric, subject, against, found, verdict_of(found, metric))
    ratio = metric.compare == "ratio"
    found = (paired_ratio if ratio else paired_difference)(ours, theirs, confidence, fewest)
    repeats = repeats_to_rank(np.log(ours / theirs) if ratio else ours - theirs)
    return Gain(metric, subject, against, found, verdict_of(found, metric), repeats)


def _pairs(runs: pd.DataFrame, *labels: str) -> int:
    """How many (repeat, seed) have a trusted run of every label."""
    trusted = runs[runs["trusted"].astype(bool)]
    found = [
        set(zip(mine["repeat"], mine["seed"], strict=True))
        for mine in (trusted[trusted["label"] == label] for label in labels)
    ]
    return len(set.intersection(*found))


def never_reached(runs: pd.DataFrame, metric: Metric, *labels: str) -> str:
    """How many of the trusted runs of a job trained, but never got to what the metric is the way to, in words; empty
    where all did, and for a metric that is no goal."""
    sentences = []
    for label in labels if metric.goal else ():
        label_runs = runs[(runs["label"] == label) & runs["trusted"].astype(bool) & runs["final_accuracy"].notna()]
        never = int(label_runs["steps_to_accuracy"].isna().sum())
        if never:
            sentences.append(f"{never} of {len(label_runs)} runs of {label} never reach the target")
    return "; ".join(sentences)


def trusted_values(runs: pd.DataFrame, label: str, metric: Metric) -> dict[tuple[int, int], float]:
    """A job's trusted runs' values by (repeat, seed)."""
    chosen = (runs["label"] == label).to_numpy() & runs["trusted"].to_numpy(dtype=bool)
    repeats, seeds, values = (runs[name].to_numpy()[chosen] for name in ("repeat", "seed", metric.name))
    return {
        (repeat, seed): float(value)
        for repeat, seed, value in zip(repeats, seeds, values, strict=True)
        if not pd.isna(value)
    }


def paired(
    ours: Mapping[tuple[int, int], float], theirs: Mapping[tuple[int, int], float]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Both sides' values of the (repeat, seed) that both have, in the order of the first."""
    both = [key for key in ours if key in theirs]
    return np.array([ours[key] for key in both]), np.array([theirs[key] for key in both])


def verdict_of(found: Estimate, metric: Metric) -> str:
    """ "better", "worse", "no clear difference", "n/a" or "not judged": what an estimate says of the metric."""
    if found.low is None or found.high is None:
        return "n/a"
    neutral = 1.0 if metric.compare == "ratio" else 0.0
    if found.low <= neutral <= found.high:
        return "no clear difference"
    if not metric.judged:
        return "not judged"
    return "better" if (found.high < neutral) == (metric.better == "lower") else "worse"
