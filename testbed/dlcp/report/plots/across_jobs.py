"""Pictures over all jobs of an experiment: speed-ups by model, and times along an axis of which jobs are points."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlcp.model.metrics import METRICS, OVER_IDEAL
from dlcp.report.analysis.best import best_other, others_of
from dlcp.report.analysis.comparison import Comparison
from dlcp.report.analysis.tables import IDEAL
from dlcp.report.analysis.tables import speedups as speedups_table
from dlcp.report.data.formatting import show_number, unit_of
from dlcp.report.plots import style

_ROOM = 0.82
"""Share of the room between two jobs that bars take."""


def speedups(comparison: Comparison) -> Figure | None:
    """Bars by job: how many times as fast as the reference each scheme is, with paired intervals, the ideal transport
    as a dotted line, and above them what the subject adds over the best other scheme. None without completion times."""
    table = speedups_table(comparison)
    bars = table[(table["label"] != IDEAL) & (table["label"] != table["reference"])].dropna(subset=["value"])
    if bars.empty:
        return None
    results, styles = comparison.results, style.scheme_styles(comparison.results)
    jobs = [job for job in results.jobs if job in set(bars["job"])]
    labels = [
        label
        for label in dict.fromkeys(label for job in comparison.jobs for label in job.labels)
        if label in set(bars["label"])
    ]
    width = _ROOM / len(labels)
    with style.applied():
        width_in = float(np.clip(2.5 + 0.22 * len(labels) * len(jobs), 9.0, 15.0))
        fig, [[ax]] = style.figure(results.regime(), width_in, 4.6, 1, 1)
        for place, label in enumerate(labels):
            label_bars = bars[bars["label"] == label].set_index("job").reindex(jobs)
            x = np.arange(len(jobs)) + width * (place - (len(labels) - 1) / 2)
            look = styles[label]
            ax.bar(
                x,
                label_bars["value"],
                width * 0.92,
                color=look.colour,
                edgecolor="white",
                hatch=look.hatch,
                label=label,
            )
            value, low, high = (label_bars[name].to_numpy(dtype=np.float64) for name in ("value", "low", "high"))
            ax.errorbar(
                x,
                value,
                [value - low, high - value],
                fmt="none",
                ecolor=style.INK,
                elinewidth=1.1,
                capsize=min(3.0, 40 * width),
            )
        ax.axhline(1, color=style.INK, linewidth=1)
        for number, job in enumerate(jobs):
            _over_job(ax, comparison, job, number)
        _label_jobs(ax, jobs)
        ax.set_ylim(0, 1.12 * ax.get_ylim()[1])
        ax.set_ylabel(f"times as fast as {results.reference()}")
        ax.set_title(f"{results.experiment}: speed-up of job completion, mean and 95 % interval")
        fig.legend(loc="outside right upper")
    return fig


def _over_job(ax: Axes, comparison: Comparison, job: str, number: int) -> None:
    """The ideal's line across the job's bars, and the additional speed-up above them."""
    table = speedups_table(comparison)
    job_rows = table[table["job"] == job]
    ideal = job_rows[job_rows["label"] == IDEAL]["value"]
    if len(ideal):
        ax.plot([number - 0.48, number + 0.48], [ideal.iloc[0]] * 2, **style.IDEAL, label=IDEAL if number == 0 else "_")
    top = float(job_rows[["value", "high"]].max().max())
    if not others_of(comparison.results, job):
        return
    gain = best_other(comparison, job).estimate
    if gain.value is not None:
        shown = show_number(100 * (gain.value - 1), 0)
        sure = "" if gain.has_interval else " (no interval)"
        ax.annotate(
            f"{'+' if gain.value > 1 else ''}{shown} %{sure}\nover the best other",
            (number, top),
            ha="center",
            va="bottom",
            xytext=(0, 4),
            textcoords="offset points",
            fontsize=7.5,
        )


def axis_of(jobs: Sequence[str]) -> tuple[str, list[float]] | None:
    """The axis that jobs are points of: their names differ in one number only ("workers-2", "workers-16"). Its name and
    the numbers; None when they are no such points."""
    matches = [re.fullmatch(r"(\D*?)[-_ ]?(\d+(?:\.\d+)?)(\D*)", job) for job in jobs]
    parts = [(match[1], float(match[2]), match[3]) for match in matches if match is not None]
    if len(parts) < 2 or len(parts) < len(jobs) or len({(before, after) for before, _, after in parts}) > 1:
        return None
    before, _, after = parts[0]
    return f"{before}{after}".strip("-_ ") or "point", [number for _, number, _ in parts]


def along_axis(comparison: Comparison, metric: str = "jct_s") -> Figure | None:
    """A line a scheme over the axis; times as multiples of the ideal transport's where that is known, else in their
    unit. None when the jobs are not points of an axis, or fewer than two have the metric."""
    over = OVER_IDEAL.get(metric, metric)
    shown = METRICS[over if any(METRICS[over] in job.metrics for job in comparison.jobs) else metric]
    jobs = [job for job in comparison.jobs if shown in job.metrics]
    axis = axis_of([job.job for job in jobs])
    if axis is None:
        return None
    name, at = axis
    order = np.argsort(at)
    results, styles = comparison.results, style.scheme_styles(comparison.results)
    unit = unit_of(
        shown, [estimate.value for job in jobs for key, estimate in job.estimates.items() if key[1] == shown.name]
    )
    with style.applied():
        fig, [[ax]] = style.figure(results.regime(), 9.0, 4.4, 1, 1)
        for label in dict.fromkeys(label for job in jobs for label in job.labels):
            points = [(at[i], jobs[i].estimates[label, shown.name]) for i in order if label in jobs[i].labels]
            points = [(x, estimate) for x, estimate in points if estimate.value is not None]
            if not points:
                continue
            look = styles[label]
            values = np.array([estimate.value for _, estimate in points], dtype=float) * unit.factor
            ends = (
                np.array(
                    [
                        [
                            mean.low if mean.low is not None else mean.value,
                            mean.high if mean.high is not None else mean.value,
                        ]
                        for _, mean in points
                    ],
                    dtype=float,
                ).T
                * unit.factor
            )
            ax.errorbar(
                [x for x, _ in points],
                values,
                np.abs(ends - values),
                color=look.colour,
                linestyle=look.line,
                marker=look.marker,
                capsize=3,
                elinewidth=1.1,
                label=label,
            )
        if shown.unit == "x":
            ax.axhline(1, **style.IDEAL, label=IDEAL)
        if max(at) / max(min(at), 1e-9) >= 8 and min(at) > 0:
            ax.set_xscale("log", base=2)
        ax.set_xticks(at, [f"{x:g}" for x in at])
        ax.minorticks_off()
        ax.set_xlabel(name)
        ax.set_ylabel(f"{shown.title} ({unit.sign})")
        ax.set_ylim(bottom=0)
        ax.set_title(f"{results.experiment}: {shown.title} along {name}, mean and 95 % interval")
        fig.legend(loc="outside right upper")
    return fig


def _label_jobs(ax: Axes, jobs: Sequence[str]) -> None:
    ax.set_xticks(range(len(jobs)), jobs, rotation=20 if len(jobs) > 6 else 0)
    ax.set_xlim(-0.5, len(jobs) - 0.5)
    ax.grid(axis="x", visible=False)
