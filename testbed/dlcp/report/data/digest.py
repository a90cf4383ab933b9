"""A run's big tables, read once, column by column, and kept as the little that analysis needs of them.

Ten million rows of `messages` with all their text would be gigabytes; their durations and the sums of their losses are
13 bytes a row. What a table says of other jobs than the run's own (its tenants) is not in its digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from os import cpu_count
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dlcp.model.replicas import drift_lasts, may_differ
from dlcp.report.data.lab_time import dilation
from dlcp.report.data.run import Run

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

_MESSAGES = (
    "job",
    "iteration",
    "warmup",
    "leg",
    "bytes",
    "start_s",
    "end_s",
    "lost_bytes",
    "resent_bytes",
    "loss_bound",
    "lost_energy_share",
    "tensor_bytes",
)
_ITERATIONS = ("job", "iteration", "warmup", "start_s", "end_s", "exposed_comm_s")


@dataclass(frozen=True)
class Durations:
    """Samples in lab seconds, ascending, and the iteration of each."""

    values: Floats
    iterations: Integers

    @classmethod
    def of(cls, values: Floats, iterations: Integers) -> Durations:
        """From samples in any order."""
        order = np.argsort(values, kind="stable")
        return cls(values[order], iterations[order].astype(np.int32, copy=False))


@dataclass(frozen=True)
class Losses:
    """Sums over some journeys, all iterations: how many, their bytes, bytes lost, energy lost (share × bytes; NaN when
    one is not recorded)."""

    messages: int = 0
    bytes: float = 0.0
    lost_bytes: float = 0.0
    lost_energy_bytes: float = 0.0

    def __add__(self, other: Losses) -> Losses:
        return Losses(
            self.messages + other.messages,
            self.bytes + other.bytes,
            self.lost_bytes + other.lost_bytes,
            self.lost_energy_bytes + other.lost_energy_bytes,
        )


@dataclass(frozen=True)
class RunDigest:
    """One run.

    legs: "message" (all legs), "push", "pull", "iteration" → durations of what ended, warm-up left out; a leg that the
    run does not have is not there. every, bounded: losses of all journeys, and of those whose bound is above 0.
    bound, worst_share, worst_of_bound: the largest bound, loss of one journey, loss over its own bound. violations:
    journeys that lost more than their bound. pushed: losses of the push leg. resent_bytes: payload sent again, both
    legs. tensor_bytes: of float32 that the messages stand for (more than their bytes where they are compressed), or
    NaN. drifting: iterations after which workers may hold different parameters. exposed_comm_s: mean of the iterations,
    or NaN.
    """

    legs: dict[str, Durations]
    every: Losses = Losses()
    bounded: Losses = Losses()
    pushed: Losses = Losses()
    resent_bytes: float = 0.0
    tensor_bytes: float = float("nan")
    bound: float = 0.0
    worst_share: float = 0.0
    worst_of_bound: float = 0.0
    violations: int = 0
    drifting: frozenset[int] = frozenset()
    exposed_comm_s: float = float("nan")


def digest_all(runs: Sequence[Run]) -> dict[str, RunDigest]:
    """Run id → digest. Files are read by as many threads as there are cores: Arrow and numpy let each other run."""
    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        return dict(zip([run.result.run_id for run in runs], pool.map(digest, runs), strict=True))


def digest(run: Run) -> RunDigest:
    """Digest of one run; fields without a table stay empty."""
    legs: dict[str, Durations] = {}
    exposed_s, d = float("nan"), dilation(run.result)
    iterations = _read(run.path / "iterations.parquet", _ITERATIONS, run.result.job)
    if iterations is not None:
        counted = _counted(iterations)
        legs["iteration"] = _durations(iterations, counted, d)
        exposed = _floats(iterations, "exposed_comm_s")[counted] / d
        exposed_s = float(np.nanmean(exposed)) if np.isfinite(exposed).any() else float("nan")
    messages = _read(run.path / "messages.parquet", _MESSAGES, run.result.job)
    if messages is None:
        return RunDigest(legs, exposed_comm_s=exposed_s)
    ended = [] if iterations is None else np.unique(_integers(iterations, "iteration")).tolist()
    counted = _counted(messages)
    legs["message"] = _durations(messages, counted, d)
    on_leg = {name: _is(messages, "leg", name) for name in ("push", "pull")}
    for name, leg_rows in on_leg.items():
        if leg_rows.any():
            legs[name] = _durations(messages, counted & leg_rows, d)
    losses = _with_losses(messages, on_leg, legs)
    lossy = np.unique(_integers(messages, "iteration")[on_leg["pull"] & (_floats(messages, "lost_bytes") > 0)])
    drifting = may_differ(ended, lossy.tolist(), lasts=drift_lasts(run.result.run))
    return replace(losses, drifting=frozenset(drifting), exposed_comm_s=exposed_s)


def _with_losses(messages: pa.Table, on_leg: dict[str, Bools], legs: dict[str, Durations]) -> RunDigest:
    size, lost = _floats(messages, "bytes"), _floats(messages, "lost_bytes")
    bound = np.nan_to_num(_floats(messages, "loss_bound"))
    energy = _floats(messages, "lost_energy_share") * size
    bounded = bound > 0
    share = lost / size
    return RunDigest(
        legs,
        _losses(size, lost, energy),
        _losses(size[bounded], lost[bounded], energy[bounded]),
        _losses(*(column[on_leg["push"]] for column in (size, lost, energy))),
        tensor_bytes=float(_floats(messages, "tensor_bytes").sum()),
        resent_bytes=float(_floats(messages, "resent_bytes").sum()),
        bound=float(bound.max()),
        worst_share=float(share.max()),
        violations=int(np.count_nonzero(lost > bound * size)),
        worst_of_bound=float((share[bounded] / bound[bounded]).max()) if bounded.any() else 0.0,
    )


def _losses(size: Floats, lost: Floats, energy: Floats) -> Losses:
    return Losses(len(size), float(size.sum()), float(lost.sum()), float(energy.sum()))


def _read(file: Path, columns: Iterable[str], job: str) -> pa.Table | None:
    """The columns that the file has, of this job's rows; None without rows. Other jobs are looked for in the
    dictionary of the column, not in its rows."""
    if not file.is_file():
        return None
    present = set(pq.read_schema(file).names)
    wanted = [name for name in columns if name in present]
    table = pq.read_table(file, columns=wanted, use_threads=False, read_dictionary=["job", "leg"])
    if pc.unique(table["job"]).to_pylist() != [job]:
        table = table.filter(pc.equal(table["job"].cast(pa.string()), job))
    return table if len(table) else None


def _counted(table: pa.Table) -> Bools:
    """After warm-up, and with both ends."""
    known = np.isfinite(_floats(table, "start_s")) & np.isfinite(_floats(table, "end_s"))
    warmup: Bools = table["warmup"].to_numpy().astype(bool)
    return known & ~warmup


def _durations(table: pa.Table, rows: Bools, d: float) -> Durations:
    took_s = _floats(table, "end_s")[rows] - _floats(table, "start_s")[rows]
    return Durations.of(took_s / d, _integers(table, "iteration")[rows])


def _floats(table: pa.Table, name: str) -> Floats:
    """A column; NaN where an older format did not have it."""
    if name not in table.column_names:
        return np.full(len(table), np.nan)
    return np.asarray(table[name].to_numpy(), dtype=np.float64)


def _integers(table: pa.Table, name: str) -> Integers:
    return np.asarray(table[name].to_numpy(), dtype=np.int32)


def _is(table: pa.Table, name: str, value: str) -> Bools:
    """Rows whose text is this one."""
    text = table[name].combine_chunks()
    matches: Bools = (
        pc.equal(text.indices, pc.index_in(pa.scalar(value), value_set=text.dictionary)).to_numpy(zero_copy_only=False)
        if value in text.dictionary.to_pylist()
        else np.zeros(len(table), bool)
    )
    return matches
