"""Output of a deployment: changes, a line a phase, the result, and the way back. No decision is made here."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from dlcp.model.lab.inventory import Lab
from dlcp.runner.lab.deploy import Outcome
from dlcp.switches.vendor.render import Rendered

_Said = TypeVar("_Said", bound=Hashable)
_WIDTH = 16
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


class DeployScreen:
    """A listener (runner.lab.deploy.Listener) that prints. On a terminal a phase is a bar while it lasts."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._phase, self._switches, self._done, self._begun = "", 0, 0, 0.0

    def planned(self, rendered: Mapping[str, Rendered]) -> None:
        """Print where configurations cannot match the intent, before a switch is contacted; each difference once."""
        degradations = {name: _degraded(configuration) for name, configuration in rendered.items()}
        for (instead, why), names in _same(degradations):
            self._say(f"[yellow]degraded[/] on {_listed(names, rendered)}: {escape(instead)}: {escape(why)}")
        differences = {
            name: [(row.what, row.intended, row.effective, row.why) for row in made.differences]
            for name, made in rendered.items()
        }
        for (feature, intended, effective, why), names in _same(differences):
            where = escape(_listed(names, rendered))
            self._say(f"{escape(feature)}: {intended} intended, {effective} effective ({escape(why)}) on {where}")

    def begins(self, phase: str, switches: int) -> None:
        """The phase before is over."""
        self.over()
        self._phase, self._switches, self._done, self._begun = phase, switches, 0, time.monotonic()
        if self._out.is_terminal:
            columns = (TextColumn(f"{{task.description:<{_WIDTH}}}"), BarColumn(bar_width=20), MofNCompleteColumn())
            self._bar = Progress(*columns, TimeElapsedColumn(), console=self._out)
            self._task = self._bar.add_task(phase, total=switches)
            self._bar.start()

    def advances(self, phase: str, done: int) -> None:
        """So many switches are through."""
        self._done = done
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done)

    def fails(self, phase: str, switch: str, why: str) -> None:
        """At once, with the reason."""
        self._say(f"[bold red]failed[/] {escape(switch)}, {escape(phase.lower())}: {escape(why)}")

    def differs(self, diffs: Mapping[str, str]) -> None:
        """Each diff once, with the switches that have it."""
        self.over()
        for (diff,), names in _same({name: [(diff,)] for name, diff in diffs.items()}):
            if not diff:
                self._say(f"[bold]{_listed(names, diffs)}[/]: nothing changes")
                continue
            self._say(f"[bold]{_listed(names, diffs)}[/]:")
            for line in diff.splitlines():
                colour = _COLOURS.get(line[:1], "")
                self._say(f"[{colour}]{escape(line)}[/]" if colour else escape(line))

    def over(self) -> None:
        """The phase that went on has ended, if one did."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        elif self._phase:
            took_s = time.monotonic() - self._begun
            self._say(f"{self._phase:<{_WIDTH}} {self._done}/{self._switches} ({took_s:.1f} s)")
        self._phase = ""

    def _say(self, text: str) -> None:
        self._out.print(text, soft_wrap=True)


def print_outcome(out: Console, lab: Lab, outcome: Outcome) -> None:
    """How it ended, what stays to be done, and the way back."""
    changed = [name for name, diff in outcome.diffs.items() if diff]
    many = f"{len(changed)} of {len(lab.switches)} switches"
    name = outcome.folder.name
    inventory = _short(lab.path)
    restore = f"dlcp switch rollback --lab {inventory} --deployment {name} --yes"
    waiting = ", ".join(outcome.failed.get("Restore", {}))
    words = {
        "looked": f"nothing was changed: {many} would be; the same with --yes goes on",
        "unchanged": "nothing to do: every switch is as the intent wants it",
        "deployed": f"[green]deployed[/] on {many}; back again: {restore}",
        "rolled back": "[green]rolled back[/]: every switch is as it was before",
        "refused": "[bold red]refused[/]: nothing was changed",
        "restored": "[bold red]failed[/]; every switch is as it was before",
        "timers": f"[bold red]failed[/]; not reached: {waiting or 'some'}; they restore themselves when their timers "
        f"run out; then look: dlcp switch diff INTENT --lab {inventory}",
        "mixed": f"[bold red]THE FABRIC MAY BE MIXED[/]: {waiting or 'some'} may hold the new configuration for good, "
        f"others the old one; try again: {restore}; by hand: playbooks/README.md",
    }
    if outcome.interrupted:
        out.print("[yellow]interrupted[/]", soft_wrap=True)
    if outcome.status == "refused":
        for phase, reasons in outcome.failed.items():
            for switch, why in reasons.items():
                where = lab.switches[switch].where if switch in lab.switches else ""
                out.print(escape(f"{where}: {switch}, {phase.lower()}: {why}" if where else why), soft_wrap=True)
    out.print(words[outcome.status], soft_wrap=True)
    out.print(f"kept in {_short(outcome.folder)}", soft_wrap=True)


def _degraded(rendered: Rendered) -> list[tuple[str, str]]:
    return [
        (f"{lack.feature}: {f'{lack.where}: ' if lack.where else ''}{lack.instead}", lack.why)
        for lack in rendered.degradations
    ]


def _same(said: Mapping[str, Iterable[_Said]]) -> Iterable[tuple[_Said, list[str]]]:
    """Group equal entries of several switches: each entry once, with the names of its switches."""
    groups: dict[_Said, list[str]] = {}
    for name, everything in said.items():
        for entry in everything:
            groups.setdefault(entry, []).append(name)
    return groups.items()


def _listed(names: list[str], of: Mapping[str, object]) -> str:
    if len(names) == len(of) and len(names) > 1:
        return f"all {len(names)} switches"
    return ", ".join(names)


def _short(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
