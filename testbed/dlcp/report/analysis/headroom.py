"""Gain of a scheme over the best of the others, against the gain of a perfect transport."""

from __future__ import annotations

from dataclasses import dataclass

from dlcp.model.metrics import METRICS
from dlcp.report.analysis.best import best_other, ours_of, over_tcp_of
from dlcp.report.analysis.comparison import Comparison, JobComparison
from dlcp.report.data.formatting import show_number


@dataclass(frozen=True)
class Headroom:
    """One job and one scheme of DLCP's. gain, low, high: additional speed of the subject over the best other, as shares
    (0.1 = 10 % faster); None where too few pairs carry an interval. most: what an ideal transport would add to the best
    other. rival: the best other, and what is uncertain about it, in words. left_out: others with too few pairs to be
    counted, of which any may be the best. verdict: "faster", "slower", "no clear difference", or "cannot tell": without
    an interval, or because another that is not counted may be faster still. over_tcp: the same over the best of those
    that TCP carries, in words; empty where there is none."""

    job: str
    subject: str
    best_other: str
    gain: float
    low: float | None
    high: float | None
    most: float | None
    rival: str
    left_out: tuple[str, ...]
    verdict: str
    over_tcp: str

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
    """Headroom of each scheme of DLCP's (the subject first), in every job in which another scheme has a completion time
    too.
    """
    rooms = (_of(comparison, job, label) for job in comparison.jobs for label in ours_of(comparison.results, job))
    return tuple(room for room in rooms if room is not None)


def _of(comparison: Comparison, job: JobComparison, label: str) -> Headroom | None:
    if METRICS["jct_s"] not in job.metrics:
        return None
    best = best_other(comparison, job.job, subject=label)
    if not best.best or best.estimate.value is None:
        return None
    over_ideal = job.estimates.get((best.best, "jct_over_ideal"))
    most = over_ideal.value - 1 if over_ideal is not None and over_ideal.value is not None else None
    gain, low, high = (
        None if end is None else end - 1 for end in (best.estimate.value, best.estimate.low, best.estimate.high)
    )
    if gain is None:
        return None
    sure = low is not None
    verdict = {"better": "faster", "worse": "slower", "n/a": "cannot tell"}.get(best.verdict, best.verdict)
    tcp = best_other(comparison, job.job, subject=label, among=over_tcp_of(comparison.results, job.job))
    return Headroom(
        job.job,
        best.subject,
        best.best,
        gain,
        low,
        high,
        most,
        best.rival if sure else best.best,
        tuple(best.left_out) if sure else (),
        verdict,
        tcp.words if tcp.best else "",
    )


def _percent(share: float) -> str:
    return ("+" if share > 0 else "") + show_number(100 * share, 1) + " %"
