"""Result directories → tidy frames, all times in lab seconds. Nothing here knows how or where a result was made."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import pyarrow.parquet as pq
from pydantic import ValidationError

from dlcp.errors import Problem
from dlcp.model.experiment import Expectation
from dlcp.model.loading.stored_result import damaged_tables, read_result
from dlcp.model.result import RESULT_FILE, TABLES, RunResult, no_results
from dlcp.model.scaling import JobRegimes
from dlcp.model.tables import table_path
from dlcp.report.data.digest import RunDigest, digest_all
from dlcp.report.data.formatting import show_name, show_setting
from dlcp.report.data.lab_time import in_lab_time, table_in_lab_time
from dlcp.report.data.regime_facts import facts_of_jobs
from dlcp.report.data.run import Run

Made = TypeVar("Made")

RUN_COLUMNS = ("run_id", "label", "repeat", "trusted")
"""Columns that every table gets from its run. `label` is the scheme's name in tables and plots."""


@dataclass(frozen=True)
class LeftOut:
    """A directory that is not part of the analysis, and why."""

    path: Path
    why: str


@dataclass(frozen=True)
class Results:
    """All runs of one experiment."""

    experiment: str
    directory: Path
    runs: tuple[Run, ...]
    left_out: tuple[LeftOut, ...] = ()
    _made: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row a run: its identity, status and completion time."""
        names = ("run_id", "scheme", "label", "job", "repeat", "seed", "substrate", "status", "reason", "jct_s")
        rows = [{name: getattr(run.result, name) for name in names} | {"trusted": run.trusted} for run in self.runs]
        return pd.DataFrame(rows, columns=[*names, "trusted"])

    def table(self, name: str, columns: Collection[str] | None = None) -> pd.DataFrame:
        """A table of TABLES over all runs that have it, with RUN_COLUMNS; empty, with columns, if none has.

        columns: only these are read. For the durations and losses of millions of messages see `digest`.
        """
        wanted = tuple(TABLES[name] if columns is None else columns)
        return self.made(("table", name, wanted), lambda: self._table(name, wanted))

    def _table(self, name: str, wanted: tuple[str, ...]) -> pd.DataFrame:
        parts = [_read_table(run, name, wanted) for run in self.runs]
        parts = [part for part in parts if part is not None and len(part)]
        empty = pd.DataFrame(columns=[*wanted, *RUN_COLUMNS, "scheme"])
        return pd.concat(parts, ignore_index=True) if parts else empty

    def own(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows of a table that are about the job that their run measured, not about its tenants."""
        measured = {run.result.run_id: run.result.job for run in self.runs}
        return table[table["job"] == table["run_id"].map(measured)]

    def digest(self, run: Run) -> RunDigest:
        """Digest of the tables `messages` and `iterations` of a run, read once."""
        return self.made("digests", lambda: digest_all(self.runs))[run.result.run_id]

    def made(self, key: Any, make: Callable[[], Made]) -> Made:
        """Return the value that `make` gives, made once for these results."""
        if key not in self._made:
            self._made[key] = make()
        value: Made = self._made[key]
        return value

    @property
    def jobs(self) -> tuple[str, ...]:
        """Jobs that have a run: those of the expectations in their order, then the rest by name. Those whose names
        differ in numbers only (points of an axis) stand together, by their numbers."""
        present = sorted({run.result.job for run in self.runs}, key=natural)
        expected = [str(entry.get("job")) for run in self.runs[:1] for entry in run.result.expect]
        families = list(dict.fromkeys(_NUMBER.sub("#", job) for job in (*expected, *present)))
        return tuple(sorted(present, key=lambda job: families.index(_NUMBER.sub("#", job))))

    @property
    def expect(self) -> tuple[Expectation, ...]:
        """Expectations of the experiment when the newest run was made."""
        newest = max(self.runs, key=_made_at).result
        return tuple(Expectation.model_validate(entry) for entry in newest.expect)

    def labels(self, job: str | None = None) -> tuple[str, ...]:
        """Schemes' labels: the baselines by name, then those of DLCP; numbers in names by their size."""
        keys = {(run.result.is_dlcp, run.result.label) for run in self.runs if job in (None, run.result.job)}
        return tuple(label for _, label in sorted(keys, key=lambda one: (one[0], natural(one[1]))))

    def subject(self, job: str | None = None) -> str:
        """The label whose gains are wanted: of DLCP's own, the one that the experiment claims most about; then the one
        that uses the plain scheme; then the shortest. Without any of DLCP's, the label that most claims are against
        (such as a run that loses nothing); then the last."""
        labels = self.labels(job)
        own_labels = [label for label in labels if self.is_dlcp(label)]
        claimed, against = (
            [expectation.scheme for expectation in self.expect],
            [expectation.against for expectation in self.expect],
        )

        def rank(label: str) -> tuple[int, bool, int]:
            scheme = self.scheme_of(label)
            return -claimed.count(label) - claimed.count(scheme), scheme != "dlcp", len(label)

        return min(own_labels, key=rank) if own_labels else max(reversed(labels), key=against.count)

    def reference(self, job: str | None = None) -> str:
        """The label that speed-ups are over: the one of plain TCP, else of tuned TCP; without either, the first."""
        labels = self.labels(job)
        plain = [label for name in ("tcp", "tcp-tuned") for label in labels if self.scheme_of(label) == name]
        return (plain or list(labels))[0]

    def example(self, job: str | None = None, label: str | None = None) -> RunResult:
        """A run that stands for its job or scheme (regime, knobs, topology): a trusted one if there is one."""
        fitting = [run for run in self.runs if job in (None, run.result.job) and label in (None, run.result.label)]
        return min(fitting, key=lambda run: not run.trusted).result

    def regime(self, job: str | None = None) -> dict[str, Any]:
        """Facts for every plot of a job, or of all jobs: the scaling, what switches did not do as they should, and
        how many runs are in the means and how many are not."""
        degraded = self.degraded
        more = {"degraded": "; ".join(degraded)} if degraded else {}
        statuses = Counter(str(run.result.status) for run in self.runs if job in (None, run.result.job))
        out = [f"{statuses[status]} {status}" for status in ("suspect", "failed", "unsupported") if statuses[status]]
        counted = f"{statuses['ok']} counted" + (f", {', '.join(out)} left out" if out else "")
        if job is not None:
            return self.example(job).regime | more | {"runs": counted}
        return dict(facts_of_jobs({name: self.example(name).regime for name in self.jobs})) | more | {"runs": counted}

    @property
    def degraded(self) -> tuple[str, ...]:
        """Deviations of switches from the requests of runs, a line each: which schemes' runs, which switches, what."""
        lines: dict[str, dict[str, None]] = {}
        for run in self.runs:
            for line in run.result.degradations:
                lines.setdefault(line, {})[run.result.label] = None
        return tuple(f"{', '.join(labels)}: {line}" for line, labels in lines.items())

    def scheme_of(self, label: str) -> str:
        """The scheme behind a label."""
        return next(run.result.scheme for run in self.runs if run.result.label == label)

    def is_dlcp(self, label: str) -> bool:
        """Return true if the scheme with a label is DLCP, a part or a variant of it."""
        return next(run.result.is_dlcp for run in self.runs if run.result.label == label)

    def of(self, job: str, label: str | None = None) -> tuple[Run, ...]:
        """The runs of a job, of one scheme or of all, by repeat."""
        runs = [run for run in self.runs if run.result.job == job and label in (None, run.result.label)]
        return tuple(sorted(runs, key=lambda run: (run.result.repeat, run.result.label)))


_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def natural(name: str) -> tuple[tuple[str, float], ...]:
    """A key to sort names by: as text, but the numbers in them by their size ("5 %" before "10 %")."""
    words = _NUMBER.split(name)
    numbers = [float(number) for number in _NUMBER.findall(name)]
    return tuple(zip(words, [*numbers, -1.0], strict=True))


def load(path: Path, only: Collection[str] | None = None) -> Results:
    """Read results/, results/<experiment> or one run's directory.

    only: run ids that belong to the present plan; others are listed as left out. Without it, runs of an older
    configuration are recognised by their knobs, regime, topology, QoS, job, background and faults, and left out; so are
    runs of any scheme whose scale or buffers differ from those of their job's newest run.
    Raises Problem when there is no result, or results of several experiments.
    """
    runs: list[Run] = []
    left_out: list[LeftOut] = []
    for directory in _run_directories(path):
        loaded = _load_run(directory)
        if isinstance(loaded, LeftOut):
            left_out.append(loaded)
        elif only is not None and loaded.result.run_id not in only:
            left_out.append(LeftOut(directory, "not part of the present plan"))
        else:
            runs.append(loaded)
    if not runs:
        details = "; ".join(f"{entry.path.name}: {entry.why}" for entry in left_out[:3])
        raise Problem(
            str(path),
            "no finished run here" + (f" ({details})" if details else ""),
            "make one with: dlcp run EXPERIMENT",
        )
    experiments = sorted({run.result.experiment for run in runs})
    if len(experiments) > 1:
        raise Problem(
            str(path),
            f"results of {len(experiments)} experiments: {', '.join(experiments)}",
            f"name one: dlcp report {path / experiments[0]}",
        )
    kept, stale = _newest_configuration(runs)
    only_run = (path / RESULT_FILE).is_file()
    return Results(experiments[0], path if only_run else kept[0].path.parent, tuple(kept), (*left_out, *stale))


def _run_directories(path: Path) -> list[Path]:
    if not path.is_dir():
        raise no_results(path)
    if (path / RESULT_FILE).is_file():
        return [path]
    folders = [folder for pattern in ("*", "*/*") for folder in path.glob(pattern) if folder.is_dir()]
    holding = [folder for folder in folders if os.path.lexists(folder / RESULT_FILE)]
    return sorted(folder for folder in holding if not _unfinished(folder, path))


def _unfinished(directory: Path, root: Path) -> bool:
    return any(part.endswith(".tmp") for part in directory.relative_to(root).parts)


def _load_run(directory: Path) -> Run | LeftOut:
    try:
        stored = read_result(directory)
        damaged = damaged_tables(directory, stored)
        if damaged:
            return LeftOut(directory, "; ".join(damaged.values()))
        run = Run(in_lab_time(stored), directory)
        for entry in run.result.expect:
            Expectation.model_validate(entry)
    except Problem as problem:
        return LeftOut(directory, f"{RESULT_FILE}: {problem.what}")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return LeftOut(directory, f"{RESULT_FILE}, expect, {where}: {first['msg']}")
    return run


def _read_table(run: Run, name: str, wanted: tuple[str, ...]) -> pd.DataFrame | None:
    file = table_path(run.path, name)
    if not file.is_file():
        return None
    present = set(pq.read_schema(file).names)
    table = pq.read_table(file, columns=[column for column in wanted if column in present])
    frame: pd.DataFrame = table.to_pandas().reindex(columns=list(wanted))
    result = run.result
    frame = table_in_lab_time(frame, name, result)
    return frame.assign(
        run_id=result.run_id, label=result.label, repeat=result.repeat, trusted=run.trusted, scheme=result.scheme
    )


def _made_at(run: Run) -> tuple[str, int]:
    return run.result.made_at(run.path)


def _newest_configuration(runs: list[Run]) -> tuple[list[Run], list[LeftOut]]:
    """Keep the scale and the buffers of each job's newest run, then the configuration of the newest run of each
    (label, job), and one run a repeat."""
    kept: list[Run] = []
    stale: list[LeftOut] = []
    configuration: dict[tuple[str, str], str] = {}
    keys: set[tuple[str, str, int]] = set()
    regimes = JobRegimes()
    for run in sorted(runs, key=_made_at, reverse=True):
        cell = (run.result.label, run.result.job)
        if differing := regimes.add(run.result.job, run.result.regime):
            stale.append(LeftOut(run.path, f"{run.result.label}, {run.result.job}: {_incomparable(differing)}"))
        elif configuration.setdefault(cell, _configuration(run)) != _configuration(run):
            stale.append(LeftOut(run.path, f"{run.result.label}, {run.result.job}: an older configuration"))
        elif (*cell, run.result.repeat) in keys:
            stale.append(
                LeftOut(
                    run.path,
                    f"{run.result.label}, {run.result.job}: repeat {run.result.repeat + 1} was run again later",
                )
            )
        else:
            keys.add((*cell, run.result.repeat))
            kept.append(run)
    return sorted(kept, key=lambda run: (run.result.job, run.result.repeat, run.result.label)), stale


def _incomparable(differing: Mapping[str, tuple[Any, Any]]) -> str:
    """Say in which parts of its regime a run differs from its job's newest run."""
    parts = [
        f"{show_name(name)} {show_setting(name, value)} (newest: {show_setting(name, newest)})"
        for name, (value, newest) in differing.items()
    ]
    return f"not comparable with the newest run of this job: {', '.join(parts)}"


def _configuration(run: Run) -> str:
    result = run.result
    defining = [
        result.scheme,
        result.substrate,
        result.regime,
        result.topology,
        result.intended,
        knobs(result),
        result.run.get("job"),
        result.run.get("workload"),
        result.run.get("background"),
        faults(result),
    ]
    return json.dumps(defining, sort_keys=True, default=str)


def faults(result: RunResult) -> list[dict[str, Any]]:
    """Faults planned in a run, from the run's definition."""
    return list(result.run.get("definition", {}).get("faults", []))


def knobs(result: RunResult) -> dict[str, Any]:
    """The scheme's knobs: plain values only."""
    return {name: value for name, value in result.knobs.items() if not isinstance(value, dict)}


def ideal_s_of(results: Results, job: str, name: str) -> float | None:
    """A figure of the ideal transport (RunResult.ideal), seconds: the mean over the runs that have it, as a real job's
    compute varies; of whole gradients, where only some schemes compress them."""
    ideals_s = [ideal_s for each in _ideals_s(results, job, name).values() for ideal_s in each]
    return sum(ideals_s) / len(ideals_s) if ideals_s else None


def ideals_s_of(results: Results, job: str, name: str) -> dict[str, float]:
    """The same for each label: schemes cut gradients into messages of different sizes."""
    return {label: sum(each) / len(each) for label, each in _ideals_s(results, job, name).items()}


def _ideals_s(results: Results, job: str, name: str) -> dict[str, list[float]]:
    runs = [run.result for run in results.of(job) if name in run.result.ideal]
    ideals: dict[str, list[float]] = {}
    for run in [run for run in runs if "bytes_share" not in run.ideal] or runs:
        ideals.setdefault(run.label, []).append(run.ideal[name])
    return ideals
