"""report.html: one file, no external resource, fit for the screen and for paper."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from dlcp.model.metrics import METRICS
from dlcp.model.samples import MIN_BEYOND
from dlcp.report import fabric_plots, plots, statistics, style
from dlcp.report.background import background
from dlcp.report.backlog_plot import backlog
from dlcp.report.changes import Changes
from dlcp.report.checks import losses, replicas
from dlcp.report.comparison import Comparison, JobComparison
from dlcp.report.expectations import Outcome
from dlcp.report.headline import job_sentences
from dlcp.report.monitors import fidelity_rows, left_out_rows, unwatched_rows
from dlcp.report.remarks import compressed_remark, slow_messages_remark
from dlcp.report.settings import differing_qos, fault_lines, knob_rows, provenance_rows, regime_rows
from dlcp.report.words import show_estimate, show_gain, unit_of


def page(comparison: Comparison, outcomes: tuple[Outcome, ...], problems: tuple[str, ...],
         changed: Changes | None = None) -> str:  # fmt: skip
    """The whole page as text. outcomes: of the expectations. problems: what must not happen, in words."""
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True,
                              undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)  # fmt: skip
    results = comparison.results
    return environment.get_template("page.html.j2").render(
        experiment=results.experiment,
        headline={job.job: job_sentences(comparison, job) for job in comparison.jobs},
        outcomes=outcomes,
        problems=problems,
        degraded=results.degraded,
        unwatched=unwatched_rows(results),
        colours={label: look.colour for label, look in style.scheme_styles(results).items()},
        regime=regime_rows(results),
        faults=fault_lines(results),
        jobs=[_job(comparison, job) for job in comparison.jobs],
        losses=losses(results).to_dict("records"),
        replicas={(row["job"], row["label"]): row for row in replicas(results).to_dict("records")},
        background=background(results).to_dict("records"),
        topology=_image(fabric_plots.topology(results), "The emulated topology"),
        labels=results.labels(),
        knobs=knob_rows(results),
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


def _job(comparison: Comparison, job: JobComparison) -> dict[str, Any]:
    """What the template shows of one job: the table's rows, the refusals, the pictures."""
    rows, notes = _rows(job)
    results = comparison.results
    pictures = [
        (plots.gains(comparison, job.job), f"Change of every time with {job.subject}, paired over repeats of the same "
         "seed; tails that too few single runs carry, over all samples. Hollow: too few pairs for an interval."),
        (plots.times(comparison, job.job), "Every repeat is a mark, thin lines join the same seed; beside them mean "
         "and 95 % interval. The dotted line is an ideal transport: line rate, perfectly overlapped."),
        (plots.message_cdf(comparison, job.job), "Message completion by leg. Above the share of messages that are "
         "done, below the share that is not: a flat stretch to the right is a tail. Marks: p99 and p99.9, "
         "where the samples carry them."),
        (plots.accuracy(comparison, job.job), "Test accuracy against training time: mean of the repeats and its 95 % "
         "band; thin lines are the repeats."),
        (fabric_plots.queues(results, job.job, job.labels), f"What switches dropped{_marked(job)}, all ports "
         "together, by queue and drop precedence, background traffic included."),
        (backlog(results, job.job, job.labels), "What waited at the ports with the longest queues, all queues of a "
         "port together, in one repeat of each scheme."),
    ]  # fmt: skip
    return {
        "name": job.job, "labels": job.labels, "subject": job.subject, "rows": rows, "notes": notes,
        "counts": job.counts,
        "remarks": list(filter(None, (slow_messages_remark(job), compressed_remark(results, job.job)))),
        "pictures": [(_image(figure, caption), caption) for figure, caption in pictures if figure is not None],
    }  # fmt: skip


def _marked(job: JobComparison) -> str:
    """How the caption about drops goes on."""
    estimates = [one for (_, name), one in job.estimates.items() if name == "marked_share"]
    return " and marked" if any(one.value for one in estimates) else " (marked: none)"


def _rows(job: JobComparison) -> tuple[list[dict[str, Any]], list[str]]:
    """A row a metric: a cell a scheme, a cell a gain. A refused cell carries the number of its note."""
    notes: dict[str, int] = {}
    rows = []
    for metric in job.metrics:
        unit = unit_of(metric, [job.estimates[label, metric.name].value for label in job.labels])
        cells = []
        for label in job.labels:
            one = job.estimates[label, metric.name]
            note = notes.setdefault(one.why, len(notes) + 1) if one.why else 0
            cells.append({"text": show_estimate(one, metric, unit, with_unit=False), "note": note})
        gains = []
        for against in job.labels[:-1]:
            gain = job.gains[against, metric.name]
            if metric.unit == "x":  # the same as that of the time itself
                gains.append({"text": "", "verdict": "n/a", "note": 0})
                continue
            why = gain.estimate.why
            note = notes.setdefault(why, len(notes) + 1) if why else 0
            gains.append({"text": "n/a" if why else show_gain(gain), "verdict": gain.verdict, "note": note})
        rows.append({"title": f"{metric.title} ({unit.sign})", "about": metric.description, "cells": cells,
                     "gains": gains})  # fmt: skip
    return rows, list(notes)


def _image(figure: Figure | None, about: str) -> dict[str, str] | None:
    """A picture as a data address: SVG, so that it is sharp on paper."""
    if figure is None:
        return None
    buffer = io.BytesIO()
    with style.applied():  # its salt makes the same picture the same bytes
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return {"source": "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode(), "about": about}
