"""report.html: one file, no external resource, fit for the screen and for paper."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from dlcp.model.metrics import METRICS, Metric
from dlcp.model.sample_size import MIN_BEYOND
from dlcp.report.analysis import fairness
from dlcp.report.analysis.best import BestOther, best_others
from dlcp.report.analysis.changes import Changes
from dlcp.report.analysis.comparison import Comparison, JobComparison
from dlcp.report.analysis.expectations import Outcome
from dlcp.report.analysis.headline import job_sentences
from dlcp.report.analysis.monitors import fidelity_rows, left_out_rows, unwatched_rows
from dlcp.report.analysis.remarks import remarks
from dlcp.report.analysis.repeats import unranked
from dlcp.report.analysis.settings import differing_qos, fault_lines, provenance_rows, regime_rows
from dlcp.report.data import statistics
from dlcp.report.data.background_flows import background
from dlcp.report.data.formatting import Unit, show_estimate, show_gain, unit_of
from dlcp.report.data.self_checks import losses, replicas
from dlcp.report.plots import across_jobs, fabric, job_comparison, loss, parts, style
from dlcp.report.plots.backlog import backlog
from dlcp.report.plots.by_job import by_job

PX_AN_INCH = 105
"""Pixels for each inch of a picture on a wide screen: text of all pictures has one size."""
_GROUPS = {
    "times": ("jct_", "iteration_", "exposed_"),
    "messages": ("message_",),
    "messages by leg": ("push_", "pull_"),
    "training": ("final_", "time_to_", "steps_to_"),
    "losses, drops and marks": ("lost_", "gradient_", "resent_", "dropped_", "marked_"),
}
"""Table → what the names of its metrics begin with."""


def page(
    comparison: Comparison, outcomes: tuple[Outcome, ...], problems: tuple[str, ...], changed: Changes | None = None
) -> str:
    """The whole page as text. outcomes: of the expectations. problems: what must not happen, in words."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    results = comparison.results
    html = environment.get_template("page.html.j2").render(
        experiment=results.experiment,
        headline={job.job: job_sentences(comparison, job) for job in comparison.jobs},
        outcomes=outcomes,
        best=[best for best in best_others(comparison) if best.metric.name == "jct_s" or _is_subject(comparison, best)],
        across=_across(comparison),
        problems=problems,
        degraded=results.degraded,
        unwatched=unwatched_rows(results),
        colours={label: look.colour for label, look in style.scheme_styles(results).items()},
        regime=regime_rows(results),
        faults=fault_lines(results),
        jobs=[_job(comparison, job) for job in comparison.jobs],
        unranked=unranked(comparison),
        losses=losses(results).to_dict("records"),
        replicas={(row["job"], row["label"]): row for row in replicas(results).to_dict("records")},
        background=background(results).to_dict("records"),
        topology=_image(fabric.topology(results), "The emulated topology"),
        labels=results.labels(),
        fairness=fairness.sheet(results),
        searches=fairness.searches(results).to_dict("records"),
        cost_titles=list(fairness.COSTS.values()),
        costs=_cost_rows(fairness.costs(results)),
        changed=changed,
        here=str(results.directory),
        there="" if changed is None else str(changed.theirs.results.directory),
        change_rows=[] if changed is None else _change_rows(changed),
        qos=differing_qos(results),
        fidelity=fidelity_rows(results),
        left_out=left_out_rows(results),
        runs=len(results.runs),
        trusted=sum(run.trusted for run in results.runs),
        provenance=provenance_rows(results),
        statistics=statistics,
        min_beyond=MIN_BEYOND,
        metrics=[metric for metric in METRICS.values() if any(metric in job.metrics for job in comparison.jobs)],
    )
    return _with_contents(html)


def _with_contents(html: str) -> str:
    """A number as the address of every section, and a table of contents of them all."""
    titles: list[str] = []

    def addressed(found: re.Match[str]) -> str:
        titles.append(found[1])
        return f'<h2 id="s{len(titles)}">{found[1]}</h2>'

    html = re.sub(r"<h2>(.*?)</h2>", addressed, html)
    entries = "".join(f'<li><a href="#s{number}">{title}</a></li>' for number, title in enumerate(titles, 1))
    return html.replace("<!--contents-->", f"<nav><strong>Contents</strong><ol>{entries}</ol></nav>", 1)


def _is_subject(comparison: Comparison, one: BestOther) -> bool:
    job = comparison.job(one.job)
    return job is not None and job.subject == one.subject


def _across(comparison: Comparison) -> list[tuple[dict[str, str] | None, str]]:
    """The pictures over all jobs."""
    pictures = [
        (
            across_jobs.speedups(comparison),
            f"Job completion under {comparison.results.reference()} over that under "
            "each scheme, paired over repeats of the same seed. Dotted: an ideal transport, line rate, all overlapped.",
        ),
        (
            across_jobs.along_axis(comparison) or _by_job(comparison),
            "Job completion over that of an ideal transport, which is the dotted line at 1.",
        ),
    ]
    return [(_image(figure, caption), caption) for figure, caption in pictures if figure is not None]


def _by_job(comparison: Comparison) -> Figure | None:
    return by_job(comparison, METRICS["jct_s"]) if len(comparison.jobs) > 1 else None


def _job(comparison: Comparison, job: JobComparison) -> dict[str, Any]:
    """Values of one job for the template: the tables' rows, the refusals, the pictures."""
    groups, notes = _groups(job)
    results = comparison.results
    suspect = sum(counts.get("suspect", 0) for counts in job.counts.values())
    left_out = f" Suspect, and so left out: {suspect} of the runs." if suspect else ""
    pictures = [
        (
            job_comparison.gains(comparison, job.job),
            f"Change of every time with {job.subject}, paired over repeats of the same "
            "seed; tails that too few single runs carry, over all samples. Hollow: too few pairs for an interval.",
        ),
        (
            job_comparison.times(comparison, job.job),
            "Every repeat is a mark, thin lines join the same seed; next to them mean "
            "and 95 % interval. The dotted line is an ideal transport: line rate, perfectly overlapped.",
        ),
        (
            parts.waterfall(comparison, job.job),
            "Job completion with each part of DLCP alone and without each, paired over repeats of the same seed.",
        ),
        (
            job_comparison.message_cdf(comparison, job.job),
            "Message completion by leg. Above the share of messages that are "
            "done, below the share that is not: a flat stretch to the right is a tail. Marks: p99 and p99.9, "
            "where the samples carry them.",
        ),
        (
            job_comparison.accuracy(comparison, job.job),
            "Test accuracy in the course of training: mean of the repeats and its "
            "95 % band; thin lines are the repeats.",
        ),
        (
            loss.accuracy_against_loss(comparison, job.job),
            "Final test accuracy, and steps to the target, against "
            "what was lost on the way to the servers: bytes, and energy (the sum of squares).",
        ),
        (
            fabric.queues(results, job.job, job.labels),
            f"What switches dropped{_marked(job)}, all ports "
            "together, by queue and drop precedence, background traffic included.",
        ),
        (
            backlog(results, job.job, job.labels),
            "What waited at the ports with the longest queues, all queues of a "
            "port together, in one repeat of each scheme.",
        ),
    ]
    return {
        "name": job.job,
        "labels": job.labels,
        "subject": job.subject,
        "groups": groups,
        "notes": notes,
        "counts": job.counts,
        "remarks": remarks(results, job),
        "pictures": [
            (_image(figure, caption + left_out), caption + left_out)
            for figure, caption in pictures
            if figure is not None
        ],
    }


def _marked(job: JobComparison) -> str:
    """How the caption about drops goes on."""
    estimates = [estimate for (_, name), estimate in job.estimates.items() if name == "marked_share"]
    return " and marked" if any(estimate.value for estimate in estimates) else " (marked: none)"


def _groups(job: JobComparison) -> tuple[list[dict[str, Any]], list[str]]:
    """A table a group of metrics: a row a scheme, a cell a metric, in it the figure and what the subject changes. A
    refused cell carries the number of its note."""
    notes: dict[str, int] = {}
    groups: list[dict[str, Any]] = []
    for title, prefixes in _GROUPS.items():
        metrics = [metric for metric in job.metrics if metric.name.startswith(prefixes)]
        if not metrics:
            continue
        units = {
            metric.name: unit_of(metric, [job.estimates[label, metric.name].value for label in job.labels])
            for metric in metrics
        }
        columns = [
            {"title": f"{metric.title} ({units[metric.name].sign})", "about": metric.description} for metric in metrics
        ]
        rows = [
            {"label": label, "cells": [_cell(job, label, metric, units[metric.name], notes) for metric in metrics]}
            for label in job.labels
        ]
        groups.append({"title": title, "columns": columns, "rows": rows, "first": not groups})
    return groups, list(notes)


def _cell(job: JobComparison, label: str, metric: Metric, unit: Unit, notes: dict[str, int]) -> dict[str, Any]:
    estimate = job.estimates[label, metric.name]
    gain = job.gains.get((label, metric.name))
    why = estimate.why or (gain.estimate.why if gain is not None else "")
    shown = (
        gain is not None and gain.estimate.has_interval and metric.unit != "x"
    )  # that is the gain of the time itself
    return {
        "text": show_estimate(estimate, metric, unit, with_unit=False),
        "note": notes.setdefault(why, len(notes) + 1) if why else 0,
        "gain": show_gain(gain) if gain is not None and shown else "",
        "verdict": gain.verdict if gain else "n/a",
    }


def _cost_rows(costs: pd.DataFrame) -> list[dict[str, Any]]:
    """A row a (job, label): a text a cost."""
    return [
        {"job": job, "label": label, "texts": [_cost(row) for row in rows.to_dict("records")]}
        for (job, label), rows in costs.groupby(["job", "label"], sort=False)
    ]


def _cost(row: dict[Any, Any]) -> str:
    if row["value"] is None or row["value"] != row["value"]:
        return fairness.NOT_THERE
    if row["low"] is None or row["low"] != row["low"]:
        return f"{row['value']:.4g}"
    return f"{row['value']:.4g} ± {row['high'] - row['value']:.2g}"


def _change_rows(changed: Changes) -> list[dict[str, str]]:
    return [
        {
            "job": change.job,
            "label": change.label,
            "title": change.metric.title,
            "verdict": change.verdict,
            "words": change.words,
            "here": show_estimate(change.ours, change.metric),
            "there": show_estimate(change.theirs, change.metric),
        }
        for change in changed.rows
    ]


def _image(figure: Figure | None, about: str) -> dict[str, str] | None:
    """A picture as a data address: SVG, so that it is sharp on paper; no background, so that it fits a dark page."""
    if figure is None:
        return None
    buffer = io.BytesIO()
    with style.applied():  # its salt makes the same picture the same bytes
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    source = "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()
    return {"source": source, "about": about, "width": f"{figure.get_figwidth() * PX_AN_INCH:.0f}px"}
