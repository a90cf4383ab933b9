"""How every picture looks: one colour, line, marker and hatch a scheme, the same in all plots.

Readable by the colour-blind and in greyscale: the colours differ in lightness, and line styles, markers and
hatches repeat what the colour says.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import matplotlib as mpl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlcp.report.data.load import Results
from dlcp.report.data.regime_facts import regime_caption

IDEAL: dict[str, Any] = {"color": "#5a5a5a", "linestyle": (0, (1, 1.4)), "linewidth": 1.4}
"""The line of the ideal transport."""
REACHABLE: dict[str, Any] = {"color": "#5a5a5a", "linestyle": (0, (5, 2)), "linewidth": 1.1}
"""The line of the least that any transport could reach."""
INK = "#1f2328"
FAINT = "#6e7781"


@dataclass(frozen=True)
class SchemeStyle:
    """Colour, marker and line of a scheme in every plot."""

    colour: str
    line: Any
    marker: str
    hatch: str


_PINNED = {
    "tcp": SchemeStyle("#E69F00", "-.", "s", "//"),
    "tcp-tuned": SchemeStyle("#C2410C", "--", "^", "\\\\"),
    "dlcp": SchemeStyle("#0B3C7D", "-", "o", ""),
}
"""The schemes that most reports show; others get one of the rest by name, the same one in every report."""
_COLOURS = (
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#5B4B8A",
    "#7A7A00",
    "#4D4D4D",
    "#8C564B",
    "#17A2B8",
    "#BC3754",
    "#2F6B2F",
    "#9467BD",
    "#B8860B",
    "#3B6E8F",
    "#E0719C",
    "#6B8E23",
    "#708090",
    "#A0522D",
    "#008080",
    "#D2691E",
    "#483D8B",
    "#C71585",
    "#556B2F",
    "#1E90FF",
)
_LINES = (
    (0, (5, 1, 1, 1, 1, 1)),
    (0, (3, 1)),
    (0, (1, 1)),
    (0, (7, 2)),
    (0, (4, 1, 1, 1)),
    (0, (2, 2)),
    (0, (6, 1, 2, 1)),
)
_MARKERS = ("D", "v", "P", "X", "*", "h", "<", ">", "p", "d", "8")
_HATCHES = ("xx", "..", "++", "--", "oo", "||", "xxx", "**", "/o")
_REST = tuple(
    SchemeStyle(colour, _LINES[i % len(_LINES)], _MARKERS[i % len(_MARKERS)], _HATCHES[i % len(_HATCHES)])
    for i, colour in enumerate(_COLOURS)
)
"""Those of all other schemes. The cycles have different lengths, so that no two are alike in everything else."""


def scheme_styles(results: Results) -> dict[str, SchemeStyle]:
    """Label → style. A scheme that stands under one label only is drawn in the scheme's own style; of several labels of
    one scheme, the experiment's subject is."""
    styles: dict[str, SchemeStyle] = {}
    labels = results.labels()
    schemes = [results.scheme_of(label) for label in labels]
    subject = results.subject()
    for label, scheme in zip(labels, schemes, strict=True):
        name = scheme if schemes.count(scheme) == 1 or label == subject else label
        styles[label] = _PINNED[name] if name in _PINNED else _by_name(name, list(styles.values()))
    return styles


def _by_name(name: str, taken: list[SchemeStyle]) -> SchemeStyle:
    start = crc32(name.encode())
    order = [_REST[(start + step) % len(_REST)] for step in range(len(_REST))]
    return next((style for style in order if style not in taken), order[0])


@contextmanager
def applied() -> Iterator[None]:
    """The theme, for the time of drawing; the caller's own matplotlib settings come back afterwards."""
    with mpl.rc_context():
        sns.set_theme(
            context="paper",
            style="whitegrid",
            font="DejaVu Sans",
            rc={
                "figure.dpi": 110,
                "axes.edgecolor": "#9aa1a9",
                "axes.labelcolor": INK,
                "text.color": INK,
                "xtick.color": INK,
                "ytick.color": INK,
                "grid.color": "#e4e7ea",
                "axes.titlesize": 10,
                "axes.titleweight": "bold",
                "axes.labelsize": 9,
                "xtick.labelsize": 8.5,
                "ytick.labelsize": 8.5,
                "legend.fontsize": 8.5,
                "legend.frameon": True,
                "legend.edgecolor": "#d0d7de",
                "hatch.linewidth": 0.6,
                "svg.fonttype": "path",
                "svg.hashsalt": "dlcp",
                "lines.linewidth": 1.7,
            },
        )
        yield


def figure(
    regime: dict[str, Any], width_in: float, height_in: float, rows: int, columns: int, **kind: Any
) -> tuple[Figure, list[list[Axes]]]:
    """An empty figure with a grid of axes and the scaling regime below it, so that it goes wherever the plot goes."""
    fig = Figure(figsize=(width_in, height_in), layout="constrained")
    axes = fig.subplots(rows, columns, squeeze=False, **kind)
    caption = textwrap.fill(regime_caption(regime), int(width_in * 22))
    fig.supxlabel(caption, x=0.01, ha="left", fontsize=6.8, color=FAINT)
    return fig, [list(row) for row in axes]
