"""The pictures of a comparison. Each returns a matplotlib Figure; none touches pyplot's global state."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

from dlcp.model.metrics import IDEAL_OF, METRICS, REACHABLE_OF, Metric
from dlcp.model.sample_size import MIN_BEYOND
from dlcp.report.analysis.comparison import Comparison, JobComparison
from dlcp.report.data.formatting import unit_of
from dlcp.report.data.load import ideal_s_of, ideals_s_of
from dlcp.report.data.metrics import Samples, samples
from dlcp.report.data.statistics import Estimate, mean_interval, quantile, quantiles, refuse_quantile
from dlcp.report.plots import style

Floats = npt.NDArray[np.float64]

FEW = 5
"""Schemes; of more, names are slanted and legends stand in several lines or next to the axes."""
_LEGS = {"push": "push: worker → server", "pull": "pull: server → worker"}


def gains(comparison: Comparison, job: str) -> Figure | None:
    """Plot the gain or loss of the subject in every time, against every other scheme, with paired intervals; None if no
    pair of trusted runs has any."""
    table = _job(comparison, job)
    others = table.labels[:-1]
    metrics = [
        metric
        for metric in table.metrics
        if metric.unit == "s"
        and any(table.gains[against, metric.name].estimate.value is not None for against in others)
    ]
    if len(others) > FEW:
        metrics = [metric for metric in metrics if not metric.name.startswith(("push_", "pull_"))]
    if not metrics:
        return None
    styles = style.scheme_styles(comparison.results)
    apart = min(0.22, 0.8 / len(others))
    with style.applied():
        height_in = 1.6 + max(0.36, 0.13 * len(others)) * len(metrics)
        fig, [[ax]] = style.figure(comparison.results.regime(job), 9.0, height_in, 1, 1)
        for row, metric in enumerate(metrics):
            for place, against in enumerate(others):
                y = row + apart * (place - (len(others) - 1) / 2)
                _draw_gain(ax, y, table.gains[against, metric.name].estimate, styles[against])
        ax.axvline(0, color=style.INK, linewidth=1)
        ax.set_yticks(range(len(metrics)), [metric.title for metric in metrics])
        ax.set_ylim(len(metrics) - 0.4, -0.6)
        ax.xaxis.set_major_formatter(
            FuncFormatter(lambda value, _: f"{value:+.0f} %".replace("-", "−") if value else "0")
        )
        ax.set_xlabel(f"change of time with {table.subject}, 95 % interval   (left of 0: {table.subject} is faster)")
        ax.set_title(f"{job}: {table.subject} against the others")
        fig.legend(
            handles=[_key(f"against {against}", styles[against], line=False) for against in others],
            loc="outside upper right",
            ncols=min(FEW, len(others)),
        )
    return fig


def _draw_gain(ax: Axes, y: float, estimate: Estimate, look: style.SchemeStyle) -> None:
    """A dot on its interval; a hollow dot alone where there are too few pairs for an interval."""
    if estimate.value is None:
        return
    value = 100 * (estimate.value - 1)
    if estimate.low is None or estimate.high is None:
        ax.plot([value], [y], look.marker, color="none", markersize=6, markeredgecolor=look.colour)
        return
    ends = [100 * (estimate.low - 1), 100 * (estimate.high - 1)]
    ax.plot(ends, [y, y], color=look.colour, linewidth=2.2, solid_capstyle="butt")
    ax.plot([value], [y], look.marker, color=look.colour, markersize=6, markeredgecolor="white", markeredgewidth=0.6)


def times(comparison: Comparison, job: str) -> Figure | None:
    """Job completion, iteration and exposed communication: every repeat a dot, mean and 95 % interval next to it; None
    if no run has any."""
    compared = _job(comparison, job)
    shown = [
        METRICS[name] for name in ("jct_s", "iteration_p50_s", "exposed_comm_s") if METRICS[name] in compared.metrics
    ]
    if not shown:
        return None
    with style.applied():
        many = len(compared.labels) > FEW
        fig, [axes] = style.figure(
            comparison.results.regime(job), 11.0 if many else 9.0, 4.2 if many else 3.4, 1, len(shown)
        )
        for ax, metric in zip(axes, shown, strict=True):
            draw_times(ax, comparison, compared, metric)
        fig.suptitle(f"{job}: times by scheme", fontsize=11, fontweight="bold")
    return fig


def _draw_bound(ax: Axes, at: float, name: str, look: dict[str, Any], below: bool) -> None:
    """Draw a line across, with its name above or below it."""
    ax.axhline(at, **look)
    ax.annotate(
        name,
        (1, at),
        xycoords=("axes fraction", "data"),
        ha="right",
        va="top" if below else "bottom",
        fontsize=7.5,
        color=look["color"],
        xytext=(-3, -2 if below else 2),
        textcoords="offset points",
    )


def draw_times(ax: Axes, comparison: Comparison, mine: JobComparison, metric: Metric) -> None:
    """One metric: every repeat of every scheme, the mean and its interval, and the ideal transport's if it has one."""
    runs = comparison.runs[comparison.runs["job"] == mine.job]
    unit = unit_of(metric, runs[metric.name].dropna())
    styles = style.scheme_styles(comparison.results)
    paired = runs[runs["trusted"]].pivot_table(index="repeat", columns="label", values=metric.name)
    for _, row in paired.reindex(columns=list(mine.labels)).iterrows():
        ax.plot(range(len(mine.labels)), row * unit.factor, color="#c9ced4", linewidth=0.8, zorder=1)
    for x, label in enumerate(mine.labels):
        look = styles[label]
        for trusted, face, place in ((True, look.colour, x), (False, "none", x - 0.2)):
            dots = runs[(runs["label"] == label) & (runs["trusted"] == trusted)][metric.name] * unit.factor
            ax.scatter(
                np.full(len(dots), float(place)),
                dots,
                s=26,
                facecolors=face,
                edgecolors=look.colour,
                marker=look.marker,
                linewidths=1.1,
                alpha=0.85,
                zorder=3,
            )
        estimate = mine.estimates[label, metric.name]
        if estimate.value is not None and estimate.low is not None:
            ax.errorbar(
                x + 0.24,
                estimate.value * unit.factor,
                yerr=(estimate.value - estimate.low) * unit.factor,
                fmt="_",
                color=look.colour,
                capsize=3.5,
                elinewidth=1.8,
                markersize=9,
                zorder=4,
            )
    reachable_s = ideals_s_of(comparison.results, mine.job, REACHABLE_OF.get(metric.name, ""))
    ideal_s = ideal_s_of(comparison.results, mine.job, IDEAL_OF.get(metric.name, ""))
    if reachable_s:
        at = min(reachable_s.values()) * unit.factor
        _draw_bound(ax, at, "least of any transport", style.REACHABLE, below=False)
    if ideal_s is not None:
        _draw_bound(ax, ideal_s * unit.factor, "ideal transport", style.IDEAL, below=bool(reachable_s))
    ax.set_xticks(range(len(mine.labels)), mine.labels)
    if len(mine.labels) > FEW:
        ax.tick_params(axis="x", labelrotation=90, labelsize=7)
    ax.set_xlim(-0.5, len(mine.labels) - 0.4)
    ax.set_ylim(bottom=0)
    ax.grid(axis="x", visible=False)
    ax.set_ylabel(f"{metric.title} ({unit.sign})")
    if not runs["trusted"].all():
        ax.set_xlabel("hollow: suspect run, not in the mean", fontsize=7.5)


def message_cdf(comparison: Comparison, job: str) -> Figure | None:
    """Message completion by leg: the CDF above, and below it the tail: the share that takes longer, log-log. None
    without messages of a trusted run."""
    compared = _job(comparison, job)
    drawn = {
        (leg, label): samples(comparison.results, job, label, METRICS[f"{leg}_p99_s"])
        for leg in _LEGS
        for label in compared.labels
    }
    legs = [leg for leg in _LEGS if any(len(drawn[leg, label].values) for label in compared.labels)]
    if not legs:
        return None
    styles = style.scheme_styles(comparison.results)
    ideal_s = ideal_s_of(comparison.results, job, "message_s")
    with style.applied():
        fig, axes = style.figure(comparison.results.regime(job), 9.0, 6.2, 2, len(legs), sharex="col", sharey="row")
        for column, leg in enumerate(legs):
            for label in compared.labels:
                if len(drawn[leg, label].values):
                    _draw_cdf(axes[0][column], drawn[leg, label].values, styles[label], label)
                    draw_tail(axes[1][column], drawn[leg, label], styles[label], label)
            _label_cdf(axes[0][column], leg, ideal_s)
            label_tail(axes[1][column], ideal_s)
        axes[0][0].set_ylabel("messages done by then")
        axes[1][0].set_ylabel("messages not done by then (log)")
        if len(compared.labels) > FEW:
            fig.legend(*axes[0][0].get_legend_handles_labels(), loc="outside right upper")
        else:
            axes[0][0].legend(loc="lower right")
        fig.suptitle(f"{job}: message completion time", fontsize=11, fontweight="bold")
    return fig


def _draw_cdf(ax: Axes, durations_s: Floats, look: style.SchemeStyle, label: str) -> None:
    values_ms, beyond = _levels(durations_s)
    ax.plot(values_ms, 1 - beyond, color=look.colour, linestyle=look.line, label=label)


def _levels(durations_s: Floats) -> tuple[Floats, Floats]:
    """Quantiles (ms) at a few hundred levels, and the share beyond each: dense towards the tail, which ends where fewer
    than MIN_BEYOND samples remain."""
    last = min(max(MIN_BEYOND / len(durations_s), 1e-5), 0.5)
    beyond = np.concatenate([np.linspace(1, 0.1, 120, endpoint=False), np.geomspace(0.1, last, 160)])
    return quantiles(durations_s, 1 - beyond) * 1e3, beyond


def draw_tail(tail: Axes, drawn: Samples, look: style.SchemeStyle, label: str) -> None:
    """The share of the samples that take longer, with marks at p99 and p99.9 where the samples carry them."""
    values_ms, beyond = _levels(drawn.values)
    tail.plot(values_ms, beyond, color=look.colour, linestyle=look.line, label=label)
    for share in (0.01, 0.001):
        if not refuse_quantile(drawn.values, drawn.blocks, 1 - share):
            at_ms = quantile(drawn.values, 1 - share) * 1e3
            tail.plot([at_ms], [share], look.marker, color=look.colour, markersize=5, zorder=4)


def _label_cdf(cdf: Axes, leg: str, ideal_s: float | None) -> None:
    cdf.set_title(_LEGS[leg])
    _time_axis(cdf, ideal_s)
    cdf.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))


def label_tail(tail: Axes, ideal_s: float | None) -> None:
    """Log axes in ms and per cent, lines at p99 and p99.9, and one at the ideal transport's time if it is known."""
    _time_axis(tail, ideal_s)
    tail.set_yscale("log")
    tail.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    for share, name in ((0.01, "p99"), (0.001, "p99.9")):
        if tail.get_ylim()[0] <= share:
            tail.axhline(share, color="#9aa1a9", linewidth=0.8, zorder=1)
            tail.annotate(
                name,
                (0, share),
                xycoords=("axes fraction", "data"),
                xytext=(3, 2),
                textcoords="offset points",
                fontsize=7.5,
                color=style.FAINT,
            )
    tail.set_xlabel("message completion time (ms, log)")


def _time_axis(ax: Axes, ideal_s: float | None) -> None:
    ax.set_xscale("log")
    if ideal_s:
        ax.axvline(ideal_s * 1e3, **style.IDEAL, label="ideal transport")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def accuracy(comparison: Comparison, job: str) -> Figure | None:
    """Test accuracy over wall-clock time, or over steps where there is no clock (training without a network): mean of
    the trusted repeats and its 95 % band; None without training."""
    compared = _job(comparison, job)
    table = comparison.results.own(comparison.results.table("training"))
    table = table[(table["job"] == job) & table["trusted"].astype(bool)]
    if compared.target_accuracy is None:
        return None
    by = "time_s" if table["time_s"].notna().any() else "step"
    styles = style.scheme_styles(comparison.results)
    with style.applied():
        fig, [[ax]] = style.figure(comparison.results.regime(job), 9.0, 4.3, 1, 1)
        for label in compared.labels:
            mine_curves = table[table["label"] == label].dropna(subset=[by])
            curves = [curve.sort_values("step") for _, curve in mine_curves.groupby("run_id")]
            if curves:
                _draw_accuracy(ax, curves, by, styles[label], label)
        ax.axhline(compared.target_accuracy, color="#9aa1a9", linewidth=0.9)
        ax.annotate(
            f"target: {compared.target_accuracy:.1%}".replace("%", " %"),
            (0, compared.target_accuracy),
            xycoords=("axes fraction", "data"),
            ha="left",
            va="bottom",
            xytext=(3, 2),
            textcoords="offset points",
            fontsize=7.5,
            color=style.FAINT,
        )
        ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
        ax.set_xlim(left=0)
        ax.set_xlabel("training time (s), evaluation excluded" if by == "time_s" else "training steps")
        ax.set_ylabel("test accuracy")
        ax.set_title(f"{job}: accuracy over {'wall-clock time' if by == 'time_s' else 'training steps'}")
        if len(compared.labels) > FEW:
            fig.legend(*ax.get_legend_handles_labels(), loc="outside right upper")
        else:
            ax.legend(loc="lower right")
    return fig


def _draw_accuracy(ax: Axes, curves: list[pd.DataFrame], by: str, look: style.SchemeStyle, label: str) -> None:
    """The repeats' curves read at common times (or steps), from the last first evaluation to the first last one."""
    start = max(float(curve[by].iloc[0]) for curve in curves)
    end = min(float(curve[by].iloc[-1]) for curve in curves)
    at = np.linspace(start, end, 80)
    read = np.array([np.interp(at, curve[by].astype(float), curve["accuracy"].astype(float)) for curve in curves])
    for curve in curves:
        ax.plot(curve[by], curve["accuracy"], color=look.colour, linewidth=0.6, alpha=0.35)
    band = [mean_interval(read[:, i]) for i in range(len(at))]
    ax.plot(
        at,
        read.mean(axis=0),
        color=look.colour,
        linestyle=look.line,
        label=label,
        marker=look.marker,
        markevery=16,
        markersize=5,
    )
    if band[0].has_interval:
        low, high = (np.array([getattr(point, end) for point in band], dtype=float) for end in ("low", "high"))
        ax.fill_between(at, low, high, color=look.colour, alpha=0.16, linewidth=0)


def _job(comparison: Comparison, job: str) -> JobComparison:
    compared = comparison.job(job)
    if compared is None:
        raise KeyError(f"no run of job {job!r}; there are {', '.join(known.job for known in comparison.jobs)}")
    return compared


def _key(label: str, look: style.SchemeStyle, *, line: bool = True) -> Line2D:
    kind: dict[str, Any] = {"linestyle": look.line if line else "none", "marker": look.marker, "color": look.colour}
    return Line2D([], [], label=label, **kind)
