"""What every substrate offers, so that runs are executed alike wherever they happen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self, runtime_checkable

from dlcp.model.base import OnProgress
from dlcp.model.result import RunResult
from dlcp.model.run import Run

Need = Literal["emulation", "lab", "native_core"]
"""Needs of runs on this machine: each a group of checks of dlcp.runner.machine.doctor."""


@dataclass(frozen=True)
class Traits:
    """Facts of a substrate that plans need before it is opened: TRAITS of its folder's `__init__.py`.

    has_network: packets cross a network; without one, only schemes run that need none. emulates: the fabric is built on
    this machine, whose cores must carry its load. needs_lab: an inventory says which lab it is. usual: schemes that
    can run here do so unless the caller says otherwise. needs: groups of checks that must pass before the first run.
    at_once: returns how many runs are made at a time on this machine; None: one, and each is set up by itself.
    """

    has_network: bool = True
    emulates: bool = False
    needs_lab: bool = False
    usual: bool = False
    needs: tuple[Need, ...] = ()
    at_once: Callable[[], int] | None = None


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
