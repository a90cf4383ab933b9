"""Results → terminal tables, CSV files and a page that can be sent to a colleague."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from dlcp.errors import ExitCode
from dlcp.model.experiment import Expectation
from dlcp.report.checks import problems
from dlcp.report.comparison import compare
from dlcp.report.expectations import Outcome, evaluate
from dlcp.report.headline import headline
from dlcp.report.load import load
from dlcp.report.page import page
from dlcp.report.tables import all_tables
from dlcp.report.terminal import print_comparison, print_outcomes, print_rest


@dataclass(frozen=True)
class ReportSummary:
    """What a report wrote and found. statuses: status → runs. problems: what must not happen in any run."""

    experiment: str
    html: Path
    csv: tuple[Path, ...]
    headline: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    problems: tuple[str, ...]
    statuses: dict[str, int]

    @property
    def exit_code(self) -> ExitCode:
        """RUN_FAILED with a failed run; SUSPECT with a suspect one, a problem, or an expectation that does not hold."""
        if self.statuses.get("failed"):
            return ExitCode.RUN_FAILED
        broken = any(outcome.verdict == "does not hold" for outcome in self.outcomes)
        return ExitCode.SUSPECT if self.statuses.get("suspect") or self.problems or broken else ExitCode.FINE


def report(
    results: Path,
    out: Path | None = None,
    console: Console | None = None,
    *,
    only: Collection[str] | None = None,
    subject: str | None = None,
    expect: Iterable[Expectation] | None = None,
) -> ReportSummary:
    """Analyse results/, results/<experiment> or one run; print tables; write report.html and report-*.csv.

    out: where the files go; default: the experiment's results directory. console: None prints nothing.
    only: ids of the runs to use. subject: the label whose gains are shown; default: DLCP's.
    expect: what is claimed; default: what the newest run says that its experiment claims.
    Raises Problem when there is nothing to analyse.
    """
    loaded = load(results, only)
    comparison = compare(loaded, subject)
    outcomes = evaluate(comparison, expect)
    wrong = problems(loaded)
    where = loaded.directory if out is None else out
    where.mkdir(parents=True, exist_ok=True)
    written = []
    for name, frame in all_tables(comparison, outcomes).items():
        written.append(where / f"{name}.csv")
        _replace(written[-1], frame.to_csv(index=False))
    _replace(where / "report.html", page(comparison, outcomes, wrong))
    statuses = dict(Counter(str(run.result.status) for run in loaded.runs))
    summary = ReportSummary(loaded.experiment, where / "report.html", tuple(written), headline(comparison), outcomes,
                            wrong, statuses)  # fmt: skip
    if console is not None:
        print_comparison(console, comparison)
        print_outcomes(console, outcomes)
        print_rest(console, loaded, wrong, summary.headline, summary.html)
    return summary


def _replace(file: Path, text: str) -> None:
    """Write a file whole or not at all."""
    partial = file.with_name(file.name + ".part")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, file)
