"""Metrics that compare schemes: one name, one unit and one good direction each.

Plain data: the checker of experiment files lists these names without importing pandas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BEST_OTHER = "best other"
"""Other side of an expectation: the best of the schemes that are not DLCP's, whichever it is."""


@dataclass(frozen=True)
class Metric:
    """One figure of a run.

    unit: "s", "share" (0 to 1, shown in %), "steps" (of training), "x" (a ratio of two times).
    better: the good direction. compare: how two schemes are set against each other, by the ratio of the paired
    values (times) or by their difference (shares, accuracies).
    judged: False for what a scheme may do on purpose (lose, drop, mark): shown without a verdict.
    quantile: set when the figure is a quantile of samples; one above 0.9 is a tail, its interval a bootstrap's.
    goal: how long a run takes to get somewhere. While a run never gets there, there is no mean: that of the others
    would be the better, the worse the scheme.
    """

    name: str
    title: str
    unit: Literal["s", "share", "steps", "x"]
    better: Literal["lower", "higher"]
    compare: Literal["ratio", "difference"]
    description: str
    quantile: float | None = None
    judged: bool = True
    goal: bool = False

    @property
    def tail(self) -> bool:
        """True for a tail quantile, which needs many samples."""
        return self.quantile is not None and self.quantile > 0.9


def _time(name: str, title: str, description: str, quantile: float | None = None, *, goal: bool = False) -> Metric:
    return Metric(name, title, "s", "lower", "ratio", description, quantile, goal=goal)


def _share(name: str, title: str, description: str, *, judged: bool = False) -> Metric:
    return Metric(name, title, "share", "lower", "difference", description, judged=judged)


def _messages(which: str, title: str) -> list[Metric]:
    meaning = "from handing a tensor to the transport to its completion at the receiver, warm-up left out"
    legs = {
        "message": "both legs; in a ring, of one hop",
        "push": "worker to server, or a hop of the reduce-scatter",
        "pull": "server to worker, or a hop of the all-gather",
    }
    return [
        _time(f"{which}_{suffix}_s", f"{title} {shown}", f"{shown} of the time {meaning}; {legs[which]}", quantile)
        for suffix, shown, quantile in (("p50", "p50", 0.5), ("p99", "p99", 0.99), ("p999", "p99.9", 0.999))
    ]


_TARGET = (
    "the test accuracy that the job names as its target, or else that every trusted run of it reaches; a scheme "
    "of which a run never gets there has no mean"
)

_ALL = [
    _time("jct_s", "job completion", "from the first iteration's start to the last worker's end"),
    _time("iteration_p50_s", "iteration p50", "median time of one worker's iteration, warm-up left out", 0.5),
    _time("iteration_p99_s", "iteration p99", "p99 of the time of one worker's iteration, warm-up left out", 0.99),
    _time("exposed_comm_s", "exposed comm.", "mean time an iteration waits for the network, not hidden by compute"),
    *_messages("message", "message"),
    *_messages("push", "push"),
    *_messages("pull", "pull"),
    _share("lost_share", "lost bytes", "bytes of pushed gradients never delivered, of those handed over"),
    _share(
        "lost_energy_share",
        "lost energy",
        "share of pushed gradients' energy (the sum of squares) never delivered, as the magnitude codes of their "
        "packets tell; the mean over messages, weighted by their bytes",
    ),
    _share(
        "gradient_energy_lost",
        "lost energy of the gradient",
        "the same of all workers' whole gradients, where all of their values are known (runs in one process): "
        "weighted by energy, not by bytes, so that a small layer with large gradients counts as what it is",
    ),
    _share("resent_share", "resent bytes", "payload bytes sent again, of those handed over, both legs", judged=True),
    _share("dropped_share", "drops", "packets dropped by switches, of those offered, background included"),
    _share("marked_share", "CE marks", "packets marked CE by switches, of those enqueued, background included"),
    Metric("final_accuracy", "final accuracy", "share", "higher", "difference", "test accuracy after the last step"),
    _time("time_to_accuracy_s", "time to accuracy", f"training time until {_TARGET}", goal=True),
    Metric(
        "steps_to_accuracy",
        "steps to accuracy",
        "steps",
        "lower",
        "ratio",
        f"training steps until {_TARGET}",
        goal=True,
    ),
    Metric(
        "jct_over_ideal",
        "JCT / ideal",
        "x",
        "lower",
        "ratio",
        "job completion over that of an ideal transport (line rate, perfectly overlapped)",
    ),
    Metric(
        "iteration_over_ideal",
        "iteration / ideal",
        "x",
        "lower",
        "ratio",
        "median iteration over that of an ideal transport (line rate, perfectly overlapped)",
    ),
]

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}
"""Name → metric, in the order in which reports show them."""

IDEAL_OF = {"jct_s": "jct_s", "iteration_p50_s": "iteration_s"}
"""Metric → the figure of the ideal transport (RunResult.ideal) that it is held against."""
REACHABLE_OF = {"jct_s": "reachable_jct_s"}
"""Metric → the least that any transport could reach (RunResult.ideal; substrates/reachable.py)."""
OVER_IDEAL = {"jct_s": "jct_over_ideal", "iteration_p50_s": "iteration_over_ideal"}
"""Metric → the same as a multiple of the ideal transport's, in which different jobs compare."""
