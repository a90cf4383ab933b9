"""What a scheme adds over the best of the others, and what a perfect transport could have added."""

from __future__ import annotations

from dataclasses import dataclass

from dlcp.model.metrics import METRICS
from dlcp.report.comparison import Comparison, JobComparison
from dlcp.report.words import show_number


@dataclass(frozen=True)
class Headroom:
    """One job. gain, low, high: additional speed of the subject over the best other, as shares (0.1 = 10 % faster);
    None where too few pairs carry an interval. most: what an ideal transport would add to the best other."""

    job: str
    subject: str
    best_other: str
    gain: float
    low: float | None
    high: float | None
    most: float | None

    @property
    def gain_words(self) -> str:
        """ "+12.3 % [9.8, 14.1]"; without an interval it says so."""
        if self.low is None or self.high is None:
            return f"{_percent(self.gain)} (no interval)"
        return f"{_percent(self.gain)} [{show_number(100 * self.low, 1)}, {show_number(100 * self.high, 1)}]"

    @property
    def most_words(self) -> str:
        """ "+15.0 %", or a dash where nothing ideal is known."""
        return "–" if self.most is None else _percent(self.most)


def headroom(comparison: Comparison) -> tuple[Headroom, ...]:
    """Of every job in which the subject and another scheme have a completion time."""
    found = (_of(job) for job in comparison.jobs)
    return tuple(one for one in found if one is not None)


def _of(job: JobComparison) -> Headroom | None:
    """The smallest of the gains over each other scheme; each end of its interval is the smallest of those ends, so
    that the choice of the best is inside it."""
    jct = METRICS["jct_s"]
    if jct not in job.metrics:
        return None
    means = {label: job.estimates[label, jct.name].value for label in job.labels[:-1]}
    known = {label: value for label, value in means.items() if value is not None}
    gains = {label: job.gains[label, jct.name].estimate for label in known}
    ratios = {label: gain for label, gain in gains.items() if gain.value is not None}
    if not ratios:
        return None
    best = min(ratios, key=lambda label: known[label])
    speed = {label: 1 / gain.value - 1 for label, gain in ratios.items() if gain.value}
    lows = [1 / gain.high - 1 for gain in ratios.values() if gain.high]
    highs = [1 / gain.low - 1 for gain in ratios.values() if gain.low]
    whole = len(lows) == len(highs) == len(ratios)
    over_ideal = job.estimates.get((best, "jct_over_ideal"))
    most = over_ideal.value - 1 if over_ideal is not None and over_ideal.value is not None else None
    return Headroom(
        job.job,
        job.subject,
        best,
        min(speed.values()),
        min(lows) if whole else None,
        min(highs) if whole else None,
        most,
    )


def _percent(share: float) -> str:
    return ("+" if share > 0 else "") + show_number(100 * share, 1) + " %"
