"""Pictures of the fabric: which queue dropped and marked what, and how hosts and switches are linked."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dlcp.model.topology import Graph
from dlcp.model.units import show_duration, show_rate
from dlcp.report.data.load import Results
from dlcp.report.data.metrics import QUEUE_COLUMNS, queue_counts
from dlcp.report.plots import style

_KINDS = {
    "": {"dropped_wred_packets": "WRED drop", "marked_ce_packets": "CE mark"},
    "////": {"dropped_tail_packets": "tail drop", "dropped_shared_packets": "shared buffer full"},
    "xxxx": {
        "dropped_loss_packets": "injected loss",
        "dropped_down_packets": "link down",
        "dropped_unrouted_packets": "no route",
    },
}
"""Hatch of a bar → what it may show, from the axis up."""
_QUEUE_AXES = ("dropped\n(% of packets offered)", "marked CE\n(% of packets enqueued)")
_COLUMNS = 4
_PRECEDENCES = 3
_BAR = 0.26


def queues(results: Results, job: str, labels: tuple[str, ...]) -> Figure | None:
    """Drops by queue and precedence in % of the packets, CE marks below if there are any; None without counters."""
    counts = queue_counts(results)
    counts = counts[counts["job"] == job]
    if counts.empty:
        return None
    marked = bool(counts["marked_ce_packets"].any())
    styles = style.scheme_styles(results)
    shown = sorted(int(queue) for queue in counts[counts[QUEUE_COLUMNS].sum(axis=1) > 0]["queue"].unique())
    with style.applied():
        columns = min(_COLUMNS, len(labels))
        blocks, kinds = -(-len(labels) // columns), 1 + marked
        fig, axes = style.figure(
            results.regime(job),
            max(9.0, 2.4 * columns),
            (5.0 if marked else 3.2) * blocks,
            blocks * kinds,
            columns,
            sharex=True,
        )
        for place in range(blocks * columns):
            block = [axes[place // columns * kinds + kind][place % columns] for kind in range(kinds)]
            if place >= len(labels):
                for ax in block:
                    ax.set_visible(False)
                continue
            label = labels[place]
            _draw_queues(block, counts[counts["label"] == label], shown, styles[label].colour)
            block[0].set_title(label)
            if place + columns >= len(labels):
                block[-1].set_xlabel("switch queue (7 is served first)")
                block[-1].tick_params(labelbottom=True)
            if place % columns == 0:
                for ax, column_name in zip(block, _QUEUE_AXES, strict=False):
                    ax.set_ylabel(column_name)
        for kind in range(kinds):
            same = [ax for row in axes[kind::kinds] for ax in row]
            for ax in same:
                ax.set_ylim(0, max(1.1 * max(axes.dataLim.y1 for axes in same if axes.get_visible()), 0.01))
        keys = _queue_keys(counts)
        fig.legend(handles=keys, loc="outside upper center", ncols=min(len(keys), 5))
    return fig


def _queue_keys(counts: pd.DataFrame) -> list[Patch]:
    """The legend: the precedences and the kinds of drops and marks that the bars do show."""
    bars = counts[counts[QUEUE_COLUMNS[1:]].sum(axis=1) > 0]
    precedences = sorted(bars["precedence"].unique())
    keys = [Patch(facecolor=_shade("#303030", p), label=f"precedence {p}") for p in precedences]
    for hatch, kinds in _KINDS.items():
        names = [name for column, name in kinds.items() if bars[column].any()]
        if names:
            keys.append(Patch(facecolor="white", edgecolor="#303030", hatch=hatch, label=", ".join(names)))
    return keys


def _draw_queues(column: list[Axes], counts: pd.DataFrame, shown: list[int], colour: str) -> None:
    """column: the axes of the drops, and those of the marks if there are any."""
    for precedence in range(_PRECEDENCES):
        counts_of = (
            counts[counts["precedence"] == precedence].set_index("queue").reindex(shown)[QUEUE_COLUMNS].fillna(0.0)
        )
        shares = {
            hatch: counts_of[[name for name in kinds if name.startswith("dropped")]].sum(axis=1)
            for hatch, kinds in _KINDS.items()
        }
        offered = (counts_of["enqueued_packets"] + sum(shares.values())).replace(0, np.nan)
        x = np.arange(len(shown)) + _BAR * (precedence - 1)
        look: dict[str, Any] = {
            "width": _BAR,
            "color": _shade(colour, precedence),
            "edgecolor": colour,
            "linewidth": 0.6,
        }
        hatched = look | {"edgecolor": _hatch_colour(_shade(colour, precedence))}
        bottom = 0.0 * offered
        for hatch, dropped in shares.items():
            height = 100 * dropped / offered
            column[0].bar(x, height, bottom=bottom.fillna(0.0), hatch=hatch, **(hatched if hatch else look))
            bottom += height
        for marks in column[1:]:
            marks.bar(
                x, 100 * counts_of["marked_ce_packets"] / counts_of["enqueued_packets"].replace(0, np.nan), **look
            )
    for ax in column:
        ax.set_xticks(range(len(shown)), [str(queue) for queue in shown])
        ax.grid(axis="x", visible=False)


def _hatch_colour(face: tuple[float, float, float]) -> str:
    """White on dark bars, ink on light ones."""
    return "white" if 0.3 * face[0] + 0.59 * face[1] + 0.11 * face[2] < 0.35 else style.INK


def _shade(colour: str, precedence: int) -> tuple[float, float, float]:
    red, green, blue = to_rgb(colour)
    white = (0.0, 0.45, 0.75)[precedence]
    return red + (1 - red) * white, green + (1 - green) * white, blue + (1 - blue) * white


def topology(results: Results) -> Figure | None:
    """Hosts below, switches above them by distance, roles in the boxes, what sets a link apart next to it; None if not
    recorded."""
    recorded = results.example().topology
    if not recorded:
        return None
    graph = Graph.model_validate(recorded)
    roles = _roles(results)
    places = _places(graph)
    width = max(9.0, 0.8 * len(graph.hosts))
    ((usual_bps, _),) = Counter(link.rate_bps for link in graph.links).most_common(1)
    with style.applied():
        fig, [[ax]] = style.figure(results.regime(), width, 3.6, 1, 1)
        for link in graph.links:
            (xa, ya), (xb, yb) = places[link.a], places[link.b]
            ax.plot([xa, xb], [ya, yb], color="#8c959f", linewidth=1.3, zorder=1)
            words = [show_rate(link.rate_bps)] if link.rate_bps != usual_bps else []
            words += [show_duration(link.delay_s)] if link.delay_s else []
            ax.text(
                0.65 * xa + 0.35 * xb,
                0.65 * ya + 0.35 * yb,
                "\n".join(words),
                ha="center",
                va="center",
                fontsize=6,
                color=style.INK,
                zorder=2,
            )
        for node, (x, y) in places.items():
            _draw_node(ax, node, x, y, roles.get(node, ""), switch=node in graph.switches)
        rates = sorted({link.rate_bps for link in graph.links})
        ax.set_title(
            f"{len(graph.hosts)} hosts, {len(graph.switches)} switches, {len(graph.links)} links of "
            + " or ".join(show_rate(rate) for rate in rates)
        )
        ax.set_axis_off()
        ax.margins(0.06, 0.16)
    return fig


def _draw_node(ax: Axes, node: str, x: float, y: float, role: str, *, switch: bool) -> None:
    face = {"worker": "#dbe7f5", "server": "#fbe3c8"}.get(role, "#eef0f2")
    box = {
        "boxstyle": "round,pad=0.45" if switch else "round,pad=0.32",
        "facecolor": "#24292f" if switch else face,
        "edgecolor": "#24292f",
        "linewidth": 0.9,
    }
    text = node if not role else f"{node}\n{role}"
    ax.text(
        x,
        y,
        text,
        ha="center",
        va="center",
        fontsize=8.5 if switch else 7.5,
        zorder=3,
        bbox=box,
        color="white" if switch else style.INK,
        fontweight="bold" if switch else "normal",
    )


def _roles(results: Results) -> dict[str, str]:
    """Roles from the jobs' descriptions; without one, workers are those who push, servers those who are pushed to."""
    job = results.example().run.get("job")
    if isinstance(job, dict) and "workers" in job and "servers" in job:
        return dict.fromkeys(job["workers"], "worker") | dict.fromkeys(job["servers"], "server")
    push = results.table("messages", ("leg", "src", "dst"))
    push = push[push["leg"] == "push"]
    return dict.fromkeys(map(str, push["src"].unique()), "worker") | dict.fromkeys(
        map(str, push["dst"].unique()), "server"
    )


def _places(graph: Graph) -> dict[str, tuple[float, float]]:
    """Hosts on the ground floor, each switch on the floor of its distance to the nearest host, centred over its own."""
    floor = dict.fromkeys(graph.hosts, 0)
    todo = deque(graph.hosts)
    while todo:
        node = todo.popleft()
        for other in graph.neighbours[node]:
            if other not in floor:
                floor[other] = floor[node] + 1
                todo.append(other)
    leaves = [node for node in graph.switches if floor.get(node) == 1]
    order = [host for leaf in leaves for host in graph.neighbours[leaf] if host in graph.hosts]
    places: dict[str, tuple[float, float]] = {}
    x = 0.0
    for leaf in leaves:
        for host in (host for host in graph.neighbours[leaf] if host in graph.hosts):
            places[host] = (x, 0.0)
            x += 1.0
        x += 0.6
    for host in (host for host in graph.hosts if host not in order):
        places[host] = (x, 0.0)
        x += 1.0
    width = max(at for at, _ in places.values())
    for leaf in leaves:
        below = [places[host][0] for host in graph.neighbours[leaf] if host in places]
        places[leaf] = (sum(below) / len(below), 1.0)
    for level in range(2, max(floor.values()) + 1):
        row = [node for node in graph.switches if floor.get(node) == level]
        for i, node in enumerate(row):
            places[node] = (width * (i + 1) / (len(row) + 1), float(level))
    return places
