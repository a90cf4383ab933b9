"""RESULTS.md: what many experiments say together, each of its numbers and figures from stored runs.

Words about what was published, and why, are those of the experiment files (`expect:`, keys paper and why).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dlcp.errors import Problem
from dlcp.files.atomic_file import write_whole
from dlcp.model.experiment import Expectation
from dlcp.model.metrics import METRICS, Metric
from dlcp.report.analysis.causes import cause
from dlcp.report.analysis.comparison import Comparison, compare
from dlcp.report.analysis.earlier_page import before
from dlcp.report.analysis.expectations import Outcome, evaluate
from dlcp.report.analysis.headroom import Headroom, headroom
from dlcp.report.data.formatting import show_setting
from dlcp.report.data.load import Results, load
from dlcp.report.data.regime_facts import regime_facts
from dlcp.report.output.results_md_tables import cost_table, metric_table, search_table
from dlcp.report.plots import style
from dlcp.report.plots.across_jobs import along_axis, speedups
from dlcp.report.plots.by_job import by_job
from dlcp.report.plots.loss import accuracy_against_loss
from dlcp.report.plots.parts import waterfall

PAGE = "RESULTS.md"
IMAGES = "images"
DOTS_AN_INCH = 110
NOT_RUN = "not run"
MANY_QUEUES = 3
"""Queues in which DLCP sends data unless a knob says otherwise."""
VERDICTS = ("holds", "does not hold", "cannot tell", NOT_RUN)
"""An expectation of what the reduced experiment leaves out is not run; of what did run, these results may not tell."""


@dataclass(frozen=True)
class Chapter:
    """One experiment of the page. run_ids: its runs that count, whether they were made or not. reduction: what of the
    whole experiment they leave out, in words. unsupported: (label, why). cannot: why no run can be made here."""

    name: str
    description: str
    folder: Path
    run_ids: frozenset[str]
    expect: tuple[Expectation, ...]
    reduction: str = "whole"
    unsupported: tuple[tuple[str, str], ...] = ()
    cannot: str = ""


@dataclass(frozen=True)
class _Told:
    """A chapter and what its runs say; without runs `why` says so."""

    chapter: Chapter
    comparison: Comparison | None = None
    outcomes: tuple[Outcome, ...] = ()
    headrooms: tuple[Headroom, ...] = ()
    why: str = ""
    pictures: tuple[tuple[str, str], ...] = field(default=())


def write(chapters: Sequence[Chapter], out: Path) -> Path:
    """Write out/RESULTS.md and its figures in out/images; returns the page's path. The same runs give the same page.

    Problem when no chapter has a run.
    """
    (out / IMAGES).mkdir(parents=True, exist_ok=True)
    told = [_tell(chapter, out) for chapter in chapters]
    if not any(one.comparison for one in told):
        raise Problem(str(out / PAGE), "there is no run to write of", "dlcp paper makes them")
    page = out / PAGE
    write_whole(page, ("\n".join(_page(told, out)) + "\n").encode())
    return page


def _tell(chapter: Chapter, out: Path) -> _Told:
    if chapter.cannot:
        return _Told(chapter, why=f"This machine cannot make it: {chapter.cannot}")
    try:
        results = load(chapter.folder, chapter.run_ids)
    except Problem as problem:
        return _Told(chapter, why=f"Not run: {problem.what}.")
    comparison = compare(results)
    pictures = tuple(_pictures(comparison, _metrics(comparison, chapter.expect), out))
    return _Told(chapter, comparison, evaluate(comparison, chapter.expect), headroom(comparison), pictures=pictures)


def _pictures(comparison: Comparison, metrics: Sequence[Metric], out: Path) -> Iterable[tuple[str, str]]:
    """Draw a figure a metric, and what became of the jobs' speed; yields (path from the page on, what it shows)."""
    drawn = [
        (
            metric.name,
            f"{metric.title} by job and scheme",
            along_axis(comparison, metric.name) or by_job(comparison, metric),
        )
        for metric in metrics
    ]
    drawn.append(("speedups", "speed of every scheme over the reference", speedups(comparison)))
    for job in (one.job for one in comparison.jobs):
        drawn.append((f"parts-{job}", f"what the parts of DLCP are worth to {job}", waterfall(comparison, job)))
        drawn.append((f"loss-{job}", f"accuracy of {job} against loss", accuracy_against_loss(comparison, job)))
    for name, shows, figure in drawn:
        if figure is None:
            continue
        path = f"{IMAGES}/results-{comparison.results.experiment}-{name.replace('_', '-')}.png"
        with style.applied():
            figure.savefig(out / path, dpi=DOTS_AN_INCH, metadata={"Software": None})
        yield path, shows


def _metrics(comparison: Comparison, expect: Iterable[Expectation]) -> list[Metric]:
    """What the chapter shows: what it expects something of, and job completion, where a run has it."""
    named = dict.fromkeys((*(one.metric for one in expect if one.metric in METRICS), "jct_s"))
    return [METRICS[name] for name in named if any(METRICS[name] in job.metrics for job in comparison.jobs)]


def _page(told: Sequence[_Told], out: Path) -> Iterable[str]:
    yield "# Results"
    yield ""
    yield (
        "Written by `make paper` from stored runs; every number and figure is computed, none is typed. Times are lab "
        "time: those of the emulation, which is in slow motion, divided by its time dilation."
    )
    yield ""
    yield from _in_short(told)
    yield from _origin([one.comparison.results for one in told if one.comparison is not None])
    yield from _gains(told)
    yield from before(out, [one.comparison for one in told if one.comparison is not None])
    yield from _verdicts(told)
    for one in told:
        yield from _chapter(one)


def _in_short(told: Sequence[_Told]) -> Iterator[str]:
    """The answer in counts: DLCP against the best other scheme, and what became of the expectations."""
    rooms = [(one.chapter.name, room) for one in told for room in one.headrooms if room.verdict != "cannot tell"]
    cells = sum(len(one.headrooms) for one in told)
    counted = Counter(room.verdict for _, room in rooms)
    yield "## In short"
    yield ""
    yield (
        f"* Job completion, DLCP (each of its settings, in each job) against the best other scheme: clearly faster in "
        f"{counted['faster']} of {cells} comparisons, clearly slower in {counted['slower']}, no clear difference in "
        f"{counted['no clear difference']}, cannot be told in {cells - len(rooms)}."
    )
    for words, (name, room) in zip(("Most", "Least"), _ends(rooms), strict=False):
        yield (
            f"* {words}: {room.gain_words}, {room.subject} over {room.rival} in {name}, job {room.job}; no "
            f"transport could add more than {room.most_words} there."
        )
    verdicts = Counter(_verdict(outcome) for one in told for outcome in one.outcomes)
    shown = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in VERDICTS)
    yield f"* Of {verdicts.total()} expectations that follow from what was published: {shown}."
    lacking = [f"{_missing(one)} in {one.chapter.name}" for one in told if one.comparison is not None and _missing(one)]
    if lacking:
        yield f"* **Planned runs that are missing**: {', '.join(lacking)}. A scheme without runs is among no others."
    absent = [one.chapter.name for one in told if one.comparison is None]
    if absent:
        yield f"* Experiments without any run: {', '.join(absent)}."
    yield ""


def _missing(one: _Told) -> int:
    """Runs of the chapter's plan that were not made."""
    made = {run.result.run_id for run in one.comparison.results.runs} if one.comparison is not None else set()
    return len(one.chapter.run_ids - made)


def _verdict(outcome: Outcome) -> str:
    return str(outcome.verdict) if outcome.ran else NOT_RUN


def _ends(rooms: Sequence[tuple[str, Headroom]]) -> list[tuple[str, Headroom]]:
    """The comparison with the largest gain and the one with the smallest; one or none where there are no more."""
    ordered = sorted(rooms, key=lambda one: one[1].gain)
    return [*ordered[-1:], *ordered[:-1][:1]]


def _origin(all_results: Sequence[Results]) -> Iterable[str]:
    """Code and machine that the runs come from, and how many there are of what status."""
    yield "## Where it comes from"
    yield ""
    runs = [run.result for results in all_results for run in results.runs]
    for name, path in (("commit", "commit"), ("kernel", "kernel"), ("cores", "cores"), ("Python", "python")):
        counted = Counter(show_setting(path, run.provenance.get(path, "unknown")) for run in runs)
        shown = "; ".join(
            f"{value[:12]} ({count} runs)" if len(counted) > 1 else value[:40]
            for value, count in counted.most_common(4)
        )
        yield f"* {name}: {shown}"
    changed = sum(bool(run.provenance.get("dirty")) for run in runs)
    if changed:
        yield f"* {changed} of {len(runs)} runs come from a tree that differs from its commit"
    statuses = Counter(str(run.status) for run in runs)
    yield f"* runs: {len(runs)}, of which " + ", ".join(f"{count} {status}" for status, count in statuses.most_common())
    yield (
        "* suspect runs (the machine was too busy to be believed) and failed ones (such as past their time limit) are "
        "in no mean and no quantile; tables count them beside the figure that lacks them"
    )
    yield "* knobs, costs and monitors of every scheme: `dlcp report results/EXPERIMENT`"
    yield ""


def _verdicts(told: Sequence[_Told]) -> Iterable[str]:
    yield "## What holds"
    yield ""
    yield "Every expectation is a line of an experiment file, taken from what was published; 95 % intervals decide."
    yield ""
    yield f"| experiment | expectations | {' | '.join(VERDICTS)} | runs | suspect | failed |"
    yield "|---" * (len(VERDICTS) + 5) + "|"
    for one in told:
        counted = Counter(_verdict(outcome) for outcome in one.outcomes)
        runs = one.comparison.results.runs if one.comparison is not None else ()
        statuses = Counter(str(run.result.status) for run in runs)
        cells = " | ".join(str(counted[verdict]) for verdict in VERDICTS)
        name = one.chapter.name
        yield (
            f"| [{name}](#{name}) | {len(one.outcomes)} | {cells} | {len(runs)} | {statuses['suspect']} "
            f"| {statuses['failed']} |"
        )
    yield ""


def _gains(told: Sequence[_Told]) -> Iterable[str]:
    """The additional speed-up over the best other scheme, of every job that has a completion time."""
    yield "## Over the best other scheme"
    yield ""
    yield (
        "Additional training speed: the best other scheme's job completion over DLCP's, minus one. `best other` is "
        "the fastest of those that ran here (in brackets: what may be as fast in truth; not counted: too few runs that "
        "count, so that it may be faster); DLCP's own parts and combinations are not among the others. The interval is "
        "that of the smallest gain over any other scheme, so that choosing the best after looking does not narrow it. "
        "`at most` is what the least completion time that any transport could reach would add to the best other: no "
        "scheme that moves all bytes can exceed it (results older than that bound: the ideal transport's). `over TCP`: "
        "over the best of those that TCP carries; the others run on DLCP's own engine, whose repair and pacing they "
        "have in common with it."
    )
    yield ""
    yield (
        "| experiment | job | lab links | byte scale × dilation | scheme | best other | additional speed | at most "
        "| over TCP |"
    )
    yield "|---" * 9 + "|"
    for one in told:
        for room in one.headrooms:
            assert one.comparison is not None
            regime = one.comparison.results.example(room.job).regime
            facts = dict(regime_facts(regime))
            scale = f"{regime.get('byte_scale', 1):g} × {regime.get('time_dilation', 1):g}"
            yield (
                f"| {one.chapter.name} | {room.job} | {facts.get('lab links', '–')} | {scale} | {room.subject} "
                f"| {room.rival} | {room.gain_words} | {room.most_words} | {room.over_tcp or '–'} |"
            )
    yield ""


def _chapter(one: _Told) -> Iterable[str]:
    chapter = one.chapter
    yield f"## {chapter.name}"
    yield ""
    yield f"{chapter.description}. `dlcp run {chapter.name}` runs the whole; here: {chapter.reduction}."
    yield ""
    if one.comparison is None:
        yield one.why
        yield ""
        return
    if missing := _missing(one):
        planned = len(chapter.run_ids)
        yield f"* **{missing} of {planned} planned runs are missing**: `dlcp run {chapter.name}` makes them"
    yield from _regimes(one.comparison)
    for label, why in chapter.unsupported:
        yield f"* {label} is unsupported: {why}"
    yield ""
    for metric in _metrics(one.comparison, chapter.expect):
        yield from metric_table(one.comparison, metric)
    yield from search_table(one.comparison)
    yield from cost_table(one.comparison)
    for path, shows in one.pictures:
        yield f"![{chapter.name}: {shows}]({path})"
        yield ""
    yield from _claims(one)


def _regimes(comparison: Comparison) -> Iterable[str]:
    """A line a regime, with the jobs that have it."""
    jobs_of: dict[str, list[str]] = {}
    for job in comparison.results.jobs:
        facts = [
            (name, value)
            for name, value in regime_facts(comparison.results.example(job).regime)
            if not name.endswith("RTO floor")
        ]
        jobs_of.setdefault(", ".join(f"{name} {value}" for name, value in facts), []).append(job)
    for regime, jobs in jobs_of.items():
        yield f"* {', '.join(jobs)}: {regime}"
    regimes = [comparison.results.example(job).regime for job in comparison.results.jobs]
    yield from _several_queues({one["buffer_alpha"] for one in regimes if one.get("buffering") == "dynamic"})


def _several_queues(alphas: Iterable[float]) -> Iterable[str]:
    """Yield how much more memory the queues of one scheme hold together under dynamic thresholds; nothing without."""
    shares = [
        f"at alpha {alpha:g} one takes {100 * alpha / (1 + alpha):.0f} % of it and {MANY_QUEUES} take "
        f"{100 * MANY_QUEUES * alpha / (1 + MANY_QUEUES * alpha):.0f} %"
        for alpha in sorted(alphas)
    ]
    if shares:
        yield (
            "* Each queue that floods a port has a threshold of its own in the switch's memory: "
            f"{', '.join(shares)}. A scheme of several queues, such as DLCP, has that much more buffer than TCP in "
            "one; `buffers` compares them at other alphas and with a static pool"
        )


def _claims(one: _Told) -> Iterable[str]:
    """Paper, ours, why: a row an expectation; for what does not hold the measured cause."""
    if not one.outcomes or one.comparison is None:
        return
    yield "`Expected` is what was thought before the runs, not what they showed; `measured` is what they showed."
    yield ""
    yield "| | claim | the paper | ours | why |"
    yield "|---|---|---|---|---|"
    for outcome in one.outcomes:
        said = [f"Expected: {outcome.why}"] if outcome.why else []
        measured = cause(one.comparison, outcome) if outcome.verdict == "does not hold" else ""
        said += [f"Measured: {measured}"] if measured else []
        yield (
            f"| **{_verdict(outcome)}** | {outcome.claim} | {outcome.paper or '–'} | {outcome.words} "
            f"| {'. '.join(said) or '–'} |"
        )
    yield ""
