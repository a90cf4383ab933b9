"""Experiment → runs: which, in which order, from which seeds, under which names."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlcp.model.experiment import SchemeChoice
from dlcp.model.run import Run, TenantRun
from dlcp.runner.planning.check import Ready, common_substrate, scheme_of
from dlcp.runner.planning.run_identity import content_hash, facts, job_facts, run_id
from dlcp.substrates import registry


@dataclass(frozen=True)
class Cell:
    """One run and the facts that its id is the hash of."""

    run: Run
    definition: dict[str, Any]


@dataclass(frozen=True)
class Unsupported:
    """A scheme that cannot run on this substrate, and why. A real answer, not an error."""

    label: str
    why: str


@dataclass(frozen=True)
class Plan:
    """cells: in the order in which they run. Repeats are the outer loop, so that an early end leaves whole repeats.

    where: which lab, on that substrate; else empty.
    """

    ready: Ready
    substrate: str
    cells: tuple[Cell, ...]
    unsupported: tuple[Unsupported, ...]
    where: str = ""

    @property
    def run_ids(self) -> frozenset[str]:
        """Names of all runs."""
        return frozenset(cell.run.id for cell in self.cells)

    def folder(self, results: Path) -> Path:
        """Where its results lie."""
        return results / self.ready.experiment.name


def usual_substrate(ready: Ready) -> str:
    """Where a file's runs are made unless the caller says otherwise: emulated, or where alone its schemes can run."""
    return common_substrate(ready.schemes.values())


def plan(
    ready: Ready, substrate: str = registry.USUAL, *, where: str = "", lacking: Mapping[str, str] | None = None
) -> Plan:
    """All runs of an experiment. The same file, workloads and schemes give the same plan, on any machine.

    where: the lab's name. lacking: label → why that scheme cannot run there. Problem when the substrate is not known.
    """
    has_network = registry.traits_of(substrate).has_network
    why_not = dict(lacking or {}) | {
        label: f"runs on {', '.join(registry.names_for(needs_network=scheme.needs_network))} only"
        for label, scheme in ready.schemes.items()
        if scheme.needs_network != has_network
    }
    unsupported = tuple(Unsupported(label, why_not[label]) for label in ready.schemes if label in why_not)
    hashes = {name: content_hash(workload, ready.workload_folder) for name, workload in ready.workloads.items()}
    cells = [
        _cell(ready, substrate, where, job_name, label, repeat, hashes)
        for repeat in range(ready.experiment.repeats)
        for job_name, job in ready.experiment.jobs.items()
        if job.measured
        for label in _shuffled(ready, job_name, repeat)
        if label not in why_not
    ]
    return Plan(ready, substrate, tuple(cells), unsupported, where)


def seed_of(experiment_seed: int, job_name: str, repeat: int) -> int:
    """The seed of one job and repeat, the same for every scheme: 31 bits, so that any generator takes it."""
    digest = hashlib.sha256(f"{experiment_seed}/{job_name}/{repeat}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def _shuffled(ready: Ready, job_name: str, repeat: int) -> list[str]:
    """Labels in a random order of this job and repeat: what drifts in the machine must not favour one scheme."""
    labels = [choice.label for choice in ready.experiment.schemes]
    random.Random(f"order/{ready.experiment.seed}/{job_name}/{repeat}").shuffle(labels)
    return labels


def _cell(
    ready: Ready, substrate: str, where: str, job_name: str, label: str, repeat: int, hashes: dict[str, str]
) -> Cell:
    job = ready.experiment.jobs[job_name]
    seed = seed_of(ready.experiment.seed, job_name, repeat)
    choice = ready.choice(label, job_name)
    return make_cell(ready, choice, job_name, hashes[job.workload], repeat, seed, substrate, where)


def make_cell(
    ready: Ready,
    choice: SchemeChoice,
    job_name: str,
    workload_sha256: str,
    repeat: int,
    seed: int,
    substrate: str,
    where: str = "",
) -> Cell:
    """One run of a job. choice: a scheme with the knobs of this job, nothing left open (SchemeChoice.of_job)."""
    experiment = ready.experiment.of_job(job_name)
    choices = tuple(ready.choice(scheme.label, job_name) for scheme in experiment.schemes)
    experiment = experiment.model_copy(update={"schemes": choices})
    job, scheme = experiment.jobs[job_name], scheme_of(choice)
    definition = (
        facts(experiment, job_name, workload_sha256)
        | {
            "scheme": choice.scheme,
            "label": choice.label,
            "knobs": scheme.model_dump(mode="json", by_alias=True),
            "repeat": repeat,
            "seed": seed,
            "substrate": substrate,
        }
        | ({"where": where} if where else {})
    )
    tenants = tenants_of(ready, job_name, choice.label)
    if tenants:
        definition["tenants"] = [
            {
                "job_name": tenant.job_name,
                "job": job_facts(tenant.job),
                "workload_sha256": content_hash(tenant.workload, ready.workload_folder),
                "label": tenant.scheme.label,
                "knobs": scheme_of(tenant.scheme).model_dump(mode="json", by_alias=True),
            }
            for tenant in tenants
        ]
    if inputs := scheme.inputs():
        definition["inputs"] = inputs
    workload = ready.workloads[job.workload]
    return Cell(
        Run(run_id(definition), experiment, choice, job_name, job, workload, repeat, seed, substrate, tenants),
        definition,
    )


def tenants_of(ready: Ready, job_name: str, label: str) -> tuple[TenantRun, ...]:
    """Jobs that run at the same time as a job under a scheme."""
    jobs, job = ready.experiment.jobs, ready.experiment.jobs[job_name]
    return tuple(
        TenantRun(
            name, jobs[name], ready.workloads[jobs[name].workload], ready.choice(job.beside_scheme or label, name)
        )
        for name in job.beside
    )
