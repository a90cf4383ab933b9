"""Progress of runs: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from dlcp.model.base import OnProgress
from dlcp.model.result import RunResult
from dlcp.model.run import Run

_COLOURS = {"ok": "green", "suspect": "yellow", "failed": "red", "unsupported": "yellow"}


class PlainProgress:
    """One line when a run begins, one when it ends."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def again(self, count: int) -> None:
        """See runner.execute.Listener."""
        self._console.print(_repeat_line(count), markup=False, soft_wrap=True)

    def begins(self, number: int, total: int, run: Run) -> OnProgress:
        """See runner.execute.Listener."""
        self._console.print(f"[{number}/{total}] {name_of(run)} …", markup=False, soft_wrap=True)
        return lambda share, text: None

    def ends(self, number: int, total: int, run: Run, result: RunResult, took_s: float) -> None:
        """See runner.execute.Listener."""
        self._console.print(f"[{number}/{total}] {ending(run, result, took_s)}", markup=False, soft_wrap=True)


class BarProgress:
    """A bar for all runs, which moves within a run too, and one line for each run that is over."""

    def __init__(self, console: Console) -> None:
        self._console = console
        words = TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1))
        self._bar = Progress(
            BarColumn(bar_width=10, table_column=Column(min_width=10)),
            TextColumn("{task.percentage:>3.0f} %", table_column=Column(min_width=5)),
            TimeElapsedColumn(table_column=Column(min_width=7)),
            TextColumn("left", table_column=Column(min_width=4)),
            TimeRemainingColumn(table_column=Column(min_width=7)),
            words,
            console=console,
            expand=True,
        )
        self._task: TaskID | None = None
        self._done: dict[int, float] = {}

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()

    def again(self, count: int) -> None:
        """See runner.execute.Listener."""
        self._console.print(_repeat_line(count), markup=False, soft_wrap=True)
        self._done.clear()
        if self._task is not None:
            self._bar.reset(self._task, total=count)

    def begins(self, number: int, total: int, run: Run) -> OnProgress:
        """See runner.execute.Listener."""
        task = self._task = self._bar.add_task("", total=total) if self._task is None else self._task
        title = f"{number}/{total} {escape(f'{run.job_name}, {run.scheme.label}')}"  # short: 42 of 80 columns are left
        self._bar.update(task, description=f"{title}: setting up")

        def on_progress(share: float, text: str) -> None:
            self._done[number] = share
            self._bar.update(task, completed=self._shares(), description=f"{title}: {escape(text)}")

        return on_progress

    def ends(self, number: int, total: int, run: Run, result: RunResult, took_s: float) -> None:
        """See runner.execute.Listener."""
        colour = _COLOURS[result.status]
        self._console.print(f"[{colour}]{number}/{total}[/] {escape(ending(run, result, took_s))}", soft_wrap=True)
        self._done[number] = 1.0
        if self._task is not None:
            self._bar.update(self._task, completed=self._shares())

    def _shares(self) -> float:
        """Runs that are over and what is done of those under way."""
        return sum(list(self._done.values()))


def progress_on(console: Console) -> PlainProgress | BarProgress:
    """A bar where it can be drawn over, lines where it cannot."""
    return BarProgress(console) if console.is_terminal else PlainProgress(console)


@contextmanager
def measuring_on(console: Console) -> Iterator[OnProgress]:
    """A bar on a terminal, else a line for each new step, for one measurement that reports its share and a text."""
    if not console.is_terminal:
        yield lambda share, text: console.print(f"{share:4.0%} {text}", markup=False, soft_wrap=True)
        return
    with Progress(
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda share, text: bar.update(task, completed=share, description=escape(text))


def _repeat_line(count: int) -> str:
    return f"{count} suspect: the machine was too busy to be believed; making {'it' if count == 1 else 'them'} again"


def name_of(run: Run) -> str:
    """ "profile over DLCP, repeat 2"."""
    return f"{run.job_name} over {run.scheme.label}, repeat {run.repeat + 1}"


def ending(run: Run, result: RunResult, took_s: float) -> str:
    """How a run ended, in one line."""
    lab_s = (result.jct_s or 0.0) / float(result.regime.get("time_dilation", 1.0))
    jct = f", job completion {lab_s:.2f} s of lab time" if result.jct_s is not None else ""
    reason = f": {result.reason}" if result.reason else ""
    return f"{name_of(run)}: {result.status}{jct} ({took_s:.0f} s in all){reason}"
