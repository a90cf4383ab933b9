"""What every substrate offers, so that runs are executed alike wherever they happen."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from dlcp.model.base import OnProgress
from dlcp.model.result import RunResult
from dlcp.model.run import Run


class Substrate(Protocol):
    """A place to run, opened once for all runs of a plan. Its file offers its class as SUBSTRATE."""

    def __enter__(self) -> Self:
        """Load what all runs share."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Free it."""

    def run(self, run: Run, directory: Path, on_progress: OnProgress) -> RunResult:
        """Conduct one run and write its tables into `directory`; result.json is the caller's to write."""


@runtime_checkable
class ManyAtOnce(Substrate, Protocol):
    """A substrate whose runs do not disturb each other: `run` may be called by several threads."""

    at_once: int
    """How many runs it makes at a time."""

    def stop(self) -> None:
        """End the runs that are under way: each raises KeyboardInterrupt where it was called."""
