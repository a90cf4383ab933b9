"""Jobs that run at the same time: they exist, and no host belongs to two of them."""

from __future__ import annotations

from collections.abc import Sequence

from dlcp.model.loading.document import Loc
from dlcp.model.loading.document_parts import Parts
from dlcp.model.loading.explain import did_you_mean
from dlcp.model.loading.notes import Notes
from dlcp.model.workload import Job


def check_beside(notes: Notes, parts: Parts, labels: Sequence[str]) -> None:
    """labels: of the experiment's schemes."""
    for name, job in parts.jobs.items():
        _check_named(notes, name, job, parts)
        _check_hosts(notes, name, job, parts)
        _check_scheme(notes, name, job, labels)
    used = {name for job in parts.jobs.values() if job.measured for name in job.beside}
    for name, job in parts.jobs.items():
        if not job.measured and name not in used:
            problem = f"job {name!r} is not measured and no measured job names it in `beside`: it would never run"
            notes.wrong(("jobs", name, "measured"), problem, f"write `beside: [{name}]` in a job, or measured: true")


def _check_named(notes: Notes, name: str, job: Job, parts: Parts) -> None:
    for i, other in enumerate(job.beside):
        entry_loc: Loc = ("jobs", name, "beside", i)
        if other not in parts.job_names:
            notes.wrong(entry_loc, f"no job is called {other!r}", did_you_mean(other, parts.job_names))
        elif other == name:
            notes.wrong(entry_loc, f"job {name!r} cannot run at the same time as itself", "name another job")
        elif other in job.beside[:i]:
            notes.wrong(entry_loc, f"{other} is named twice", "keep one of them")


def _check_hosts(notes: Notes, name: str, job: Job, parts: Parts) -> None:
    """One host, one rank of one job."""
    taken = dict.fromkeys((*job.workers, *job.servers), name)
    for i, other in enumerate(job.beside):
        if other == name or other not in parts.jobs or other in job.beside[:i]:
            continue
        other_job = parts.jobs[other]
        for host in dict.fromkeys((*other_job.workers, *other_job.servers)):
            if host in taken:
                problem = f"{other} has {host}, which job {taken[host]!r} has at the same time"
                notes.wrong(("jobs", name, "beside", i), problem, "jobs side by side need hosts of their own")
                break
            taken[host] = other


def _check_scheme(notes: Notes, name: str, job: Job, labels: Sequence[str]) -> None:
    if job.beside_scheme is None:
        return
    loc: Loc = ("jobs", name, "beside_scheme")
    if not job.beside:
        notes.wrong(loc, "no other job runs at the same time as this one", "name a job in `beside`, or leave it out")
    elif job.beside_scheme not in labels:
        problem = f"no scheme is labelled {job.beside_scheme!r}"
        notes.wrong(loc, problem, did_you_mean(job.beside_scheme, labels))
