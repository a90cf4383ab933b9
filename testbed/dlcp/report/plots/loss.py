"""Effect of loss on training: accuracy, and steps to the target, against the loss in bytes and in energy."""

from __future__ import annotations

import re

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from dlcp.model.metrics import METRICS, Metric
from dlcp.report.analysis.comparison import Comparison
from dlcp.report.data.formatting import unit_of
from dlcp.report.plots import style

_AGAINST = ("lost_share", "lost_energy")
_ENERGY = ("gradient_energy_lost", "lost_energy_share")
"""Metrics that give lost energy: of whole gradients where all of their values were known, else as messages tell it,
whose mean hardly sees a small layer with large gradients."""
_SHOWN = ("final_accuracy", "steps_to_accuracy")
_LINEAR_UP_TO = 0.1
"""Per cent; beyond, the axis is logarithmic, so that 0, 0.1 % and 80 % are all to be seen."""


def loss_table(comparison: Comparison, job: str) -> pd.DataFrame:
    """One row a label that trains: series (its label without its last percentage), means of lost_share and lost_energy
    (of the first of _ENERGY that the job's runs have), and mean, low and high of final_accuracy and steps_to_accuracy;
    no steps where a run never reached the target."""
    compared = comparison.job(job)
    estimates = compared.estimates if compared is not None else {}
    energy = _energy(comparison, job)
    rows = []
    for label in comparison.results.labels(job):
        found = {name: one for (of, name), one in estimates.items() if of == label}
        accuracy = found.get("final_accuracy")
        if accuracy is None or accuracy.value is None:
            continue
        row: dict[str, object] = {"label": label, "n": accuracy.n}
        row["series"] = re.sub(r"\s*[\d.]+\s*%$", "", label)
        for name, metric in zip(_AGAINST, ("lost_share", energy), strict=True):
            row[name] = found[metric].value if metric in found else None
        for name in _SHOWN:
            one = found.get(name)
            row |= {name: one and one.value, f"{name}_low": one and one.low, f"{name}_high": one and one.high}
        rows.append(row)
    measured = [*_AGAINST, *(f"{name}{end}" for name in _SHOWN for end in ("", "_low", "_high"))]
    table = pd.DataFrame(rows, columns=["label", "series", "n", *measured])
    return table.astype(dict.fromkeys(measured, float))


def _energy(comparison: Comparison, job: str) -> str:
    compared = comparison.job(job)
    known = {metric.name for metric in compared.metrics} if compared is not None else set()
    return next((name for name in _ENERGY if name in known), _ENERGY[-1])


def accuracy_against_loss(comparison: Comparison, job: str) -> Figure | None:
    """Final accuracy and, where runs reach the target, steps to it, against the lost share of bytes (left) and of
    energy (right); a line a series, every label a mark, but for steps where a run never got there. None unless two
    labels lost different shares."""
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
        fig, axes = style.figure(
            comparison.results.regime(job),
            5.2 * len(against) + 1.5,
            3.4 * len(figures),
            len(figures),
            len(against),
            sharex="col",
            sharey="row",
        )
        for row, metric in zip(axes, figures, strict=True):
            for ax, name in zip(row, against, strict=True):
                for one in series:
                    _draw(ax, table[table["series"] == one].sort_values(name), name, metric, looks[one], one)
        titles = {"lost_share": METRICS["lost_share"].title, "lost_energy": METRICS[_energy(comparison, job)].title}
        for ax, name in zip(axes[-1], against, strict=True):
            ax.set_xlabel(f"{titles[name]} (%)")
            ax.set_xscale("symlog", linthresh=_LINEAR_UP_TO)
            ax.set_xlim(left=0)
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        for row, metric in zip(axes, figures, strict=True):
            row[0].set_ylabel(f"{metric.title} ({unit_of(metric).sign})")
            missing = table[table[metric.name].isna()]["label"]
            if len(missing):
                note = f"not here, as a run never reached the target: {', '.join(missing)}"
                row[0].set_title(note, fontsize=7.5, loc="left")
        fig.suptitle(f"{job}: what loss does to training", fontsize=11, fontweight="bold")
        fig.legend(*axes[0][0].get_legend_handles_labels(), loc="outside right upper")
    return fig


def _draw(ax: Axes, mine: pd.DataFrame, name: str, metric: Metric, look: style.SchemeStyle, series: str) -> None:
    mine = mine.dropna(subset=[name, metric.name])
    values = mine[metric.name].to_numpy() * unit_of(metric).factor
    ends = [
        mine[f"{metric.name}_{end}"].fillna(mine[metric.name]).to_numpy() * unit_of(metric).factor
        for end in ("low", "high")
    ]
    ax.errorbar(
        100 * mine[name],
        values,
        [values - ends[0], ends[1] - values],
        color=look.colour,
        linestyle=look.line,
        marker=look.marker,
        capsize=2.5,
        elinewidth=1.0,
        markersize=5,
        label=series,
    )
