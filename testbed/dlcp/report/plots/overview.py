"""One picture that tells the result: the tail of message completion, and the times of iteration and job."""

from __future__ import annotations

from matplotlib.figure import Figure

from dlcp.model.metrics import METRICS
from dlcp.report.analysis.comparison import Comparison
from dlcp.report.data.load import ideal_s_of
from dlcp.report.data.metrics import samples
from dlcp.report.plots import style
from dlcp.report.plots.job_comparison import draw_tail, draw_times, label_tail

WIDTH_IN, HEIGHT_IN = 9.2, 3.8
_TITLES = {"iteration_p50_s": "iteration", "jct_s": "job"}
"""The times that are shown, where the runs carry them."""


def overview(comparison: Comparison, job: str) -> Figure:
    """Tail of the messages of both legs, iteration p50 and job completion, the regime below.

    Raises ValueError where the job has no run that counts.
    """
    compared = comparison.job(job)
    if compared is None or not any(compared.counts[label].get("ok") for label in compared.labels):
        raise ValueError(f"no run of job {job!r} counts")
    results = comparison.results
    styles = style.scheme_styles(results)
    shown = [METRICS[name] for name in _TITLES if METRICS[name] in compared.metrics]
    with style.applied():
        fig, [[tail, *times]] = style.figure(
            results.regime(job),
            WIDTH_IN,
            HEIGHT_IN,
            1,
            1 + len(shown),
            gridspec_kw={"width_ratios": [1.6, *(1 for _ in shown)]},
        )
        for label in compared.labels:
            drawn = samples(results, job, label, METRICS["message_p99_s"])
            if len(drawn.values):
                draw_tail(tail, drawn, styles[label], label)
        label_tail(tail, ideal_s_of(results, job, "message_s"))
        tail.set_ylabel("messages not done by then (log)")
        tail.set_title("message completion: the tail")
        tail.legend(loc="center left", bbox_to_anchor=(0, 0.57))  # below the curves, above the line of the p99
        for ax, metric in zip(times, shown, strict=True):
            draw_times(ax, comparison, compared, metric)
            ax.set_xlabel(ax.get_xlabel() or "every repeat; mean and 95 % interval", fontsize=7.5)
            ax.set_title(_TITLES[metric.name])
    return fig
