"""Rows of a verification: intended against measured, each with its verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from dlcp.errors import ExitCode

Verdict = Literal["ok", "deviates", "inconclusive", "unsupported"]
VERDICTS: tuple[Verdict, ...] = ("deviates", "inconclusive", "ok", "unsupported")


@dataclass(frozen=True)
class Row:
    """One thing that was looked at.

    check: which kind, such as "rate". where: a switch, a port (SWITCH-NEIGHBOUR) or a link. what: which queue,
    precedence, codepoints. tolerance: within which measured may differ, in words. why: of any verdict but ok.
    data: samples and numbers behind the words.
    """

    check: str
    where: str
    what: str
    intended: str
    measured: str
    tolerance: str
    verdict: Verdict
    why: str = ""
    data: dict[str, Any] = field(default_factory=dict)


def unsupported(check: str, where: str, what: str, intended: str, why: str) -> Row:
    """A row of something that these probes, here, cannot look at."""
    return Row(check, where, what, intended, "", "", "unsupported", why)


def starved(row: Row, why: str) -> Row:
    """The row as it stands when the probes themselves were starved: what deviates is then not proven."""
    if not why or row.verdict != "deviates":
        return row
    reason = f"{row.why}; " if row.why else ""
    return Row(**{**vars(row), "verdict": "inconclusive", "why": f"{reason}but the probes were starved: {why}"})


def counts(rows: Iterable[Row]) -> dict[Verdict, int]:
    """How many rows have each verdict."""
    verdicts = [row.verdict for row in rows]
    return {verdict: verdicts.count(verdict) for verdict in VERDICTS}


def exit_code(rows: Iterable[Row]) -> ExitCode:
    """4 when anything deviates or could not be concluded; unsupported rows are no fault of the switches."""
    totals = counts(rows)
    return ExitCode.SUSPECT if totals["deviates"] or totals["inconclusive"] else ExitCode.FINE
