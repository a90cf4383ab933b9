"""One metric over all jobs of an experiment and all schemes: for jobs that are models, loads, or points of an axis."""

from __future__ import annotations

from matplotlib.figure import Figure

from dlcp.model.metrics import METRICS, OVER_IDEAL, Metric
from dlcp.report.analysis.comparison import Comparison
from dlcp.report.data.formatting import unit_of
from dlcp.report.plots import style

_SPREAD = 0.8
"""Share of the room between two jobs that the schemes' marks take."""


def by_job(comparison: Comparison, metric: Metric) -> Figure | None:
    """Mean (or pooled quantile) and 95 % interval of every scheme in every job; None if no run that counts has it.

    A time that an ideal transport has too is drawn as a multiple of it, with the ideal line at 1.
    """
    over = METRICS.get(OVER_IDEAL.get(metric.name, ""))
    shown = over if over is not None and any(over in job.metrics for job in comparison.jobs) else metric
    jobs = [job for job in comparison.jobs if shown in job.metrics]
    if not jobs:
        return None
    styles = style.scheme_styles(comparison.results)
    labels = list(dict.fromkeys(label for job in jobs for label in job.labels))
    values = [job.estimates[label, shown.name].value for job in jobs for label in job.labels]
    if all(value is None for value in values):
        return None
    unit = unit_of(shown, values)
    with style.applied():
        width_in = min(14.0, max(9.0, 1.2 + 0.16 * len(labels) * len(jobs)))
        fig, [[ax]] = style.figure(comparison.results.regime(), width_in, 4.2, 1, 1)
        for place, label in enumerate(labels):
            offset = _SPREAD * ((place + 0.5) / len(labels) - 0.5)
            for x, job in enumerate(jobs):
                estimate = job.estimates.get((label, shown.name))
                if estimate is None or estimate.value is None:
                    continue
                low, high = (estimate.value if end is None else end for end in (estimate.low, estimate.high))
                look, value = styles[label], estimate.value * unit.factor
                ax.errorbar(
                    x + offset,
                    value,
                    yerr=[[value - low * unit.factor], [high * unit.factor - value]],
                    fmt=look.marker,
                    color=look.colour,
                    markersize=5,
                    capsize=2,
                    elinewidth=1.3,
                    markerfacecolor=look.colour if estimate.has_interval else "none",
                    label=label if x == 0 else "_",
                )
        if shown is over:
            ax.axhline(1, **style.IDEAL)
        ax.set_xticks(range(len(jobs)), [job.job for job in jobs], rotation=20 if len(jobs) > 5 else 0)
        ax.set_xlim(-0.5, len(jobs) - 0.5)
        ax.grid(axis="x", visible=False)
        ax.set_ylabel(f"{shown.title} ({unit.sign})")
        suspect = sum(not run.trusted for run in comparison.results.runs)
        left_out = f"; {suspect} runs that do not count are left out" if suspect else ""
        ax.set_title(f"{comparison.results.experiment}: {shown.title}, mean and 95 % interval{left_out}")
        fig.legend(loc="outside right upper")
    return fig
