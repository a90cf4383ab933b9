"""Gain of a scheme over the best of the others, against the gain that any transport could reach."""

from __future__ import annotations

from dataclasses import dataclass

from dlcp.model.metrics import METRICS, REACHABLE_OF
from dlcp.report.analysis.best import best_other, ours_of, over_tcp_of
from dlcp.report.analysis.comparison import Comparison, JobComparison
from dlcp.report.data.formatting import show_number
from dlcp.report.data.load import ideals_s_of


@dataclass(frozen=True)
class Headroom:
    """One job and one scheme of DLCP's. gain, low, high: additional speed of the subject over the best other, as
    shares (0.1 = 10 % faster); None where too few pairs carry an interval. most: what any transport could add to
    the best other. rival: the best other, and what is uncertain about it, in words. left_out: others with too few
    pairs to be counted, of which any may be the best. verdict: "faster", "slower", "no clear difference", or
    "cannot tell": without an interval, or because another that is not counted may be faster still. over_tcp: the
    same over the best of those that TCP carries, in words; empty where there is none."""

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
        _most(comparison, job, best.best),
        best.rival if sure else best.best,
        tuple(best.left_out) if sure else (),
        verdict,
        tcp.words if tcp.best else "",
    )


def _most(comparison: Comparison, job: JobComparison, label: str) -> float | None:
    """Return by how much a scheme's completion time is above the least that any transport could reach; where results
    are older than that bound, above the ideal transport's."""
    reachable_s = ideals_s_of(comparison.results, job.job, REACHABLE_OF["jct_s"])
    took = job.estimates.get((label, "jct_s" if reachable_s else "jct_over_ideal"))
    if took is None or took.value is None:
        return None
    return took.value / min(reachable_s.values(), default=1.0) - 1


def _percent(share: float) -> str:
    return ("+" if share > 0 else "") + show_number(100 * share, 1) + " %"
