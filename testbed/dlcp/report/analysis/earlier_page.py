"""Compare the figures of an earlier page with those of the same experiments on this one: the ground has changed.

The earlier page's figures are in the folder of RESULTS.md, one row a scheme in a job (columns: COLUMNS), with words in
a text of the same name. Job completion is over that of an ideal transport: the earlier runs may have had more
iterations. The ideal is that of a scheme's own messages, as everywhere in a report, and unrounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from dlcp.errors import Problem
from dlcp.report.analysis.comparison import Comparison
from dlcp.report.analysis.headroom import headroom

FILE = "before.csv"
COLUMNS = ("experiment", "job", "label", "jct_over_ideal", "rival", "gain_percent", "low_percent", "high_percent")
"""gain_percent with its interval: over the best other scheme, `rival`; empty for schemes that are not DLCP's."""
METRIC = "jct_over_ideal"
BUFFERS = "buffers"
"""The experiment that runs one job of the earlier page under both buffer models: its job SINGLE_POOL has the model of
that page, DYNAMIC the one of the other experiments on this page."""
SINGLE_POOL, DYNAMIC = "static", "alpha-1"
SAME_JOB = ("headline", "resnet50")
"""Experiment and job of the earlier page that those jobs are."""


def before(folder: Path, comparisons: Sequence[Comparison]) -> Iterator[str]:
    """The chapter, a line at a time; nothing where the folder has no FILE. Problem when it lacks a column."""
    file = folder / FILE
    if not file.is_file():
        return
    earlier = pd.read_csv(file, keep_default_na=True)
    if missing := [column for column in COLUMNS if column not in earlier]:
        raise Problem(str(file), f"lacks {', '.join(missing)}", f"its columns are {', '.join(COLUMNS)}")
    shown = [comparison for comparison in comparisons if comparison.results.experiment in set(earlier["experiment"])]
    if not shown:
        return
    yield "## Before and now"
    yield ""
    yield _words(file)
    yield ""
    yield "| experiment | job | DLCP over the best other scheme, before | now |"
    yield "|---|---|---|---|"
    for comparison in shown:
        yield from _gains(comparison, _of(earlier, comparison))
    yield ""
    for comparison in shown:
        yield from _completions(comparison, _of(earlier, comparison))
    for comparison in comparisons:
        yield from _machine_or_buffer(comparison, earlier)


def _machine_or_buffer(buffers: Comparison, earlier: pd.DataFrame) -> Iterator[str]:
    """Split what changed for one job: first the machine and the engine, under the earlier page's buffer model; then the
    buffer model alone."""
    gains = {room.job: f"{room.gain_words} over {room.rival}" for room in headroom(buffers)}
    if buffers.results.experiment != BUFFERS or not {SINGLE_POOL, DYNAMIC} <= gains.keys():
        return
    experiment, job = SAME_JOB
    job_rows = earlier[(earlier["experiment"] == experiment) & (earlier["job"] == job)].set_index("label")
    times = {each.job: each.estimates for each in buffers.jobs}
    yield f"**The machine or the buffer?** {experiment}, {job}: job completion over that of an ideal transport."
    yield ""
    yield "| | before: one pool | now: one pool | now: dynamic thresholds |"
    yield "|---|---|---|---|"
    for label in buffers.results.labels():
        estimates = [times[name].get((label, METRIC)) for name in (SINGLE_POOL, DYNAMIC)]
        values = [job_rows[METRIC].get(label), *(estimate and estimate.value for estimate in estimates)]
        yield f"| {label} | {' | '.join('–' if value is None else f'{value:.2f}' for value in values)} |"
    dlcp = job_rows[job_rows["gain_percent"].notna()].iloc[0]
    yield f"| DLCP over the best other | {_gain(dlcp)} | {gains[SINGLE_POOL]} | {gains[DYNAMIC]} |"
    yield ""


def _gain(row: pd.Series) -> str:
    """Return a row's gain with its interval, in words."""
    text = f"{row['gain_percent']:+.1f} % [{row['low_percent']:.1f}, {row['high_percent']:.1f}] over {row['rival']}"
    return text.replace("-", "−")


def _words(file: Path) -> str:
    """Return the text on what the ground was then and is now, which no stored run tells."""
    words = file.with_suffix(".md")
    if not words.is_file():
        raise Problem(str(words), "is not there", f"write what was different when {file.name} was measured")
    return words.read_text(encoding="utf-8").strip()


def _of(earlier: pd.DataFrame, comparison: Comparison) -> pd.DataFrame:
    return earlier[earlier["experiment"] == comparison.results.experiment]


def _gains(comparison: Comparison, earlier: pd.DataFrame) -> Iterator[str]:
    for room in headroom(comparison):
        earlier_rows = earlier[(earlier["job"] == room.job) & (earlier["label"] == room.subject)]
        if len(earlier_rows) != 1:
            continue
        yield (
            f"| {comparison.results.experiment} | {room.job}{'' if room.subject == 'DLCP' else f', {room.subject}'} "
            f"| {_gain(earlier_rows.iloc[0])} | {room.gain_words} over {room.rival} |"
        )


def _completions(comparison: Comparison, earlier: pd.DataFrame) -> Iterator[str]:
    """Schemes are rows, jobs columns; both times over the ideal transport's for the scheme's messages."""
    cells: dict[str, dict[str, str]] = {}
    for job in comparison.jobs:
        job_rows = earlier[earlier["job"] == job.job].set_index("label")[METRIC]
        for label in job.labels:
            now = job.estimates.get((label, METRIC))
            if label in job_rows.index and now is not None and now.value is not None:
                cells.setdefault(label, {})[job.job] = f"{job_rows[label]:.2f} → {now.value:.2f}"
    jobs = [job.job for job in comparison.jobs if any(job.job in row for row in cells.values())]
    if not jobs:
        return
    yield (
        f"**{comparison.results.experiment}**: job completion over that of an ideal transport for the scheme's own "
        "messages, before → now. A row compares with itself; the table above compares schemes."
    )
    yield ""
    yield f"| | {' | '.join(jobs)} |"
    yield "|---" * (len(jobs) + 1) + "|"
    for label, row in cells.items():
        yield f"| {label} | {' | '.join(row.get(job, '–') for job in jobs)} |"
    yield ""
