"""What loss does to training: accuracy, and steps to the target, against what was lost, in bytes and in energy."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from dlcp.model.metrics import METRICS, Metric
from dlcp.report import style
from dlcp.report.comparison import Comparison
from dlcp.report.load import Results, knobs
from dlcp.report.statistics import mean_interval
from dlcp.report.words import unit_of

_AGAINST = ("lost_share", "lost_energy_share")
_LINEAR_UP_TO = 0.1
"""Per cent; beyond, the axis is logarithmic, so that 0, 0.1 % and 80 % are all to be seen."""


def loss_table(comparison: Comparison, job: str) -> pd.DataFrame:
    """One row a label: series (its knob `order` where it has one, else its label), mean lost_share and
    lost_energy_share, and mean, low and high of final_accuracy and steps_to_accuracy over trusted runs."""
    runs = comparison.runs[(comparison.runs["job"] == job) & comparison.runs["trusted"].astype(bool)]
    rows = []
    for label in comparison.results.labels(job):
        mine = runs[runs["label"] == label]
        if mine["final_accuracy"].notna().any():
            row = {"label": label, "series": _series(comparison.results, label), "n": len(mine)}
            row |= {name: float(mine[name].mean()) for name in _AGAINST}
            for name in ("final_accuracy", "steps_to_accuracy"):
                found = mean_interval(mine[name].dropna().to_numpy(dtype=np.float64))
                row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
            rows.append(row)
    measured = [f"{name}{end}" for name in ("final_accuracy", "steps_to_accuracy") for end in ("", "_low", "_high")]
    table = pd.DataFrame(rows, columns=["label", "series", "n", *_AGAINST, *measured])
    return table.astype(dict.fromkeys(measured, float))


def accuracy_against_loss(comparison: Comparison, job: str) -> Figure | None:
    """Final accuracy and, where runs reach the target, steps to it, against the lost share of bytes (left) and of
    energy (right); a line a series, every label a mark. None unless two labels lost different shares."""
    table = loss_table(comparison, job)
    if len(table) < 2 or table["lost_share"].nunique() < 2:
        return None
    figures = [METRICS["final_accuracy"]]
    figures += [METRICS["steps_to_accuracy"]] if table["steps_to_accuracy"].notna().any() else []
    against = [name for name in _AGAINST if table[name].notna().any()]
    series = list(dict.fromkeys(table["series"]))
    styles = style.scheme_styles(comparison.results)
    looks = {one: styles[table[table["series"] == one]["label"].iloc[0]] for one in series}
    with style.applied():
        fig, axes = style.figure(comparison.results.regime(job), 5.2 * len(against) + 1.5, 3.4 * len(figures),
                                 len(figures), len(against), sharex="col", sharey="row")  # fmt: skip
        for row, metric in zip(axes, figures, strict=True):
            for ax, name in zip(row, against, strict=True):
                for one in series:
                    _draw(ax, table[table["series"] == one].sort_values(name), name, metric, looks[one], one)
        for ax, name in zip(axes[-1], against, strict=True):
            ax.set_xlabel(f"{METRICS[name].title} (%)")
            ax.set_xscale("symlog", linthresh=_LINEAR_UP_TO)
            ax.set_xlim(left=0)
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        for row, metric in zip(axes, figures, strict=True):
            row[0].set_ylabel(f"{metric.title} ({unit_of(metric).sign})")
        fig.suptitle(f"{job}: what loss does to training", fontsize=11, fontweight="bold")
        fig.legend(*axes[0][0].get_legend_handles_labels(), loc="outside right upper")
    return fig


def _draw(ax: Axes, mine: pd.DataFrame, name: str, metric: Metric, look: style.SchemeStyle, series: str) -> None:
    mine = mine.dropna(subset=[name, metric.name])
    values = mine[metric.name].to_numpy() * unit_of(metric).factor
    ends = [mine[f"{metric.name}_{end}"].fillna(mine[metric.name]).to_numpy() * unit_of(metric).factor
            for end in ("low", "high")]  # fmt: skip
    ax.errorbar(100 * mine[name], values, [values - ends[0], ends[1] - values], color=look.colour, linestyle=look.line,
                marker=look.marker, capsize=2.5, elinewidth=1.0, markersize=5, label=series)  # fmt: skip


def _series(results: Results, label: str) -> str:
    return str(knobs(results.example(label=label)).get("order", label))
