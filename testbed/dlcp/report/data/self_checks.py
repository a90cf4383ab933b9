"""Is what the runs say of themselves in order: losses within bounds, replicas equal, monitors quiet?"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from dlcp.report.data.digest import Losses
from dlcp.report.data.load import Results


def losses(results: Results) -> pd.DataFrame:
    """Loss against its bound, per job and scheme, over trusted runs, all iterations.

    Columns: job, label, messages, bounded (messages whose bound is above 0), lost_share (of their bytes, or of
    all when none is bounded), lost_energy (the mean of their shares, weighted by bytes; NaN when not recorded), bound
    (the largest), worst_share (largest loss of one tensor on one journey), worst_of_bound (largest loss over its own
    bound), violations (journeys that lost more than their bound).
    """
    rows = []
    for job in results.jobs:
        for label in results.labels(job):
            digests = [results.digest(run) for run in results.of(job, label) if run.trusted]
            digests = [each for each in digests if each.every.messages]
            if not digests:
                continue
            every, bounded = (
                sum(parts, Losses()) for parts in zip(*((each.every, each.bounded) for each in digests), strict=True)
            )
            of = bounded if bounded.messages else every
            rows.append(
                {
                    "job": job,
                    "label": label,
                    "messages": every.messages,
                    "bounded": bounded.messages,
                    "lost_share": of.lost_bytes / of.bytes,
                    "lost_energy": of.lost_energy_bytes / of.bytes,
                    "bound": max(each.bound for each in digests),
                    "worst_share": max(each.worst_share for each in digests),
                    "worst_of_bound": max(each.worst_of_bound for each in digests),
                    "violations": sum(each.violations for each in digests),
                }
            )
    columns = [
        "job",
        "label",
        "messages",
        "bounded",
        "lost_share",
        "lost_energy",
        "bound",
        "worst_share",
        "worst_of_bound",
        "violations",
    ]
    return pd.DataFrame(rows, columns=columns)


def replicas(results: Results) -> pd.DataFrame:
    """Do all workers end each iteration with the same parameters? Per job and scheme, trusted runs.

    Columns: job, label, iterations (checked: those with a checksum after which none may differ), differing.
    """
    table = results.own(results.table("iterations", ("job", "iteration", "parameters_crc32")))
    table = table.dropna(subset=["parameters_crc32"])
    drifting = [(run.result.run_id, drift) for run in results.runs for drift in results.digest(run).drifting]
    table = table[~pd.MultiIndex.from_frame(table[["run_id", "iteration"]]).isin(drifting)]
    table = table[table["trusted"].astype(bool)]
    rows = []
    for job, label, cell in _cells(results, table):
        sums = cell.groupby(["run_id", "iteration"])["parameters_crc32"].nunique()
        rows.append({"job": job, "label": label, "iterations": len(sums), "differing": int((sums > 1).sum())})
    return pd.DataFrame(rows, columns=["job", "label", "iterations", "differing"])


def _cells(results: Results, table: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """The rows of each job and scheme that has any, in the order of display."""
    for job in results.jobs:
        for label in results.labels(job):
            cell = table[(table["job"] == job) & (table["label"] == label)]
            if len(cell):
                yield job, label, cell


def fidelity(results: Results) -> pd.DataFrame:
    """Every monitor of every run: run_id, label, job, repeat, monitor, value, bound, unit, ok, meaning."""
    rows = [
        {
            "run_id": run.result.run_id,
            "label": run.result.label,
            "job": run.result.job,
            "repeat": run.result.repeat,
            "monitor": monitor,
            "value": reading.get("value"),
            "bound": reading.get("bound"),
            "unit": reading.get("unit", ""),
            "ok": bool(reading.get("ok", False)),
            "meaning": reading.get("meaning", ""),
        }
        for run in results.runs
        for monitor, reading in run.result.fidelity.items()
    ]
    columns = ["run_id", "label", "job", "repeat", "monitor", "value", "bound", "unit", "ok", "meaning"]
    return pd.DataFrame(rows, columns=columns)


def problems(results: Results) -> tuple[str, ...]:
    """Problems that must not occur in any run, in words, worst first; empty when there are none."""
    texts: list[str] = []
    for row in losses(results).to_dict("records"):
        if row["violations"]:
            texts.append(
                f"{row['label']}, {row['job']}: {row['violations']} of {row['messages']} messages lost more "
                f"than their bound (worst: {row['worst_share']:.2%} of the bytes)"
            )
    for row in replicas(results).to_dict("records"):
        if row["differing"]:
            texts.append(
                f"{row['label']}, {row['job']}: after {row['differing']} of {row['iterations']} iterations "
                "the workers' parameters differ"
            )
    for run in results.runs:
        used = [transport for transport, carried in run.result.traffic.items() if carried]
        if len(used) > 1:
            texts.append(
                f"{run.result.label}, {run.result.job}, repeat {run.result.repeat + 1}: gradients or "
                f"parameters went over {' and '.join(used)}, where a scheme has one transport"
            )
    commits = {str(run.result.provenance.get("commit")) for run in results.runs}
    if len(commits) > 1:
        texts.append(f"the runs were made by {len(commits)} different commits of this toolkit")
    return tuple(texts)
