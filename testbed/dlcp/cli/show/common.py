"""Output of commands: tables and lines for a person, JSON for a program. No decision is made here."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dlcp.errors import Problem
from dlcp.model.units import show_rate, show_size
from dlcp.runner.machine.calibration import Calibration, Costs
from dlcp.runner.machine.calibration import command as calibration_command
from dlcp.runner.machine.doctor import Group, gaps
from dlcp.runner.planning.estimate import Estimate
from dlcp.runner.preview.outline import Outline
from dlcp.runner.running.clean import Cleaning
from dlcp.runner.running.execute import Execution
from dlcp.runner.running.status import ExperimentStatus

PLAIN_WIDTH = 160
"""Columns when the output is no terminal: wide enough that no line of a log is folded."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """A reader such as `head` has seen enough: the command's end decides what that means, not rich."""
        raise BrokenPipeError


def console(*, error: bool = False) -> Console:
    """Standard output or standard error."""
    stream = sys.stderr if error else sys.stdout
    return _Console(file=stream, width=None if stream.isatty() else PLAIN_WIDTH, highlight=False, soft_wrap=False)


def print_json(data: Any) -> None:
    """Data as JSON on standard output; what JSON has no word for becomes text."""
    print(json.dumps(data, indent=2, default=str, ensure_ascii=False))


def print_problems(problems: Iterable[Problem], *, warning: bool = False) -> None:
    """One problem after the other on standard error, never folded: editors read file:line:col."""
    out = console(error=True)
    for problem in problems:
        mark = "[yellow]warning:[/] " if warning else ""
        out.print(mark + escape(str(problem)), soft_wrap=True)


def print_rows(rows: Sequence[Mapping[str, Any]], title: str = "") -> None:
    """A table whose columns are the keys of the first row."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in rows[0] if rows else ():
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(escape(_shown(value)) for value in row.values()))
    console().print(table)


def print_details(details: Mapping[str, Any]) -> None:
    """Scalars as lines, lists of rows as tables below them."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    lists = {name: value for name, value in details.items() if isinstance(value, list) and value}
    for name, value in details.items():
        if name not in lists:
            table.add_row(name.replace("_", " "), escape(_shown(value)))
    console().print(table)
    for rows in lists.values():
        console().print()
        print_rows(rows)


def print_doctor(groups: Sequence[Group]) -> None:
    """Print one line a check, and below it the command that fixes it."""
    out = console()
    for group in groups:
        out.print(f"[bold]{group.title}[/]" + ("" if group.needed else " (optional)"))
        for check in group.checks:
            mark = _mark(ok=check.ok, tried=check.tried, needed=group.needed)
            out.print(f"  {mark} {check.name:<20} {escape(check.detail)}", soft_wrap=True)
            if check.remedy and not check.ok:
                out.print(f"          fix it: [bold]{escape(check.remedy)}[/]", soft_wrap=True)
    count = len(gaps(list(groups)))
    out.print("nothing is missing" if not count else f"{count} missing")


def print_calibration(found: Calibration, kept: Path | None) -> None:
    """Print what was measured, and whether later runs use it."""
    out = console()
    out.print(
        f"a packet takes {found.ends_us:.2f} µs of CPU at its two hosts and {found.hop_us:.2f} µs at each switch "
        f"(over a bare veth pair {found.bare_us:.2f} µs); a wake-up comes up to {found.late_us:.0f} µs late (p99)",
        soft_wrap=True,
    )
    if found.spoiled:
        out.print(f"[yellow]spoiled[/]: {escape(found.spoiled)}", soft_wrap=True)
    if kept:
        out.print(f"kept in {kept}", soft_wrap=True)
    else:
        out.print("not kept: repeat it when the machine is quiet, or add --even-if-busy", soft_wrap=True)


def _mark(*, ok: bool, tried: bool, needed: bool) -> str:
    """A word of the same width whatever it says."""
    if ok:
        return "[green]ok     [/]"
    if not tried:
        return "[yellow]unknown[/]"
    return "[red]missing[/]" if needed else "[yellow]absent [/]"


def print_plan(outline: Outline) -> None:
    """Print the runs to make, the lab equivalent of the fabric, and the load on this machine."""
    out, plan = console(), outline.plan
    print_summary(outline)
    out.print()
    for line in outline.regime_words:
        out.print(escape(line))
    for load in outline.loads:
        asked = f"at most {load.packets_per_s / 1e3:.3g} thousand data packets/s = {load.peak_cpu:.2g} cores"
        mean = f"{load.cpu:.2g} in the mean, of {load.usable:.2g} that a run may take"
        fits = f"dilated to links of {show_rate(load.carried_rate_bps)} it would just fit"
        out.print(f"load of {load.job}: {asked}, {mean}; {fits}", soft_wrap=True)
    if outline.loads:
        _print_costs(outline.costs)
    out.print()
    todo = {cell.run.id for cell in outline.todo}
    rows = [
        {
            "#": number,
            "run": cell.run.id,
            "job": cell.run.job_name,
            "scheme": cell.run.scheme.label,
            "repeat": cell.run.repeat + 1,
            "seed": cell.run.seed,
            "": "" if cell.run.id in todo else "done",
        }
        for number, cell in enumerate(plan.cells, 1)
    ]
    print_rows(rows)


def _print_costs(cost: Costs) -> None:
    """Print what the loads are based on, and how to make them more exact."""
    out = console()
    text = f"a packet takes {cost.ends_s * 1e6:.3g} µs of CPU at its hosts and {cost.hop_s * 1e6:.3g} µs a switch"
    out.print(f"{text}: {escape(cost.source)}", soft_wrap=True)
    if not cost.measured:
        out.print(f"    measure it once, in about 20 s: [bold]{escape(calibration_command())}[/]", soft_wrap=True)


def print_summary(outline: Outline) -> None:
    """How many runs, how many are done, how long the rest takes."""
    out, plan, experiment = console(), outline.plan, outline.plan.ready.experiment
    schemes = ", ".join(choice.label for choice in experiment.schemes)
    out.print(f"[bold]{experiment.name}[/]: {escape(experiment.description)}", soft_wrap=True)
    out.print(
        f"{_count(len(plan.cells), 'run')} on {plan.substrate}: {_count(len(experiment.schemes), 'scheme')} "
        f"({escape(schemes)}) × {_count(len(experiment.jobs), 'job')} ({', '.join(experiment.jobs)}) × "
        f"{_count(experiment.repeats, 'repeat')}"
    )
    if outline.todo:
        done = f"{len(plan.cells) - len(outline.todo)} done, {len(outline.todo)} to make"
        out.print(f"{done}: {duration_words(outline.estimate)}")
    else:
        out.print("all done")
    for remark in filter(None, (outline.scaled, outline.elsewhere, *outline.damaged)):
        out.print(f"[yellow]{escape(remark)}[/]", soft_wrap=True)
    for unsupported in plan.unsupported:
        out.print(f"[yellow]unsupported[/]: {escape(unsupported.label)} {unsupported.why}")


def print_execution(execution: Execution) -> None:
    """How many runs ended how; and when none can be trusted, that there is nothing to compare."""
    counts = ", ".join(f"{count} {status}" for status, count in sorted(execution.statuses.items()))
    nothing = "" if execution.statuses.get("ok") else "no run that can be trusted, so nothing to compare: "
    console().print(nothing + counts)


def print_doubts(lines: Sequence[str]) -> None:
    """The last words of a command that ends with SUSPECT."""
    out = console()
    out.print()
    for line in lines:
        out.print(escape(line), style="yellow", soft_wrap=True)


def duration_words(time: Estimate) -> str:
    """ "about 5 min (at most 23 min), as 12 runs took"."""
    basis = f", as {time.measured} runs took" if time.measured else ", a guess from the ideal times"
    return f"about {minutes(time.seconds)} (at most {minutes(time.at_most_s)}){basis}"


def print_status(found: Sequence[ExperimentStatus]) -> None:
    """Per experiment a table of job × scheme, and the reasons of what is not fine."""
    out = console()
    for state in found:
        out.print(f"[bold]{state.experiment}[/] in {state.folder}" + (" (running)" if state.running else ""))
        rows = [
            {
                "job": row.job,
                "scheme": row.label,
                "ok": f"{row.counts.get('ok', 0)} of {row.repeats or '?'}",
                **{name: row.counts.get(name, 0) for name in ("suspect", "failed", "unsupported")},
                "missing": row.missing,
            }
            for row in state.rows
        ]
        print_rows(rows)
        for row in state.rows:
            for reason in row.reasons:
                out.print(f"  {row.job}, {escape(row.label)}, {escape(reason)}", soft_wrap=True)
        for invalid in state.invalid:
            out.print(f"  [red]not a result[/]: {invalid.path}: {escape(invalid.why)}", soft_wrap=True)
        if state.older:
            out.print(f"  {state.older} results of an earlier version, another scale or other buffers are left out")
        if state.unfinished and not state.running:
            out.print(f"  {_count(state.unfinished, 'unfinished run')}; the next run, or dlcp clean, removes it")


def status_data(found: Sequence[ExperimentStatus]) -> list[dict[str, Any]]:
    """For JSON."""
    return [asdict(state) | {"rows": [asdict(row) | {"missing": row.missing} for row in state.rows]} for state in found]


def print_cleaning(cleaning: Cleaning, *, removed: bool) -> None:
    """Print the paths that were removed, or that would be."""
    out = console()
    for leftover in cleaning.leftovers:
        out.print(f"{leftover.what:<15} {show_size(leftover.size_bytes):>10}  {leftover.path}", soft_wrap=True)
    for kept in cleaning.kept:
        out.print(f"[yellow]kept[/] {kept}", soft_wrap=True)
    total = show_size(sum(leftover.size_bytes for leftover in cleaning.leftovers))
    if not cleaning.leftovers:
        out.print("nothing to remove")
    elif removed:
        out.print(f"removed {len(cleaning.leftovers)} ({total})")
    else:
        out.print(f"{len(cleaning.leftovers)} to remove ({total}); add --yes to do it")


def print_bench(found: Mapping[str, Any]) -> None:
    """A bench's report: the figures, what a reader must know, and whether the machine was quiet."""
    out = console()
    out.print(f"[bold]dlcp bench {found['bench']}[/] ({escape(found['where'])})")
    print_rows(
        [
            {
                "figure": figure["name"],
                "best": figure["why"] or _figure(figure["best"]),
                "median": _figure(figure["median"]),
                "unit": figure["unit"] if figure["values"] else "",
                "repeats": figure["repeats"] or "",
                "limit": figure["limit"],
            }
            for figure in found["figures"]
        ]
    )
    for note in found["notes"]:
        out.print(escape(note), soft_wrap=True)
    out.print(escape(found["machine"]["words"]), soft_wrap=True)


def print_capacity(rows: Sequence[Mapping[str, Any]], machine: str) -> None:
    """The frontier, and whether the machine was quiet."""
    print_rows(rows, title="the fastest links that a run is believed with")
    console().print(escape(machine), soft_wrap=True)


def print_invariance(found: Mapping[str, Any]) -> None:
    """Cells of a sweep over time dilations, and what they say of the machine."""
    rows = [
        {
            "scheme": cell["label"],
            "dilation": f"{cell['dilation'] * found['time_dilation']:g}",
            "busy loop": f"{cell['planted']:.0%}" if cell["planted"] else "",
            "JCT ÷ dilation": "" if cell["jct_lab_s"] is None else f"{cell['jct_lab_s']:.3f} s",
            "bias": "reference" if cell["reference"] else _bias(cell),
            "ok": f"{cell['ok']} of {cell['ok'] + cell['suspect'] + cell['failed']}",
            "objected": ", ".join(f"{name} {count}" for name, count in cell["objected"].items()),
            "verdict": "" if cell["reference"] else cell["verdict"],
        }
        for cell in found["cells"]
    ]
    options, limit = found["options"], found["largest_bias"]
    print_rows(rows, title=f"{found['experiment']}, job {options['job']}: what the machine adds to a run")
    summary = (
        f"{_count(found['runs'], 'run')} against dilation {max(options['dilations']) * found['time_dilation']:g}: "
        f"{found['false_ok']} believed with a bias beyond {limit:.0%}, {found['false_suspect']} suspect without one"
    )
    if found["unsettled"]:
        summary += (
            f"; no search has chosen for {', '.join(found['unsettled'])} yet: the first value of each knob was taken"
        )
    if found["untrusted"]:
        summary += (
            f"; no reference run of {', '.join(found['untrusted'])} was believed, so nothing can be said there: "
            "repeat on a quiet machine, or with a larger --dilation"
        )
    console().print(escape(summary), soft_wrap=True)


def _bias(cell: Mapping[str, Any]) -> str:
    if cell["bias"] is None:
        return "unknown" if cell["suspect_bias"] is None else f"{cell['suspect_bias']:+.1%} (suspect)"
    width = "" if cell["half_width"] is None else f" ± {cell['half_width']:.1%}"
    return f"{cell['bias']:+.1%}{width}"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def minutes(duration_s: float) -> str:
    """ "42 s", "5 min"."""
    return f"{duration_s:.0f} s" if duration_s < 90 else f"{duration_s / 60:.0f} min"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
