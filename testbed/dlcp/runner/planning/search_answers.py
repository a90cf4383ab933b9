"""Which searches an experiment asks for, and which of them its record has the answer of."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dlcp import schemes
from dlcp.model.experiment import Experiment, SchemeChoice
from dlcp.model.loading.search_record import Point, Search, read_record
from dlcp.model.workload import Job, Workload
from dlcp.runner.planning.run_identity import content_hash, facts
from dlcp.schemes.base import UnfitError

_BESIDE = ("beside", "beside_scheme", "measured")
_NOT_OF_JOB = {"iterations", "warmup_iterations", "evaluations", "record_holes", "target_accuracy", *_BESIDE}
"""What of a job changes how long it runs or what is written down, not which knobs are best; and its neighbours, for a
search runs each job alone."""
_NOT_OF_FABRIC = {"experiment", "job_name", "backlog_every"}


@dataclass(frozen=True)
class Wanted:
    """A search that an experiment asks for. choice: the scheme with the knobs that are not searched. points: the grid,
    without runs. digest: of all that the outcome rests on."""

    choice: SchemeChoice
    job: str
    points: tuple[Point, ...]
    digest: str

    def lacks(self, found: Search | None) -> str:
        """Why a record's search is not the answer; empty when it is."""
        if found is None:
            return "was not tuned"
        if found.sha256 != found.own_sha256:
            return "has a record that was changed by hand: its sum is wrong"
        if found.digest != self.digest:
            return "was tuned for something else: fabric, job, scheme or grid have changed since"
        return "has no knobs yet that all runs agree to trust" if found.chosen is None else ""


def wanted(experiment: Experiment, workloads: Mapping[str, Workload], folder: Path, substrate: str) -> list[Wanted]:
    """All searches of an experiment, scheme by scheme, job by job. folder: of the workloads' files. substrate: where
    its runs are made."""
    hashes = {name: content_hash(workload, folder) for name, workload in workloads.items()}
    found = []
    for choice in experiment.schemes:
        for job_name, job in _jobs_under(experiment, choice.label).items() if choice.search else ():
            own, base = experiment.of_job(job_name), choice.of_job(job_name)
            points = grid(own, choice, job_name, workloads[job.workload])
            digest = _digest(facts(own, job_name, hashes[job.workload]), choice, base, substrate)
            found.append(Wanted(base, job_name, points, digest))
    return found


def alone(experiment: Experiment) -> Experiment:
    """The same with every job by itself."""
    nobody = {name: Job.model_fields[name].default for name in _BESIDE}
    jobs = {name: job.model_copy(update=nobody) for name, job in experiment.jobs.items()}
    return experiment.model_copy(update={"jobs": jobs})


def _jobs_under(experiment: Experiment, label: str) -> dict[str, Job]:
    """The jobs that run under a scheme: those that are measured, and those beside them."""
    jobs = experiment.jobs
    beside = {
        name for job in jobs.values() if job.measured and job.beside_scheme in (None, label) for name in job.beside
    }
    return {name: job for name, job in jobs.items() if job.measured or name in beside}


def grid(experiment: Experiment, choice: SchemeChoice, job_name: str, workload: Workload) -> tuple[Point, ...]:
    """Every combination of a search's values, the last knob's changing fastest."""
    combinations = (
        dict(zip(choice.search, values, strict=True)) for values in itertools.product(*choice.search.values())
    )
    return tuple(
        Point(knobs=knobs, unfit=_unfit(experiment, choice.of_job(job_name, knobs), job_name, workload))
        for knobs in combinations
    )


def answers(
    path: Path, experiment: Experiment, searches: list[Wanted]
) -> tuple[dict[tuple[str, str], Search], list[tuple[Wanted, str]]]:
    """(label, job) → the search of the experiment's record that is the answer; and those that have none, with why.
    path: the experiment's file. Raises Problems when the record cannot be read."""
    record = read_record(path, experiment.name)
    found: dict[tuple[str, str], Search] = {}
    lacking: list[tuple[Wanted, str]] = []
    for one in searches:
        search = record.of(one.choice.label, one.job)
        if why := one.lacks(search):
            lacking.append((one, why))
        elif search is not None:
            found[one.choice.label, one.job] = search
    return found, lacking


def _unfit(experiment: Experiment, choice: SchemeChoice, job_name: str, workload: Workload) -> str:
    """Why these knobs cannot do for a job; empty when they can."""
    try:
        scheme = schemes.scheme_class(choice.scheme).model_validate(choice.knobs)
        scheme.intent(experiment.port_buffer_bytes)
        scheme.for_job(experiment.jobs[job_name], workload).transport(experiment.scaling)
    except UnfitError as error:
        return f"{error.knob}: {error.what}"
    except ValidationError as error:
        return "; ".join(one["msg"].removeprefix("Value error, ") for one in error.errors())
    except ValueError as error:
        return str(error)
    return ""


def _digest(of_run: dict[str, Any], choice: SchemeChoice, base: SchemeChoice, substrate: str) -> str:
    job = {key: value for key, value in of_run["job"].items() if key not in _NOT_OF_JOB}
    fabric = {key: value for key, value in of_run.items() if key not in _NOT_OF_FABRIC}
    scheme = schemes.scheme_class(choice.scheme).model_validate(base.knobs)
    everything = fabric | {
        "job": job,
        "scheme": choice.scheme,
        "knobs": scheme.model_dump(mode="json", by_alias=True),
        "inputs": scheme.inputs(),
        "search": choice.search,
        "substrate": substrate,
    }
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()[:16]
