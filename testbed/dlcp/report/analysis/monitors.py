"""The monitors of all runs in one short table, and every run that does not count."""

from __future__ import annotations

from typing import Any

from dlcp.report.data.formatting import show_name
from dlcp.report.data.load import Results
from dlcp.report.data.self_checks import fidelity


def fidelity_rows(results: Results) -> list[dict[str, Any]]:
    """A row a monitor: readings from least to most over all runs, the bound, how many runs are out of it."""
    table = fidelity(results)
    rows = []
    for (monitor, unit), group in table.groupby(["monitor", "unit"], sort=False):
        values = [value for value in group["value"] if isinstance(value, int | float)]
        bounds = dict.fromkeys(_show(bound) for bound in group["bound"] if bound is not None)
        rows.append(
            {
                "monitor": show_name(str(monitor)),
                "meaning": group["meaning"].iloc[0],
                "unit": unit,
                "low": _show(min(values)) if values else "–",
                "high": _show(max(values)) if values else "–",
                "bound": ", ".join(bounds) or "–",
                "bad": int((~group["ok"].astype(bool)).sum()),
                "runs": len(group),
            }
        )
    return rows


def unwatched_rows(results: Results) -> list[dict[str, str]]:
    """A row for each monitor that some runs did not have, and why: silence would look like a good value."""
    counts: dict[tuple[str, str], int] = {}
    for run in results.runs:
        for monitor, why in run.result.unwatched.items():
            counts[monitor, why] = counts.get((monitor, why), 0) + 1
    return [{"monitor": show_name(monitor), "why": why, "runs": str(count)} for (monitor, why), count in counts.items()]


def left_out_rows(results: Results) -> list[dict[str, str]]:
    """Runs that count in no mean (suspect, failed, unsupported), and directories that were not read, with reasons."""
    runs = [
        {
            "what": f"{run.result.label}, {run.result.job}, repeat {run.result.repeat + 1}",
            "status": str(run.result.status),
            "why": run.result.reason or "no reason recorded",
        }
        for run in results.runs
        if not run.trusted
    ]
    return runs + [{"what": entry.path.name, "status": "not read", "why": entry.why} for entry in results.left_out]


def _show(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)
