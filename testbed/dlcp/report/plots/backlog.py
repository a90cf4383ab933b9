"""Queue length over time, where the experiment asks for it (`backlog_every`): a repeat of every scheme, same ports."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlcp.report.data.load import Results
from dlcp.report.data.run import Run
from dlcp.report.plots import style

PORTS = 3
"""Drawn of each run: those of the whole fabric whose queues are longest in the mean over all schemes."""
MOST_POINTS = 1200
"""Points of one line; of more samples the longest of each stretch is drawn, so that no peak is lost."""
_LOOKS = (("#0B3C7D", "-"), ("#C2410C", "--"), ("#009E73", ":"))


def backlog(results: Results, job: str, labels: tuple[str, ...]) -> Figure | None:
    """A row a scheme: bytes that wait at the busiest ports, all queues of a port together; None without samples."""
    runs = {label: run for label in labels if (run := _example(results, job, label)) is not None}
    table = results.table("backlog")
    table = table[table["run_id"].isin([run.result.run_id for run in runs.values()])]
    if table.empty:
        return None
    ports = _busiest(table)
    buffer_bytes = results.example(job).regime.get("port_buffer_bytes")
    with style.applied():
        fig, axes = style.figure(
            results.regime(job), 9.0, 1.0 + 1.7 * len(runs), len(runs), 1, sharex=True, sharey=True
        )
        for [ax], (label, run) in zip(axes, runs.items(), strict=True):
            _draw(ax, table[table["run_id"] == run.result.run_id], ports, _start_s(results, run))
            suspect = "" if run.trusted else ", suspect"
            ax.set_title(f"{label} (repeat {run.result.repeat + 1}{suspect})")
            ax.set_ylabel("waiting (kB)")
            if buffer_bytes:
                ax.axhline(buffer_bytes / 1e3, color="#9aa1a9", linewidth=0.9)
                ax.annotate(
                    "port buffer",
                    (1, buffer_bytes / 1e3),
                    xycoords=("axes fraction", "data"),
                    ha="right",
                    va="bottom",
                    xytext=(-3, 1),
                    textcoords="offset points",
                    fontsize=7.5,
                    color=style.FAINT,
                )
        axes[-1][0].set_xlabel("time since the job's start (s)")
        axes[-1][0].set_xlim(left=0)
        axes[-1][0].set_ylim(0, 1.18 * max([buffer_bytes / 1e3 if buffer_bytes else 0.0, axes[0][0].dataLim.y1]))
        handles = axes[0][0].get_lines()[: len(ports)]
        fig.legend(handles=handles, loc="outside upper right", ncols=len(ports))
        fig.suptitle(f"{job}: queue length over time", fontsize=11, fontweight="bold")
    return fig


def _example(results: Results, job: str, label: str) -> Run | None:
    """The first repeat that counts, else the first of all; None when there is no run."""
    runs = results.of(job, label)
    return min(runs, key=lambda run: (not run.trusted, run.result.repeat), default=None)


def _busiest(table: pd.DataFrame) -> list[str]:
    """Ports by the sum of what waited over all samples, the longest queues first."""
    waited = table.groupby("port")["backlog_bytes"].sum().sort_values(ascending=False, kind="stable")
    return [str(port) for port in waited.index[:PORTS]]


def _start_s(results: Results, run: Run) -> float:
    iterations = results.table("iterations")
    return float(iterations[iterations["run_id"] == run.result.run_id]["start_s"].min())


def _draw(ax: Axes, samples: pd.DataFrame, ports: list[str], start_s: float) -> None:
    """A port has no row where it was empty and had been before: the line stays at the zero that came last."""
    for port, (colour, line) in zip(ports, _LOOKS, strict=False):
        backlog = samples[samples["port"] == port].groupby("time_s")["backlog_bytes"].sum()
        times_s, sizes = _thinned(backlog.index.to_numpy(dtype=float) - start_s, backlog.to_numpy(dtype=float))
        ax.plot(times_s, sizes / 1e3, color=colour, linestyle=line, linewidth=0.9, drawstyle="steps-post", label=port)


def _thinned(times_s: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest of every stretch of samples, so that at most MOST_POINTS are left."""
    stretch = -(-len(times_s) // MOST_POINTS) if len(times_s) else 1
    if stretch <= 1:
        return times_s, sizes
    starts = np.arange(0, len(times_s), stretch)
    return times_s[starts], np.maximum.reduceat(sizes, starts)
