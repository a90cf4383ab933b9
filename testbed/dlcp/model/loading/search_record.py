"""The record of a search for a scheme's knobs: what was tried, what came of it, what was chosen.

It lies in the folder of the experiment, tuned/<experiment>.yaml, and is loaded with it. `dlcp tune` writes it; nobody
else does.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field

from dlcp.errors import Problem, Problems
from dlcp.files.atomic_file import write_whole
from dlcp.model.base import Frozen
from dlcp.model.loading.explain import read_as

FOLDER = "tuned"
RUNS_A_POINT = 2
"""Seeds that each point of a search is run with, the same for all: pairs, so that what a seed brings is common."""
_HEAD = "# Written by `dlcp tune {name}`; a search whose lines are changed by hand is not believed.\n"


class TuningRun(Frozen):
    """One run of a point. seed: never one of a measured run. tries: how often it was made; status, jct_s and commit are
    the last one's, or the one's that its monitors did not suspect."""

    seed: int
    status: Literal["ok", "suspect", "failed"]
    jct_s: float | None = None
    tries: int = Field(ge=1)
    commit: str = ""


class Point(Frozen):
    """Knobs that were tried together. unfit: why they cannot do for the job; then there are no runs."""

    knobs: dict[str, Any]
    unfit: str = ""
    runs: tuple[TuningRun, ...] = ()

    @property
    def mean_jct_s(self) -> float | None:
        """Over its runs; None unless all were made and none is suspect or failed: then it cannot be chosen."""
        times = [run.jct_s for run in self.runs if run.status == "ok" and run.jct_s is not None]
        return sum(times) / len(times) if len(times) >= RUNS_A_POINT and len(times) == len(self.runs) else None


class Search(Frozen):
    """One scheme's search for one job.

    digest: of all that its outcome rests on (runner.planning.search_answers). chosen: the knobs of the shortest
    mean job completion time, once all points have had their runs. cores, kernel: of the machine. sha256: of all the
    rest.
    """

    label: str
    scheme: str
    job: str
    substrate: str
    digest: str
    cores: int
    kernel: str
    points: tuple[Point, ...] = ()
    chosen: dict[str, Any] | None = None
    sha256: str = ""

    @property
    def best(self) -> dict[str, Any] | None:
        """The knobs to choose; None while no point can be."""
        timed = [(point.mean_jct_s, number) for number, point in enumerate(self.points) if point.mean_jct_s is not None]
        return self.points[min(timed)[1]].knobs if timed else None

    def at_an_end(self) -> dict[str, list[Any]]:
        """Return the knobs whose chosen value is the first or the last of those that had runs, each with these values
        in their order: a better one may lie beyond. A knob of one value was not searched."""
        tried: dict[str, list[Any]] = {}
        for point in self.points if self.chosen is not None else ():
            for knob, value in point.knobs.items() if not point.unfit else ():
                values = tried.setdefault(knob, [])
                if value not in values:
                    values.append(value)
        chosen = self.chosen or {}
        return {
            knob: values
            for knob, values in tried.items()
            if len(values) > 1 and chosen.get(knob) in (values[0], values[-1])
        }

    @property
    def complete(self) -> bool:
        """True if every point that is feasible has had all its runs, trusted or not."""
        return all(point.unfit or len(point.runs) >= RUNS_A_POINT for point in self.points)

    @property
    def undecided(self) -> int:
        """Points that could do but cannot be chosen, since runs of them are missing, suspect or failed."""
        return sum(not point.unfit and point.mean_jct_s is None for point in self.points)

    @property
    def own_sha256(self) -> str:
        """Hash that `sha256` must equal."""
        text = json.dumps(self.model_dump(mode="json", exclude={"sha256"}), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def sealed(self) -> Search:
        """The same with its best point chosen, once it is complete, and its sum right."""
        chosen = self.model_copy(update={"chosen": self.best if self.complete else None})
        return chosen.model_copy(update={"sha256": chosen.own_sha256})


class Record(Frozen):
    """All searches of an experiment."""

    format: Literal[1]
    experiment: str
    searches: tuple[Search, ...] = ()

    def of(self, label: str, job: str) -> Search | None:
        """A scheme's search for a job, if there is one."""
        return next((search for search in self.searches if (search.label, search.job) == (label, job)), None)

    def with_search(self, search: Search) -> Record:
        """The same with one search put in, in the place of an older one."""
        others = [other for other in self.searches if (other.label, other.job) != (search.label, search.job)]
        ordered = sorted([*others, search], key=lambda one: (one.label, one.job))
        return self.model_copy(update={"searches": tuple(ordered)})


def record_path(experiment: Path) -> Path:
    """Where the record of an experiment's file lies."""
    return experiment.parent / FOLDER / f"{experiment.stem}.yaml"


def read_record(experiment: Path, name: str) -> Record:
    """The record of an experiment's file; an empty one when there is none. Raises Problems when it cannot be read, or
    is of another experiment."""
    path = record_path(experiment)
    if not path.is_file():
        return Record(format=1, experiment=name)
    record = read_as(path, Record)
    if record.experiment != name:
        raise Problems([Problem(str(path), f"is the record of {record.experiment!r}, not of {name!r}", "remove it")])
    return record


def write_record(experiment: Path, record: Record) -> Path:
    """Put a record in the place of what is there, whole or not at all."""
    path = record_path(experiment)
    path.parent.mkdir(exist_ok=True)
    data = record.model_dump(mode="json", exclude_defaults=True) | {"format": record.format}
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    write_whole(path, (_HEAD.format(name=record.experiment) + text).encode())
    return path
