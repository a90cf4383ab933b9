"""One finished run as a report reads it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dlcp.model.result import RunResult


@dataclass(frozen=True)
class Run:
    """One finished run, in lab time, and where it lies."""

    result: RunResult
    path: Path

    @property
    def trusted(self) -> bool:
        """Counts in means and quantiles: finished, and not suspected by its own monitors."""
        return self.result.status == "ok"
