"""What a run of pytest did not decide, why, and what would decide it: a list at its end, grouped by reason.

A reason has two parts, "what is missing; what to do". One that begins with "inconclusive" is of a test that ran and
could not tell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pytest

INCONCLUSIVE = "inconclusive"
MOST_FILES = 3
"""Named for one reason; the others are counted."""
_NUMBER = re.compile(r"\d+(\.\d+)?")


@dataclass
class Group:
    """Tests, or whole files, that were skipped for one reason."""

    reason: str
    count: Counter[str] = field(default_factory=Counter)
    """Skips by their unit: "test", or "file" for one that was skipped before its tests were known."""
    files: Counter[str] = field(default_factory=Counter)

    @property
    def inconclusive(self) -> bool:
        return self.reason.startswith(INCONCLUSIVE)

    def lines(self) -> Iterator[str]:
        """Count and cause, remedy, files."""
        cause, _, remedy = self.reason.partition("; ")
        counts = ", ".join(_several(count, unit) for unit, count in sorted(self.count.items()))
        yield f"{counts}: {cause}"
        yield f"    to run: {remedy}" if remedy else "    to run: the reason does not say"
        named = [name for name, _ in self.files.most_common(MOST_FILES)]
        others = len(self.files) - len(named)
        yield f"    in {', '.join(named)}" + (f" and {_several(others, 'other file')}" if others else "")


def groups(reports: Iterable[pytest.TestReport | pytest.CollectReport]) -> list[Group]:
    """Skips by reason, the most frequent first. Reasons that differ in numbers only, such as a measured share, count
    as one."""
    by_reason: dict[str, Group] = {}
    for report in reports:
        if not isinstance(report.longrepr, tuple):  # an expected failure
            continue
        reason = report.longrepr[2].removeprefix("Skipped: ")
        group = by_reason.setdefault(_NUMBER.sub("#", reason), Group(reason))
        group.count["test" if isinstance(report, pytest.TestReport) else "file"] += 1
        group.files[report.nodeid.partition("::")[0]] += 1
    return sorted(by_reason.values(), key=lambda group: (group.inconclusive, -group.count.total(), group.reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the list. Where tests run in several processes, the one that prints has the reports of all."""
    skipped = groups(terminalreporter.stats.get("skipped", []))
    if not skipped:
        return
    total = sum(group.count.total() for group in skipped)
    unclear = sum(group.count.total() for group in skipped if group.inconclusive)
    title = f"{total - unclear} skipped, {unclear} inconclusive"
    terminalreporter.section(title, yellow=True)
    for group in skipped:
        for line in group.lines():
            terminalreporter.line(line)


def _several(count: int, unit: str) -> str:
    return f"{count} {unit}{'s' if count != 1 else ''}"
