"""A second opinion: what is not as intended is measured again, and the majority decides.

Probes on a machine that is busy with other work are disturbed now and then, a switch that does something else does so
every time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dlcp.verification.rows import Row

TRIES = 3


def settled(measure: Callable[[], list[Row]]) -> list[Row]:
    """The rows of one measurement when all are ok or unsupported; else of TRIES, each row by what most of them say, or
    inconclusive when no two agree."""
    tries = [measure()]
    if all(row.verdict in ("ok", "unsupported") for row in tries[0]):
        return tries[0]
    tries += [measure() for _ in range(TRIES - 1)]
    rows_of: dict[tuple[str, str, str], list[Row]] = {}
    for rows in tries:
        for row in rows:
            rows_of.setdefault((row.check, row.where, row.what), []).append(row)
    return [_majority(rows) for rows in rows_of.values()]


def _majority(rows: list[Row]) -> Row:
    verdicts = [row.verdict for row in rows]
    data = {"tries": verdicts}
    for row in rows:
        if 2 * verdicts.count(row.verdict) > len(rows):
            return replace(row, data=row.data | data)
    worst = next((row for row in rows if row.verdict == "deviates"), rows[-1])
    why = f"measured {len(rows)} times: {', '.join(verdicts)}" + (f"; {worst.why}" if worst.why else "")
    return replace(worst, verdict="inconclusive", why=why, data=worst.data | data)
