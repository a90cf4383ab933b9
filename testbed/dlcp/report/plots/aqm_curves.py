"""A picture of measured drop and mark curves, with their bands, against what was intended."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlcp.errors import Problem
from dlcp.report.plots.style import FAINT, INK, applied

_COLUMNS = 3
_MEASURED, _OFF = "#0B3C7D", "#C2410C"


def draw_curves(title: str, verified: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw every row that has bins. verified: as `dlcp switch verify --json` has it. Raises Problem when none has."""
    rows = [
        (verified_intent, row)
        for verified_intent in verified
        for row in verified_intent["rows"]
        if row["data"].get("bins")
    ]
    if not rows:
        raise Problem("--plot", "nothing to draw: no queue has a drop profile that could be measured")
    columns = min(_COLUMNS, len(rows))
    lines = math.ceil(len(rows) / columns)
    with applied():
        fig = Figure(figsize=(0.6 + 3.4 * columns, 0.9 + 2.5 * lines), layout="constrained")
        axes = fig.subplots(lines, columns, squeeze=False, sharey=True)
        for number, (each, row) in enumerate(rows):
            at = axes[number // columns][number % columns]
            _draw(at, row)
            schemes = f"{', '.join(each['schemes'])}: " if len(verified) > 1 else ""
            at.set_title(f"{schemes}{row['where']}, {row['what']}", fontsize=8.5)
        for number in range(len(rows), lines * columns):
            axes[number // columns][number % columns].set_visible(False)
        for line in axes:
            line[0].set_ylabel("share struck")
        for at in axes[-1]:
            at.set_xlabel("backlog, or its average, found (kB)")
        known: dict[str, Any] = {}
        for at in fig.axes:
            handles, labels = at.get_legend_handles_labels()
            known |= dict(zip(labels, handles, strict=True))
        fig.legend(list(known.values()), list(known), loc="outside lower center", ncols=3, frameon=False)
        subject = "one QoS intent" if len(verified) > 1 else "all"
        wrong = f"any band of {subject} wrong by chance: at most {verified[0]['false_alarm']:.0%}"
        fig.suptitle(f"{title}: drop and mark curves\n{wrong}", fontsize=9, color=INK)
        fig.savefig(path, dpi=150)


def _draw(at: Axes, row: Mapping[str, Any]) -> None:
    data = row["data"]
    bins, profile = _side_by_side(data["bins"]), data["profile"]
    low, high, top = profile["minimum_bytes"] / 1e3, profile["maximum_bytes"] / 1e3, profile["probability"]
    end = max(bins[-1]["to_bytes"] / 1e3, high * 1.05)
    at.plot([0, low, high, high, end], [0, 0, top, 1, 1], color=FAINT, linewidth=1.2, label="intended")
    for off, colour, word in ((False, _MEASURED, "measured, with band"), (True, _OFF, "deviates")):
        some = [each for each in bins if bool(each["off"]) is off]
        if not some:
            continue
        middles = [(each["from_bytes"] + each["to_bytes"]) / 2e3 for each in some]
        shares = [each["hits"] / each["trials"] for each in some]
        below = [share - each["low"] for share, each in zip(shares, some, strict=True)]
        above = [each["high"] - share for share, each in zip(shares, some, strict=True)]
        at.errorbar(
            middles,
            shares,
            [below, above],
            fmt="o" if not off else "X",
            markersize=4,
            color=colour,
            elinewidth=1,
            capsize=2,
            label=word,
        )
    at.set_xlim(0, end)
    at.set_ylim(-0.03, 1.05)


def _side_by_side(bins: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Without the one of the whole slope, which comes last where there is one."""
    return [
        each for number, each in enumerate(bins) if number == 0 or each["from_bytes"] >= bins[number - 1]["to_bytes"]
    ]
