"""Checks of an experiment's jobs against the rules of their exchange patterns."""

from __future__ import annotations

from dataclasses import replace

from dlcp.model.buckets import small_bucket
from dlcp.model.loading.document import Loc
from dlcp.model.loading.document_parts import Parts
from dlcp.model.loading.experiment_files import Loaded, in_order
from dlcp.model.loading.explain import did_you_mean
from dlcp.model.loading.notes import Notes
from dlcp.model.workload import Job
from dlcp.patterns import names, names_where, pattern_of
from dlcp.patterns.base import Pattern


def check_patterns(loaded: Loaded) -> Loaded:
    """Return the same with the problems and warnings of its jobs' patterns, in the file's order. Its parts are left
    without jobs of unknown patterns."""
    notes, jobs = Notes(loaded.document), {}
    for name, job in loaded.parts.jobs.items():
        job_loc: Loc = ("jobs", name)
        if job.pattern not in names():
            text, hint = f"`jobs.{name}.pattern`: {job.pattern!r} is not known", did_you_mean(job.pattern, names())
            notes.wrong((*job_loc, "pattern"), text, hint)
            continue
        jobs[name], pattern = job, pattern_of(job.pattern)
        _check_ranks(notes, job_loc, job, pattern)
        _check_holes(notes, job_loc, job, pattern)
        _check_bucket(notes, job_loc, job, pattern, loaded.parts)
    return replace(
        loaded,
        experiment=None if notes.problems else loaded.experiment,
        parts=replace(loaded.parts, jobs=jobs),
        problems=in_order([*loaded.problems, *notes.problems]),
        warnings=in_order([*loaded.warnings, *notes.warnings]),
    )


def _check_ranks(notes: Notes, here: Loc, job: Job, pattern: Pattern) -> None:
    """Servers where the pattern has some, and workers enough to exchange anything."""
    if job.servers and not pattern.has_servers:
        named = f"{', '.join(job.servers)} {'is' if len(job.servers) == 1 else 'are'} named"
        text = f"{pattern.a_name} has no servers, but {named}"
        hint = f"leave servers out, or write pattern: {names_where(lambda other: other.has_servers)}"
        notes.wrong((*here, "servers"), text, hint)
    elif len(job.workers) < pattern.min_workers:
        count = f"{len(job.workers)} {'worker' if len(job.workers) == 1 else 'workers'}"
        text = f"{pattern.a_name} of {count} reduces nothing"
        notes.wrong((*here, "workers"), text, f"{pattern.min_workers} workers or more")
    elif pattern.has_servers and not job.servers:
        written = notes.document.get((*here, "servers")) is not None
        text = "`servers` is empty" if written else "`servers` is missing"
        others = names_where(lambda other: not other.has_servers)
        hint = f"at least one host, such as servers: [h1]; or write pattern: {others}"
        notes.wrong((*here, "servers") if written else here, text, hint, key=not written)


def _check_holes(notes: Notes, here: Loc, job: Job, pattern: Pattern) -> None:
    if job.record_holes and pattern.no_recorded_holes:
        text = f"{pattern.a_name} {pattern.no_recorded_holes}: no rank sees the holes of one worker's gradient"
        hint = f"leave it out, or write pattern: {names_where(lambda other: not other.no_recorded_holes)}"
        notes.wrong((*here, "record_holes"), text, hint)


def _check_bucket(notes: Notes, here: Loc, job: Job, pattern: Pattern, parts: Parts) -> None:
    """Warn when messages are so small that loss tolerance has nothing to act on."""
    small = small_bucket(job, parts.workloads.get(job.workload), parts.scaling, pattern.pieces(len(job.workers)))
    if small is not None:
        notes.warn((*here, "workload" if small.of_workload else "bucket"), small.what, small.hint)
