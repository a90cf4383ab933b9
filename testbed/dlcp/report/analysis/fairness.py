"""The fairness sheet: is every scheme given the same fabric, its own good knobs, and what does it take for its result?

A comparison in which the baseline has worse knobs than it could have is worth nothing; one that hides that the winner
burns twice the CPU is worth little more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from dlcp.model.loading.search_record import Search
from dlcp.report.analysis.settings import flat
from dlcp.report.data.formatting import show_setting
from dlcp.report.data.lab_time import dilation
from dlcp.report.data.load import Results
from dlcp.report.data.run import Run
from dlcp.report.data.statistics import Estimate, mean_interval

NOT_THERE = "–"

COSTS: dict[str, tuple[str, str]] = {
    "handed_gb": ("handed over (GB)", "payload of gradients and parameters that ranks gave to the transport"),
    "of_gradients": (
        "of the gradients' bytes (×)",
        "handed over, over the float32 bytes that it stands for: what compression leaves",
    ),
    "sent_ratio": ("sent on the wire (×)", "bytes of frames sent, all headers and acknowledgements, over handed over"),
    "resent_share": ("sent again (%)", "payload sent again, of that handed over"),
    "packets_per_mb": ("packets per MB", "packets sent for every megabyte handed over"),
    "agent_s_per_gb": (
        "CPU of agents (s/GB)",
        "user and system seconds of all agents' threads, for every GB handed over; a real job's training is in it",
    ),
    "machine_s_per_gb": (
        "CPU of machines (s/GB)",
        "busy seconds of all cores while the job ran, for every GB handed "
        "over; emulated switches and the kernel's interrupts are in it",
    ),
}
"""Costs of a scheme: name → (title, meaning)."""


def sheet(results: Results) -> list[dict[str, Any]]:
    """All knobs and settings side by side, those that differ first: a row a setting.

    Keys: `group`, `name`, `texts` (one a label of results.labels(), "–" where the scheme lacks it), `differs`.

    Groups: knobs (of the scheme), tuning (which search found them), hosts, switches (what each was meant to do).
    """
    labels = results.labels()
    rows = []
    for group, read in _GROUPS.items():
        sets = {label: _over_jobs(results, label, read) for label in labels}
        for name in dict.fromkeys(name for label in labels for name in sets[label]):
            texts = [sets[label].get(name, NOT_THERE) for label in labels]
            rows.append({"group": group, "name": name, "texts": texts, "differs": len(set(texts)) > 1})
    return sorted(rows, key=lambda row: not row["differs"])


def sheet_table(results: Results) -> pd.DataFrame:
    """The sheet with a column a label."""
    labels = results.labels()
    rows = [
        {
            "group": row["group"],
            "setting": row["name"],
            "differs": row["differs"],
            **dict(zip(labels, row["texts"], strict=True)),
        }
        for row in sheet(results)
    ]
    return pd.DataFrame(rows, columns=["group", "setting", "differs", *labels])


def costs(results: Results) -> pd.DataFrame:
    """One row a (job, label, cost of COSTS): value with its 95 % t-interval over trusted runs; NaN where the results do
    not tell (older formats)."""
    rows = []
    for job in results.jobs:
        for label in results.labels(job):
            run_costs = [_costs_of(results, run) for run in results.of(job, label) if run.trusted]
            for name in COSTS:
                values = np.array([cost[name] for cost in run_costs if name in cost])
                estimate = mean_interval(values) if len(values) else Estimate(None, None, None, 0, "t", "not recorded")
                rows.append(
                    {
                        "job": job,
                        "label": label,
                        "cost": name,
                        "value": estimate.value,
                        "low": estimate.low,
                        "high": estimate.high,
                        "n": estimate.n,
                        "why": estimate.why,
                    }
                )
    return pd.DataFrame(rows, columns=["job", "label", "cost", "value", "low", "high", "n", "why"])


def search_ends(results: Results) -> pd.DataFrame:
    """Return one row a (job, label, knob) whose chosen value is at an end of those that `dlcp tune` tried: the value,
    and all of them in words."""
    rows = [
        {
            "job": job,
            "label": label,
            "knob": knob,
            "value": str((search.chosen or {})[knob]),
            "tried": ", ".join(map(str, values)),
        }
        for job in results.jobs
        for label in results.labels(job)
        if (tuning := results.example(job, label).tuning).get("points")
        for search in [Search.model_validate(tuning)]
        for knob, values in search.at_an_end().items()
    ]
    return pd.DataFrame(rows, columns=["job", "label", "knob", "value", "tried"])


def searches(results: Results) -> pd.DataFrame:
    """One row a point that `dlcp tune` tried for a (job, label): its knobs in words, the mean job completion of its
    runs (seconds; NaN unless all of them count), how many runs, whether it was chosen, and why it was not run."""
    rows = []
    for job in results.jobs:
        for label in results.labels(job):
            example = results.example(job, label)
            tuning = example.tuning
            search = Search.model_validate(tuning) if tuning.get("points") else None
            for point in search.points if search is not None else ():
                rows.append(
                    {
                        "job": job,
                        "label": label,
                        "knobs": ", ".join(f"{knob} {value}" for knob, value in point.knobs.items()),
                        "jct_s": (point.mean_jct_s or math.nan) / dilation(example),
                        "runs": len(point.runs),
                        "chosen": search is not None and point.knobs == search.chosen,
                        "why": point.unfit,
                    }
                )
    columns = ["job", "label", "knobs", "jct_s", "runs", "chosen", "why"]
    return pd.DataFrame(rows, columns=columns).astype({"jct_s": float})


def _costs_of(results: Results, run: Run) -> dict[str, float]:
    """Costs of one run, as far as the run records them."""
    digest, costs = results.digest(run), run.result.costs
    handed = digest.every.bytes
    if not handed:
        return {}
    run_costs: dict[str, float] = {"handed_gb": handed / 1e9, "resent_share": 100 * digest.resent_bytes / handed}
    if digest.tensor_bytes > 0:
        run_costs["of_gradients"] = handed / digest.tensor_bytes
    if costs is None:
        return run_costs
    hosts = costs.hosts.values()
    return run_costs | {
        "sent_ratio": sum(host.sent_bytes for host in hosts) / handed,
        "packets_per_mb": sum(host.sent_packets for host in hosts) / (handed / 1e6),
        "agent_s_per_gb": sum(host.cpu_user_s + host.cpu_system_s for host in hosts) / (handed / 1e9),
        "machine_s_per_gb": sum(machine.cpu_s for machine in costs.machines) / (handed / 1e9),
    }


def _over_jobs(results: Results, label: str, read: Callable[[Run], dict[str, Any]]) -> dict[str, str]:
    """Setting → its text; where a scheme's jobs differ in it, the text of each."""
    labels_of: dict[str, dict[str, str]] = {}
    for job in results.jobs:
        runs = results.of(job, label)
        if runs:
            run = min(runs, key=lambda one: not one.trusted)
            for name, value in read(run).items():
                labels_of.setdefault(name, {})[job] = show_setting(name.rsplit(".", 1)[-1], value)
    return {
        name: next(iter(texts.values()))
        if len(set(texts.values())) == 1
        else ", ".join(f"{text} ({job})" for job, text in texts.items())
        for name, texts in labels_of.items()
    }


def _knobs(run: Run) -> dict[str, Any]:
    return _leaves(run.result.knobs)


def _tuning(run: Run) -> dict[str, Any]:
    """Value that the search chose, and the number of its points. All of them: `searches`."""
    tuning = run.result.tuning
    return _leaves({"points": len(tuning["points"]) if "points" in tuning else None, "chosen": tuning.get("chosen")})


def _hosts(run: Run) -> dict[str, Any]:
    return _leaves(run.result.intended.get("hosts"))


def _switches(run: Run) -> dict[str, Any]:
    """Balancing in one row where all switches do the same."""
    balancing = run.result.intended.get("load_balancing") or {}
    modes = {str(mode) for mode in balancing.values()}
    same = {"load_balancing": modes.pop()} if len(modes) == 1 else _leaves({"load_balancing": balancing})
    return same | _leaves(run.result.intended.get("ports"))


def _leaves(nested: Any) -> dict[str, Any]:
    """Dotted path → value, without what is empty or says "nothing"."""
    return {path: value for path, value in flat(nested or {}) if value is not None and value not in ({}, [])}


_GROUPS: dict[str, Callable[[Run], dict[str, Any]]] = {
    "knobs": _knobs,
    "tuning": _tuning,
    "hosts": _hosts,
    "switches": _switches,
}
