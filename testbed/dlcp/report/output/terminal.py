"""The comparison as tables in a terminal: schemes are rows, figures columns, gains below them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dlcp.model.metrics import METRICS, Metric
from dlcp.report.analysis.changes import FABRIC_KINDS, Changes
from dlcp.report.analysis.comparison import Comparison, JobComparison
from dlcp.report.analysis.expectations import Outcome
from dlcp.report.analysis.remarks import remarks
from dlcp.report.analysis.repeats import unranked
from dlcp.report.data.formatting import Unit, show_estimate, show_gain, unit_of
from dlcp.report.data.load import Results
from dlcp.report.data.statistics import Gain

_GROUPS = (
    ("jct_s", "iteration_p50_s", "iteration_p99_s", "exposed_comm_s"),
    ("message_p50_s", "message_p99_s", "message_p999_s"),
    ("final_accuracy", "time_to_accuracy_s", "steps_to_accuracy"),
    ("lost_share", "lost_energy_share", "gradient_energy_lost", "resent_share", "dropped_share", "marked_share"),
)
MOST_LINES = 12
MOST_NAMED = 4
"""Schemes that are named with one reason of a refusal."""
_STYLES = {"better": "green", "worse": "red", "not judged": ""}
_MARKS = {"holds": ("✓", "green"), "does not hold": ("✗", "red"), "cannot tell": ("?", "yellow")}


def print_comparison(console: Console, comparison: Comparison) -> None:
    """All jobs' tables, each followed by the reasons of what was refused and by what may surprise."""
    for job in comparison.jobs:
        console.print()
        console.print(Text.assemble((job.job, "bold"), ("   " + _counts(job), "dim")))
        refused: dict[str, dict[str, None]] = {}
        for group in _GROUPS:
            metrics = [METRICS[name] for name in group if METRICS[name] in job.metrics]
            if metrics:
                console.print(_table(job, metrics, refused))
        for number, (reason, cells) in enumerate(refused.items(), 1):
            console.print(Text(f"  [{number}] {reason}: {_some(cells, MOST_NAMED, ', ')}", style="dim"))
        for remark in remarks(comparison.results, job):
            console.print(Padding(Text(remark), (1, 0, 0, 2)))


def print_unranked(console: Console, comparison: Comparison) -> None:
    """Print the comparisons that these repeats cannot decide, at most MOST_LINES, and the repeats that would."""
    undecided = unranked(comparison)
    if undecided:
        console.print(Text("\nwhat these repeats cannot rank", style="bold"))
    for line in undecided[:MOST_LINES]:
        console.print(Padding(Text(line.words, style="dim"), (0, 0, 0, 2)))
    if len(undecided) > MOST_LINES:
        console.print(Text(f"  and {len(undecided) - MOST_LINES} more: see the page", style="dim"))


def print_changes(console: Console, changed: Changes) -> None:
    """Print the differences in the set-up first, then every figure that changed clearly."""
    console.print(Text(f"\nagainst {changed.theirs.results.directory}", style="bold"))
    if not changed.comparable:
        console.print(
            Text(
                "  the fabrics or jobs were not the same: the changes below are not the schemes' alone",
                style="bold yellow",
            )
        )
    for difference in changed.differences:
        values = f"{difference.ours} here, {difference.theirs} there ({_some(difference.cells)})"
        line = f"  {difference.kind}: {difference.what}: {values}"
        console.print(Text(line, style="yellow" if difference.kind in FABRIC_KINDS else "dim"))
    for side, cells in (("only here", changed.only_ours), ("only there", changed.only_theirs)):
        if cells:
            console.print(Text(f"  {side}: {_some(cells)}", style="dim"))
    clear = [row for row in changed.rows if row.verdict in ("better", "worse", "not judged")]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for title in ("job", "scheme", "figure", "change", "here", "there"):
        table.add_column(title)
    for row in clear:
        unit = unit_of(row.metric, [row.ours.value, row.theirs.value])
        sides = [show_estimate(side, row.metric, unit) for side in (row.ours, row.theirs)]
        change = Text(row.words, style=_STYLES.get(row.verdict, ""))
        table.add_row(row.job, row.label, row.metric.title, change, *sides)
    if clear:
        console.print(table)
    unchanged = len(changed.rows) - len(clear)
    console.print(Text(f"  {unchanged} of {len(changed.rows)} figures show no clear change", style="dim"))


def _some(cells: Collection[str], most: int = 3, between: str = "; ") -> str:
    return between.join(list(cells)[:most]) + (f" and {len(cells) - most} more" if len(cells) > most else "")


def print_outcomes(console: Console, outcomes: tuple[Outcome, ...]) -> None:
    """The experiment's expectations, one a line, with the numbers that decided."""
    if outcomes:
        console.print(Text("\nwhat the experiment expects", style="bold"))
    for outcome in outcomes:
        mark, colour = _MARKS[outcome.verdict]
        console.print(
            Text.assemble(
                (f"  {mark} ", colour), outcome.claim, (f"   {outcome.verdict}: ", colour), (outcome.words, "dim")
            )
        )


def print_rest(
    console: Console, results: Results, problems: tuple[str, ...], headline: tuple[str, ...], page: Path
) -> None:
    """Print problems, what was left out, the result in sentences, and the path of the page."""
    for line in results.degraded:
        console.print(Text(f"  degraded: {line}", style="yellow"))
    for problem in problems:
        console.print(Text(f"  ✗ {problem}", style="bold red"))
    for run in results.runs:
        if not run.trusted:
            result = run.result
            line = f"{result.label}, {result.job}, repeat {result.repeat + 1} is {result.status}: {result.reason}"
            console.print(Text(f"  ! {line}", style="yellow"))
    for left_out in results.left_out:
        console.print(Text(f"  left out: {left_out.path.name}: {left_out.why}", style="dim"))
    console.print()
    for sentence in headline:
        console.print(Text(sentence, style="bold"))
    console.print(Text(f"\npage: {page}"), soft_wrap=True)


def _counts(job: JobComparison) -> str:
    parts = []
    for label in job.labels:
        counts = job.counts[label]
        others = [f"{counts[status]} {status}" for status in ("suspect", "failed", "unsupported") if counts.get(status)]
        parts.append(f"{label}: {counts.get('ok', 0)} runs" + (f" (left out: {', '.join(others)})" if others else ""))
    return ", ".join(parts)


def _table(job: JobComparison, metrics: list[Metric], refused: dict[str, dict[str, None]]) -> Table:
    """refused collects the reasons of cells without a figure, and whose they are. A row of gains that are all refused
    is left out."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    units = {
        metric.name: unit_of(metric, [job.estimates[label, metric.name].value for label in job.labels])
        for metric in metrics
    }
    for metric in metrics:
        table.add_column(f"{metric.title} ({units[metric.name].sign})", justify="right")
    for label in job.labels:
        table.add_row(
            _label(job, label), *(_cell(job, label, metric, units[metric.name], refused) for metric in metrics)
        )
    for against in job.labels[:-1]:
        gains = [job.gains[against, metric.name] for metric in metrics]
        cells = [_gain_cell(gain, refused) for gain in gains]
        if any(gain.estimate.has_interval for gain in gains):
            table.add_row(Text(f"over {against}", style="dim"), *cells)
    return table


def _label(job: JobComparison, label: str) -> Text:
    """The scheme's name, marked when runs of it are suspect and so not in its figures."""
    suspect = job.counts[label].get("suspect", 0)
    return Text.assemble(
        (label, "bold" if label == job.subject else ""), (f" !{suspect} suspect", "yellow") if suspect else ""
    )


def _cell(job: JobComparison, label: str, metric: Metric, unit: Unit, refused: dict[str, dict[str, None]]) -> Text:
    estimate = job.estimates[label, metric.name]
    shown = show_estimate(estimate, metric, unit, with_unit=False)
    if estimate.why:
        reason = f"{metric.title.split()[0]} {estimate.why}" if metric.tail else estimate.why
        shown += _mark(refused, reason, label)
    return Text(shown, style="" if estimate.has_interval else "dim")


def _gain_cell(gain: Gain, refused: dict[str, dict[str, None]]) -> Text:
    if gain.estimate.has_interval:
        return Text(show_gain(gain), style=_STYLES.get(gain.verdict, "dim"))
    metric, why = gain.metric, gain.estimate.why
    reason = why if gain.estimate.method == "paired t" else f"{metric.title.split()[0]} {why}"
    return Text("n/a" + _mark(refused, reason, f"{gain.subject} over {gain.against}"), style="dim")


def _mark(refused: dict[str, dict[str, None]], reason: str, whose: str) -> str:
    """The number of a reason, which stands below the table with those that it holds for."""
    refused.setdefault(reason, {})[whose] = None
    return f" [{list(refused).index(reason) + 1}]"
