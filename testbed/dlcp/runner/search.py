"""`dlcp tune`: makes the searches that an experiment asks for, on its own fabric, and keeps their record.

Every run goes into the record as soon as it is over; the same command goes on from there. Of the runs themselves
nothing else is kept: their seeds are never those of measured runs, so that no result was chosen by itself.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import random
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from dlcp.agents.machine_monitor import cores
from dlcp.errors import ExitCode, Problem
from dlcp.model.experiment import SchemeChoice
from dlcp.model.loading.explain import did_you_mean
from dlcp.model.loading.search_record import (
    RUNS_A_POINT,
    Point,
    Record,
    Search,
    TuningRun,
    read_record,
    record_path,
    write_record,
)
from dlcp.model.result import RunResult
from dlcp.runner.planning.check import Ready
from dlcp.runner.planning.plan import Cell, make_cell, seed_of, usual_substrate
from dlcp.runner.planning.run_identity import content_hash
from dlcp.runner.planning.search_answers import Wanted, alone, wanted
from dlcp.runner.running.execute import MORE_CHANCES, Listener, outcome
from dlcp.substrates.base import Substrate
from dlcp.substrates.registry import open_substrate

_MOST_REPEATS = 1000
"""Of an experiment (model.experiment): so many seeds of a job may be measured."""


@dataclass(frozen=True)
class Trial:
    """One run to make: the scheme and job that it is of, which point of their grid, and which of its runs."""

    of: Wanted
    point: int
    run: int
    cell: Cell


@dataclass(frozen=True)
class Tuning:
    """What became of it. redone: what was in the record before and does not count any more, a line each. made: runs."""

    path: Path
    searches: tuple[Search, ...]
    redone: tuple[str, ...]
    made: int

    @property
    def exit_code(self) -> ExitCode:
        """FINE when every search has chosen and every point that could do was trusted; SUSPECT else."""
        fine = all(search.chosen is not None and not search.undecided for search in self.searches)
        return ExitCode.FINE if fine else ExitCode.SUSPECT


class Tuner:
    """The searches of an experiment, as far as they have come.

    labels, jobs: of which; None: all. Raises Problem for one that the experiment does not search, Problems when the
    record cannot be read.
    """

    def __init__(
        self, ready: Ready, labels: Collection[str] | None = None, jobs: Collection[str] | None = None
    ) -> None:
        self._ready = ready
        self.substrate = usual_substrate(ready)
        every = wanted(ready.experiment, ready.workloads, ready.workload_folder, self.substrate)
        if not every:
            raise Problem(
                str(ready.path), "no scheme here has a `search`", "such as search: {partition: [22 kB, 44 kB]}"
            )
        _require_known("--scheme", labels, [one.choice.label for one in every], "no scheme with a search is labelled")
        _require_known("--job", jobs, [one.job for one in every], "no job is called")
        self.wanted = [
            one for one in every if (labels is None or one.choice.label in labels) and (jobs is None or one.job in jobs)
        ]
        self._record: Record = read_record(ready.path, ready.experiment.name)
        self.redone: list[str] = []
        self._searches = {(one.choice.label, one.job): self._begin(one) for one in self.wanted}

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Own the folder of records: two that tune at once would measure each other. Problem when another does."""
        folder = record_path(self._ready.path).parent
        folder.mkdir(exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise Problem(str(folder), "another dlcp is tuning here", "wait for it") from None
        finally:
            os.close(descriptor)

    @property
    def searches(self) -> tuple[Search, ...]:
        """As far as they have come."""
        return tuple(self._searches.values())

    def todo(self) -> list[Trial]:
        """Runs that are missing, suspect or failed, each job alone: every point's first run before any second; within
        these in a random order, so that what drifts in the machine favours none."""
        ready = replace(self._ready, experiment=alone(self._ready.experiment))
        hashes = {name: content_hash(workload, ready.workload_folder) for name, workload in ready.workloads.items()}
        trials = []
        for one in self.wanted:
            sha256 = hashes[ready.experiment.jobs[one.job].workload]
            for number, point in enumerate(self._searches[one.choice.label, one.job].points):
                settled = {run.seed for run in point.runs if run.status == "ok"}
                for run in range(0 if point.unfit else RUNS_A_POINT):
                    seed = tuning_seed(ready.experiment.seed, one.job, run)
                    if seed not in settled:
                        choice = _named(one.choice.of_job(one.job, point.knobs), point)
                        cell = make_cell(ready, choice, one.job, sha256, run, seed, self.substrate)
                        trials.append(Trial(one, number, run, cell))
        random.Random(f"tune/{ready.experiment.seed}").shuffle(trials)
        return sorted(trials, key=lambda trial: trial.run)

    def note(self, trial: Trial, result: RunResult) -> None:
        """Put a run's outcome into the record's file."""
        name = trial.of.choice.label, trial.of.job
        search = self._searches[name]
        points = list(search.points)
        points[trial.point] = _with_run(points[trial.point], trial.cell.run.seed, result)
        self._searches[name] = search.model_copy(update={"points": tuple(points)}).sealed()
        self.write()

    def write(self) -> Path:
        """Bring the record's file up to date."""
        for search in self._searches.values():
            self._record = self._record.with_search(search)
        return write_record(self._ready.path, self._record)

    def _begin(self, one: Wanted) -> Search:
        """What the record has of a search that still counts, else an empty one."""
        found = self._record.of(one.choice.label, one.job)
        if found is not None and found.sha256 == found.own_sha256 and found.digest == one.digest:
            return found
        if found is not None:
            self.redone.append(f"{one.choice.label} for job {one.job} {one.lacks(found)}")
        return Search(
            label=one.choice.label,
            scheme=one.choice.scheme,
            job=one.job,
            substrate=self.substrate,
            digest=one.digest,
            cores=cores(),
            kernel=platform.release(),
            points=one.points,
        ).sealed()


def tune(tuner: Tuner, listener: Listener, *, substrate: AbstractContextManager[Substrate] | None = None) -> Tuning:
    """Make what is missing of the searches. Suspect runs get more chances, after all others; a point whose runs stay
    suspect is not chosen, and made again by the next call.

    substrate: where; if it is not given, the experiment's usual one. Problem when another process tunes in this folder;
    MachineCannot when this machine cannot make the runs. A KeyboardInterrupt leaves all finished runs in the record.
    """
    made = 0
    with tuner.alone():
        todo = tuner.todo()
        if todo:
            with substrate or open_substrate(tuner.substrate) as opened:
                for attempt in range(MORE_CHANCES + 1):
                    if attempt and todo:
                        listener.again(len(todo))
                    todo, made = _make_all(tuner, todo, opened, listener), made + len(todo)
        path = tuner.write()
    return Tuning(path, tuner.searches, tuple(tuner.redone), made)


@cache
def tuning_seed(experiment_seed: int, job_name: str, run: int) -> int:
    """The seed of a search's run, the same for all points and schemes: none that the experiment may measure with."""
    measured = {seed_of(experiment_seed, job_name, repeat) for repeat in range(_MOST_REPEATS)}
    for attempt in range(_MOST_REPEATS):
        text = f"tune/{experiment_seed}/{job_name}/{run}/{attempt}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
        if seed not in measured:
            return seed
    raise AssertionError("31 bits hold more seeds than an experiment has repeats")


def _make_all(tuner: Tuner, todo: list[Trial], substrate: Substrate, listener: Listener) -> list[Trial]:
    """Make runs in order; returns those that are suspect."""
    again = []
    for number, trial in enumerate(todo, 1):
        begun_s = time.monotonic()
        on_progress = listener.begins(number, len(todo), trial.cell.run)
        with tempfile.TemporaryDirectory(prefix="dlcp-tune-") as folder:
            result = outcome(trial.cell, Path(folder), substrate, on_progress)
        tuner.note(trial, result)
        listener.ends(number, len(todo), trial.cell.run, result, time.monotonic() - begun_s)
        again += [trial] * (result.status == "suspect")
    return again


def _with_run(point: Point, seed: int, result: RunResult) -> Point:
    """A point with the outcome of one of its runs, in the place of an earlier try."""
    before = next((run for run in point.runs if run.seed == seed), None)
    status = "failed" if result.status == "unsupported" else result.status
    jct_s = None if result.jct_s is None else round(result.jct_s, 6)
    tries, commit = 1 + (before.tries if before else 0), str(result.provenance.get("commit", ""))[:12]
    run = TuningRun(seed=seed, status=status, jct_s=jct_s, tries=tries, commit=commit)
    others = tuple(run for run in point.runs if run.seed != seed)
    return point.model_copy(update={"runs": tuple(sorted((*others, run), key=lambda one: one.seed))})


def _named(choice: SchemeChoice, point: Point) -> SchemeChoice:
    """The choice with its point's knobs in its label, for who watches."""
    knobs = ", ".join(f"{knob} {value}" for knob, value in point.knobs.items())
    return choice.model_copy(update={"label": f"{choice.label} ({knobs})"})


def _require_known(word: str, named: Collection[str] | None, known: list[str], what: str) -> None:
    for name in named or ():
        if name not in known:
            raise Problem(word, f"{what} {name!r}", did_you_mean(name, dict.fromkeys(known)))
