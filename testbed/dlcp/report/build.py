"""Results → terminal tables, CSV files and a page that can be sent to a colleague."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Console

from dlcp.errors import ExitCode
from dlcp.files.atomic_file import write_whole
from dlcp.model.experiment import Expectation
from dlcp.report.analysis.changes import changes
from dlcp.report.analysis.comparison import compare
from dlcp.report.analysis.expectations import Outcome, evaluate
from dlcp.report.analysis.headline import headline
from dlcp.report.analysis.tables import all_tables
from dlcp.report.data.load import load
from dlcp.report.data.self_checks import problems
from dlcp.report.output.html import page
from dlcp.report.output.terminal import print_changes, print_comparison, print_outcomes, print_rest, print_unranked


@dataclass(frozen=True)
class ReportSummary:
    """Files and findings of a report. files: CSV and Parquet. statuses: status → runs. problems: what must not happen
    in any run. comparable: whether results that these were set against had the same fabric and jobs.
    """

    experiment: str
    html: Path
    files: tuple[Path, ...]
    headline: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    problems: tuple[str, ...]
    statuses: dict[str, int]
    comparable: bool = True

    @property
    def exit_code(self) -> ExitCode:
        """RUN_FAILED with a failed run; SUSPECT with a suspect one, a problem, an expectation that does not hold, or
        other results of another fabric."""
        if self.statuses.get("failed"):
            return ExitCode.RUN_FAILED
        broken = any(outcome.verdict == "does not hold" for outcome in self.outcomes)
        return ExitCode.SUSPECT if self._doubtful or broken else ExitCode.FINE

    @property
    def _doubtful(self) -> bool:
        return bool(self.statuses.get("suspect") or self.problems or not self.comparable)


def report(
    results: Path,
    out: Path | None = None,
    console: Console | None = None,
    *,
    only: Collection[str] | None = None,
    subject: str | None = None,
    expect: Iterable[Expectation] | None = None,
    against: Path | None = None,
) -> ReportSummary:
    """Analyse results/, results/<experiment> or one run; print tables; write report.html, and every table as
    report-*.csv and report-*.parquet.

    out: where the files go; default: the experiment's results directory. console: None prints nothing.
    only: ids of the runs to use. subject: the label whose gains are shown; default: DLCP's.
    expect: what is claimed; default: what the newest run says that its experiment claims.
    against: other results, to show what changed since, or to compare with; what else differs is listed before it.
    Raises Problem when there is nothing to analyse.
    """
    loaded = load(results, only)
    comparison = compare(loaded, subject)
    changed = None if against is None else changes(comparison, compare(load(against), subject))
    outcomes = evaluate(comparison, expect)
    wrong = problems(loaded)
    where = loaded.directory if out is None else out
    where.mkdir(parents=True, exist_ok=True)
    written = []
    for name, frame in all_tables(comparison, outcomes, changed).items():
        written += [where / f"{name}.csv", where / f"{name}.parquet"]
        write_whole(written[-2], frame.to_csv(index=False).encode())
        write_whole(written[-1], _parquet(frame))
    write_whole(where / "report.html", page(comparison, outcomes, wrong, changed).encode())
    statuses = dict(Counter(str(run.result.status) for run in loaded.runs))
    summary = ReportSummary(
        loaded.experiment,
        where / "report.html",
        tuple(written),
        headline(comparison),
        outcomes,
        wrong,
        statuses,
        changed is None or changed.comparable,
    )
    if console is not None:
        print_comparison(console, comparison)
        print_unranked(console, comparison)
        print_outcomes(console, outcomes)
        if changed is not None:
            print_changes(console, changed)
        print_rest(console, loaded, wrong, summary.headline, summary.html)
    return summary


def _parquet(frame: pd.DataFrame) -> bytes:
    """A column of mixed kinds (a monitor's bound may be a number or a word) goes as text."""
    mixed = [name for name in frame if len({type(value) for value in frame[name].dropna()}) > 1]
    buffer = io.BytesIO()
    frame.astype(dict.fromkeys(mixed, "string")).to_parquet(buffer, index=False)
    return buffer.getvalue()
