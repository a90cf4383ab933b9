"""Where the gain comes from: what each part adds alone, what the whole loses without it, what they only do together.

A part is known by its run's scheme ("dlcp-no-loss", "dlcp-only-loss"; "timely-udp" is the engine without any part) or
by its label ("no loss", "only loss", "no part").
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlcp.model.metrics import METRICS
from dlcp.report.analysis.comparison import Comparison, gain, paired, trusted_values
from dlcp.report.data.load import Results, ideal_s_of
from dlcp.report.data.statistics import Estimate, paired_difference
from dlcp.report.plots import style

BARE = "timely-udp"
NONE = ("part", "parts")
_GOOD, _BAD, _REST = "#2F6B2F", "#C2410C", "#8c959f"


@dataclass(frozen=True)
class Parts:
    """Labels of an ablation: the whole, the one without any part (or None), part → the label without it, part → the
    label with it alone."""

    whole: str
    none: str | None
    without: dict[str, str]
    alone: dict[str, str]


def parts_of(results: Results, job: str) -> Parts | None:
    """The ablation that a job's labels are; None when no label is a part's."""
    subject, none = results.subject(job), None
    without: dict[str, str] = {}
    parts_alone: dict[str, str] = {}
    for label in results.labels(job):
        scheme = results.scheme_of(label)
        if scheme == BARE:
            none = label
            continue
        named = re.fullmatch(r"dlcp-(?:(no|only)-)?(.+)", scheme) or re.fullmatch(r"(no|only) (.+)", label)
        if named is None or label == subject or not results.is_dlcp(label):
            continue
        if named[2] in NONE:
            none = label
        elif named[1]:
            (without if named[1] == "no" else parts_alone)[named[2]] = label
    return Parts(subject, none, without, parts_alone) if without or parts_alone else None


def parts_table(comparison: Comparison, job: str) -> pd.DataFrame:
    """One row a part and question: `what` is "without" (the whole's completion time lengthens by the ratio `value`) or
    "alone" (that of no part shortens to the ratio `value`), with paired 95 % intervals."""
    parts = parts_of(comparison.results, job)
    rows = []
    if parts is not None:
        runs = comparison.runs[comparison.runs["job"] == job]
        asked = [("without", part, label, parts.whole) for part, label in parts.without.items()]
        if parts.none is not None:
            asked += [("alone", part, label, parts.none) for part, label in parts.alone.items()]
        for kind, part, label, base in asked:
            estimate = gain(comparison.results, runs, job, label, base, METRICS["jct_s"]).estimate
            rows.append(
                {
                    "job": job,
                    "what": kind,
                    "part": part,
                    "label": label,
                    "base": base,
                    "value": estimate.value,
                    "low": estimate.low,
                    "high": estimate.high,
                    "n": estimate.n,
                    "why": estimate.why,
                }
            )
    return pd.DataFrame(rows, columns=["job", "what", "part", "label", "base", "value", "low", "high", "n", "why"])


def waterfall(comparison: Comparison, job: str) -> Figure | None:
    """Left, where a run without any part and one of the whole count: from its job completion down to the whole's, a
    step for each part alone that has pairs with it, and one for what only the parts together do. Right: how much longer
    the job takes without each. The ideal transport is a dotted line. None when the job's labels are no ablation."""
    results = comparison.results
    parts = parts_of(results, job)
    if parts is None:
        return None
    runs = comparison.runs[comparison.runs["job"] == job]
    jct = METRICS["jct_s"]
    ends = [label for label in (parts.none, parts.whole) if label and len(trusted_values(runs, label, jct))]
    both = len(ends) == 2 and bool(parts.alone)
    with style.applied():
        fig, [axes] = style.figure(results.regime(job), 11.0 if both else 8.0, 4.2, 1, 1 + both)
        if both:
            _steps(axes[0], comparison, runs, parts, job)
        _without(axes[-1], parts_table(comparison, job), parts)
        fig.suptitle(f"{job}: where the gain comes from", fontsize=11, fontweight="bold")
    return fig


def _steps(ax: Axes, comparison: Comparison, runs: pd.DataFrame, parts: Parts, job: str) -> None:
    jct = METRICS["jct_s"]
    assert parts.none is not None
    values = {label: trusted_values(runs, label, jct) for label in (parts.none, parts.whole, *parts.alone.values())}
    none, with_all = (float(np.mean(list(values[label].values()))) for label in (parts.none, parts.whole))
    bars: list[tuple[str, float, float, str, Estimate | None]] = [(parts.none, 0.0, none, _REST, None)]
    level = none
    for part, label in parts.alone.items():
        difference = paired_difference(*paired(values[label], values[parts.none]))
        if difference.value is None:
            continue
        step = difference.value
        bars.append((f"{part} alone", level, level + step, _GOOD if step < 0 else _BAD, difference))
        level += step
    wording = "together" if with_all < level else "they overlap"
    bars += [
        (wording, level, with_all, _GOOD if with_all < level else _BAD, None),
        (parts.whole, 0.0, with_all, "#0B3C7D", None),
    ]
    for x, (_, start, end, colour, sure) in enumerate(bars):
        ax.bar(x, end - start, 0.66, bottom=start, color=colour, edgecolor="white")
        if sure is not None and sure.low is not None and sure.high is not None:
            ax.errorbar(
                x, end, [[end - start - sure.low], [sure.high - (end - start)]], fmt="none", ecolor=style.INK, capsize=3
            )
        text = f"{end - start:+.2f} s".replace("-", "−") if 0 < x < len(bars) - 1 else f"{end:.2f} s"
        ax.annotate(
            text,
            (x, max(start, end)),
            ha="center",
            va="bottom",
            xytext=(0, 2),
            textcoords="offset points",
            fontsize=7.5,
        )
    ideal_s = ideal_s_of(comparison.results, job, "jct_s")
    if ideal_s:
        ax.axhline(ideal_s, **style.IDEAL, label="ideal transport")
        ax.legend(loc="upper right")
    ax.set_ylim(0, 1.14 * max(max(start, end) for _, start, end, *_ in bars))
    ax.set_xticks(range(len(bars)), [name for name, *_ in bars], rotation=35, ha="right")
    ax.set_ylabel("job completion (s)")
    ax.grid(axis="x", visible=False)
    ax.set_title("each part alone, then all together")


def _without(ax: Axes, table: pd.DataFrame, parts: Parts) -> None:
    rows = table[(table["what"] == "without") & table["value"].notna()]
    for y, row in enumerate(rows.to_dict("records")):
        value = 100 * (row["value"] - 1)
        ax.barh(y, value, 0.6, color=_BAD if value > 0 else _GOOD, alpha=0.85)
        if row["low"] is not None and row["low"] == row["low"]:
            low, high = 100 * (row["low"] - 1), 100 * (row["high"] - 1)
            ax.errorbar(value, y, xerr=[[value - low], [high - value]], fmt="none", ecolor=style.INK, capsize=3)
    ax.axvline(0, color=style.INK, linewidth=1)
    ax.set_yticks(range(len(rows)), [f"without {part}" for part in rows["part"]])
    ax.invert_yaxis()
    ax.set_xlabel(f"job completion over that of {parts.whole} (%), 95 % interval")
    ax.grid(axis="y", visible=False)
    ax.set_title("the whole without each part")
