"""Output of `dlcp hosts`: the state of each host of a lab."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from dlcp.cli.show.common import console
from dlcp.runner.lab.hosts import HostsOutcome

_ENDINGS = {
    "looked": "nothing was changed; --yes goes on",
    "applied": "every host is as it is to be",
    "restored": "every host is as it was",
    "failed": "nothing was changed",
    "undone": "not every host could be set up; all are as they were before",
    "mixed": "NOT EVERY HOST IS AS IT WAS BEFORE: dlcp hosts restore tries again",
}


def print_hosts(outcome: HostsOutcome) -> None:
    """Each difference and each skip once, with the hosts it holds for; failures; how it ended."""
    out = console()
    every = list(outcome.hosts)
    for status in ("changed", "skipped"):
        for text, names in _grouped(outcome.hosts, status).items():
            where = "all hosts" if names == every else ", ".join(names)
            out.print(Text(f"{where}: {text}"), soft_wrap=True)
    for name, why in sorted(outcome.failed.items()):
        out.print(Text(f"{name} failed: {why}", style="red"), soft_wrap=True)
    if outcome.said:
        out.print(Text(outcome.said, style="red"), soft_wrap=True)
    if outcome.status == "looked" and not outcome.changed:
        out.print(Text("nothing to change"), soft_wrap=True)
    else:
        out.print(Text(_ENDINGS[outcome.status]), soft_wrap=True)
    out.print(Text(f"kept in {outcome.folder}", style="dim"), soft_wrap=True)


def _grouped(hosts: dict[str, list[dict[str, Any]]], status: str) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name, rows in hosts.items():
        for row in rows:
            if row["status"] == status:
                groups.setdefault(_describe(row), []).append(name)
    return groups


def _describe(row: dict[str, Any]) -> str:
    if row["status"] == "skipped":
        return f"{row['name']}: skipped, {row['reason']}"
    why = f" ({row['reason']})" if row.get("reason") else ""
    return f"{row['name']}: {row['was']} → {row['wanted']}{why}"
