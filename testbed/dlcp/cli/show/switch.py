"""Output of `dlcp switch`. No decision is made here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dlcp.cli.show.common import console
from dlcp.runner.verify import Verified
from dlcp.switches.vendor.render import Rendered
from dlcp.verification.rows import VERDICTS, Row, counts

_COLOURS = {"ok": "green", "deviates": "bold red", "inconclusive": "yellow", "unsupported": "dim"}


def print_verified(found: Sequence[Verified]) -> None:
    """For each QoS intent a table of rows, what the words of a verdict are, the curves, and how many rows say what."""
    out = console()
    for number, verified in enumerate(found):
        names = ", ".join(verified.labels)
        out.print(("\n" if number else "") + f"[bold]QoS intent of {escape(names)}[/]")
        _print_rows(out, _folded(verified.rows))
        _print_whys(out, verified.rows)
        _print_curves(out, verified.rows)
        totals = ", ".join(f"{count} {verdict}" for verdict, count in counts(verified.rows).items() if count)
        out.print(f"{len(verified.rows)} rows: {totals} ({verified.took_s:.0f} s)")


def print_rendered(found: Rendered, *, rollback: bool) -> None:
    """The text alone on standard output, so that it can be saved; on standard error what a person must know of it."""
    print(found.rollback if rollback else found.configuration, end="")
    out = console(error=True)

    def tell(text: str) -> None:
        out.print(text, soft_wrap=True)

    device = found.device
    tell(f"[bold]{escape(found.intended.name)}[/] for {escape(device.name)} ({device.system}, {device.chip})")
    for lack in found.degradations:
        where = f"{lack.where}: " if lack.where else ""
        tell(f"[yellow]degraded[/]: {lack.feature}: {escape(f'{where}{lack.instead}: {lack.why} [{lack.source}]')}")
    for difference in found.differences:
        values = f"{difference.intended} intended, {difference.effective} effective"
        tell(f"{escape(difference.what)}: {values} ({escape(difference.why)})")
    for note in found.notes:
        tell(f"note: {escape(note)}")


def _folded(rows: Sequence[Row]) -> list[Row]:
    """Rows of one check together; those that say the same of several places, as one."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in sorted(rows, key=_first(rows)):
        groups.setdefault(_same(row), []).append(row)
    return [_merged(group) for group in groups.values()]


def _first(rows: Sequence[Row]) -> Callable[[Row], int]:
    checks = list(dict.fromkeys(row.check for row in rows))
    return lambda row: checks.index(row.check)


def _same(row: Row) -> tuple[str, ...]:
    """Rows of which this is equal are shown as one."""
    if row.verdict not in ("ok", "unsupported") or row.data.get("bins"):
        return (str(id(row)),)
    if row.verdict == "ok" and row.check == "strict priority":
        return (row.check, row.intended)
    if row.verdict == "ok" and row.check == "rate":
        return (row.check, row.what, row.intended)
    return (row.check, row.what, row.intended, row.measured, row.tolerance, row.verdict, row.why)


def _merged(group: list[Row]) -> Row:
    first = group[0]
    if len(group) == 1:
        return first
    places = list(dict.fromkeys(row.where for row in group))
    where = first.where if len(places) == 1 else f"{first.where} … ({len(places)})"
    measured, subject, tolerance = first.measured, first.what, first.tolerance
    if first.check == "rate" and not first.data["at_least"]:
        off = [row.data["measured_bps"] / row.data["rate_bps"] - 1 for row in group]
        measured, tolerance = f"{min(off):+.2%} … {max(off):+.2%}", max(row.tolerance for row in group)
    if first.check == "strict priority":
        subject = f"{len(group)} pairs of queues"
        measured = _out_of_order(group)
    return Row(first.check, where, subject, first.intended, measured, tolerance, first.verdict, first.why)


def _out_of_order(group: Sequence[Row]) -> str:
    blocks = [(count, row.data["packets"]) for row in group for count in row.data["inversions"]]
    crossed = sum(count > 0 for count, _ in blocks)
    text = f"{sum(count for count, _ in blocks)} of {sum(packets for _, packets in blocks)} out of order"
    return text + (f", in {crossed} of {len(blocks)} blocks" if crossed else "")


def _print_rows(out: Console, rows: Sequence[Row]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for name in ("check", "where", "what", "intended", "measured", "within", "verdict"):
        table.add_column(name, overflow="fold", no_wrap=name in ("check", "where", "within", "verdict"))
    before = ""
    for row in rows:
        check = row.check if row.check != before else ""
        before = row.check
        verdict = f"[{_COLOURS[row.verdict]}]{row.verdict}[/]"
        cells = (check, row.where, row.what, row.intended, row.measured, row.tolerance)
        table.add_row(*(escape(cell) for cell in cells), verdict)
    out.print(table)


def _print_whys(out: Console, rows: Sequence[Row]) -> None:
    """Everything that is not ok, in words; places with the same words on one line."""
    places_of: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if row.verdict != "ok":
            places_of.setdefault((row.verdict, row.check, row.why), []).append(f"{row.where} {row.what}".strip())
    for verdict in VERDICTS:
        for (which, check, why), places in places_of.items():
            if which == verdict:
                where = "; ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
                out.print(f"[{_COLOURS[verdict]}]{verdict}[/] {escape(f'{check}, {where}: {why}')}", soft_wrap=True)


def _print_curves(out: Console, rows: Sequence[Row]) -> None:
    """For each curve two lines: the ranges of backlog, and what was struck there against what was intended."""
    curves = [row for row in rows if row.data.get("bins")]
    if not curves:
        return
    out.print("\n[bold]curves[/]: per cent struck by backlog in kB, intended beneath")
    for row in curves:
        bins = row.data["bins"][: _ranges(row.data["bins"])]
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
        table.add_column(min_width=9)
        for _ in bins:
            table.add_column(justify="right", min_width=5)
        out.print(f"{escape(row.where)}, {row.check}, {row.what}: {row.data['samples']} samples")
        table.add_row("  up to kB", *(f"{bin_['to_bytes'] / 1000:.1f}" for bin_ in bins), style="dim")
        table.add_row("  measured", *(_struck(bin_) for bin_ in bins))
        table.add_row("  intended", *(f"{100 * bin_['intended']:.0f}" for bin_ in bins))
        out.print(table)


def _ranges(bins: Sequence[Mapping[str, Any]]) -> int:
    """Bins side by side; one of a whole slope, if there is one, comes after them."""
    for number in range(1, len(bins)):
        if bins[number]["from_bytes"] < bins[number - 1]["to_bytes"]:
            return number
    return len(bins)


def _struck(one: Mapping[str, Any]) -> str:
    text = f"{100 * one['hits'] / one['trials']:.0f}"
    return f"[bold red]{text}[/]" if one["off"] else text
