"""Results of the hosts of a lab that were set up or restored: hosts.json of a deployment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MANIFEST = "hosts.json"


@dataclass(frozen=True)
class Hosts:
    """hosts: name → {rows: [{name, status, was, wanted, reason}], changed, failed: why, or ""}."""

    hosts: dict[str, dict[str, Any]]

    @property
    def failed(self) -> dict[str, str]:
        """Host → why."""
        return {name: host["failed"] for name, host in self.hosts.items() if host["failed"]}

    def told(self, *, looked: bool) -> str:
        """In a person's words: how many change, and what is skipped, each reason once with the hosts it holds for."""
        changed = [name for name, host in self.hosts.items() if host["changed"]]
        verb = "would be changed; nothing was (-e yes=true goes on)" if looked else "changed"
        lines = [f"{len(changed)} of {len(self.hosts)} hosts {verb}" if changed else "every host is as it is to be"]
        skipped: dict[str, list[str]] = {}
        for name, host in self.hosts.items():
            for row in host["rows"]:
                if row["status"] == "skipped":
                    skipped.setdefault(f"{row['name']}: {row['reason']}", []).append(name)
        lines += [f"skipped {subject} ({_many(names, len(self.hosts))})" for subject, names in skipped.items()]
        return "\n".join(lines)


def manifest(known: Mapping[str, Any], names: Iterable[str], reached: Iterable[str], phase: str) -> Hosts:
    """known: host → its variables in Ansible, with what the role registered. names: all of the play;
    reached: those that still answer. phase: under which a failure is remembered."""
    answering = set(reached)
    rows = {}
    for name in names:
        record = known[name]
        results = [record.get(result, {}) for result in ("dlcp_host_result", "dlcp_host_agent_result")]
        failed = record.get("dlcp_failures", {}).get(phase, "")
        if not failed and name not in answering:
            failed = "not reached"
        rows[name] = {
            "rows": [row for result in results for row in result.get("rows", [])],
            "changed": any(bool(result.get("changed")) and not result.get("failed") for result in results),
            "failed": failed,
        }
    return Hosts(rows)


def listing(reasons: Mapping[str, str]) -> str:
    """One line a host."""
    return "\n".join(f"  {name}: {why}" for name, why in sorted(reasons.items()))


def _many(names: list[str], of: int) -> str:
    return "every host" if len(names) == of else ", ".join(names)
