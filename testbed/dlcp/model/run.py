"""One cell of an experiment: one scheme, one job, one repeat, on one substrate."""

from __future__ import annotations

from dataclasses import dataclass

from dlcp.model.experiment import Experiment, SchemeChoice
from dlcp.model.workload import Job, Workload


@dataclass(frozen=True)
class TenantRun:
    """A job that runs at the same time as the measured one, and its scheme."""

    job_name: str
    job: Job
    workload: Workload
    scheme: SchemeChoice


@dataclass(frozen=True)
class Run:
    """A run that a substrate is asked to make.

    id: short hash of everything that defines the run; the name of its result directory. seed: the same for all
    schemes of one job and repeat, so that they meet the same gradients and the same background bursts. tenants: jobs
    that run at the same time.
    """

    id: str
    experiment: Experiment
    scheme: SchemeChoice
    job_name: str
    job: Job
    workload: Workload
    repeat: int
    seed: int
    substrate: str
    tenants: tuple[TenantRun, ...] = ()
