"""Consistency of an experiment file, beyond the type of each value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlcp.errors import Problem
from dlcp.model.frames import FRAME_BYTES
from dlcp.model.loading.check_background import check_background
from dlcp.model.loading.check_concurrent_jobs import check_beside
from dlcp.model.loading.check_faults import check_faults
from dlcp.model.loading.check_pfc import check_pfc, check_pfc_room
from dlcp.model.loading.check_switches import check_buffering_of_job, check_switches
from dlcp.model.loading.check_topology import check_topology
from dlcp.model.loading.declared_compute import undeclared_compute
from dlcp.model.loading.document import Document, Loc
from dlcp.model.loading.document_parts import Parts
from dlcp.model.loading.explain import did_you_mean
from dlcp.model.loading.notes import Notes
from dlcp.model.metrics import BEST_OTHER, METRICS
from dlcp.model.topology import Graph
from dlcp.model.units import show_rate, show_size
from dlcp.model.workload import Job, Profile, Training, Workload

MIN_BUFFER_PACKETS = 10
"""Below it a port drops most of every burst."""
MIN_REPEATS = 5
"""With fewer an interval of the mean is too wide to rank anything."""
TRAINING_METRICS = frozenset({"final_accuracy", "time_to_accuracy_s", "steps_to_accuracy"})

Found = tuple[list[Problem], list[Problem]]
"""Problems, warnings."""


def check_parts(document: Document, parts: Parts) -> Found:
    """All cross checks that the readable parts allow."""
    notes = Notes(document)
    graph = check_topology(notes, parts.topology) if parts.topology is not None else None
    if graph is not None:
        _check_scaling(notes, parts, graph)
    check_switches(notes, graph, parts.load_balancing, parts.buffering, parts.shared_buffer, parts.queues)
    check_faults(notes, parts.faults, graph, parts.time_limit_s)
    if parts.pfc is not None:
        check_pfc(notes, parts.pfc, graph, parts.port_buffer_bytes, _dilation(parts))
    _check_buffer(notes, ("port_buffer",), parts.port_buffer_bytes)
    hosts = graph.hosts if graph is not None else None
    for name, job in parts.jobs.items():
        _check_job(notes, name, job, hosts)
        _check_learning(notes, name, job, parts.workloads.get(job.workload))
        _check_compute(notes, name, job, parts)
        _check_byte_scale(notes, name, job, parts.workloads.get(job.workload))
        _check_own(notes, name, job, graph, parts)
    check_background(notes, parts.background, graph, _check_hosts)
    check_beside(notes, parts, _said_of_schemes(notes.document, "label"))
    _check_labels(notes, parts)
    _check_expectations(notes, parts)
    _check_reduced(notes, parts)
    _check_name_and_repeats(notes, parts)
    return notes.problems, notes.warnings


def _check_scaling(notes: Notes, parts: Parts, graph: Graph) -> None:
    if parts.scaling is None:
        return
    scaling, link_rate_bps = parts.scaling, graph.slowest_host_bps
    equal_rates = all(graph.host_link(host).rate_bps == link_rate_bps for host in graph.hosts)
    links, stand = ("links", "stand") if equal_rates else ("the slowest host link", "stands")
    stands_for = link_rate_bps * scaling.byte_scale * scaling.time_dilation
    if abs(stands_for - scaling.lab_rate_bps) > 1e-6 * stands_for:
        problem = (
            f"lab_rate is {show_rate(scaling.lab_rate_bps)}, but {links} of {show_rate(link_rate_bps)} × byte_scale "
            f"{scaling.byte_scale:g} × time_dilation {scaling.time_dilation:g} {stand} for {show_rate(stands_for)}"
        )
        notes.wrong(("scaling", "lab_rate"), problem, "change one of the four so that they agree")


def _check_buffer(notes: Notes, loc: Loc, buffer: int | None) -> None:
    if buffer is None:
        return
    enough = f"{MIN_BUFFER_PACKETS} packets ({show_size(MIN_BUFFER_PACKETS * FRAME_BYTES)}) or more"
    if buffer < FRAME_BYTES:
        problem = f"port_buffer {show_size(buffer)} cannot hold one frame of {FRAME_BYTES} B"
        notes.wrong(loc, problem, enough)
    elif buffer < MIN_BUFFER_PACKETS * FRAME_BYTES:
        problem = f"port_buffer {show_size(buffer)} is {buffer // FRAME_BYTES} packets: every burst overflows it"
        notes.warn(loc, problem, enough)


def _check_job(notes: Notes, name: str, job: Job, hosts: Sequence[str] | None) -> None:
    job_loc: Loc = ("jobs", name)
    _check_hosts(notes, (*job_loc, "workers"), job.workers, hosts)
    _check_hosts(notes, (*job_loc, "servers"), job.servers, hosts)
    for i, server in enumerate(job.servers):
        if server in job.workers:
            notes.wrong((*job_loc, "servers", i), f"{server} is a worker of this job already", "one host, one rank")
    if job.warmup_iterations >= job.iterations:
        problem = f"warmup_iterations {job.warmup_iterations} leave nothing of {job.iterations} iterations to measure"
        loc = (*job_loc, "warmup_iterations")
        shown = loc if notes.document.get(loc) is not None else (*job_loc, "iterations")
        notes.wrong(shown, problem, "more iterations, or fewer to warm up")


def _check_learning(notes: Notes, name: str, job: Job, workload: Workload | None) -> None:
    """Refuse settings of learning in a job that does not learn."""
    job_loc: Loc = ("jobs", name)
    if isinstance(workload, Profile) and job.target_accuracy is not None:
        problem = f"workload {workload.name} trains nothing, so it reaches no accuracy"
        notes.wrong((*job_loc, "target_accuracy"), problem, "leave it out, or name a workload of kind training")
    if workload is not None and job.shards == "by-class" and not (isinstance(workload, Training) and workload.classes):
        problem = f"workload {workload.name} has no samples with classes that workers could share out"
        notes.wrong((*job_loc, "shards"), problem, "leave it out, or name a workload with classes: true")


def _check_compute(notes: Notes, name: str, job: Job, parts: Parts) -> None:
    """A dilated job needs a compute that dilation can stretch."""
    undeclared = undeclared_compute(parts.workloads.get(job.workload), parts.scaling)
    if undeclared is not None:
        notes.wrong(("jobs", name, "workload"), undeclared.what, undeclared.hint)


def _check_byte_scale(notes: Notes, name: str, job: Job, workload: Workload | None) -> None:
    """A scale of its own is for a profile whose bytes are scaled."""
    if job.byte_scale is None:
        return
    loc: Loc = ("jobs", name, "byte_scale")
    if not job.byte_scaled:
        notes.wrong(loc, "byte_scaled is false, so nothing is divided by it", "leave one of the two out")
    elif isinstance(workload, Training):
        notes.wrong(loc, f"{job.workload} trains: its gradients are what they are", "leave it out")


def _check_own(notes: Notes, name: str, job: Job, graph: Graph | None, parts: Parts) -> None:
    """Check the background, the faults and the buffers of switches that a job has instead of the experiment's."""
    job_loc: Loc = ("jobs", name)
    _check_buffer(notes, (*job_loc, "port_buffer"), job.port_buffer_bytes)
    if parts.pfc is not None and job.port_buffer_bytes is not None:
        check_pfc_room(notes, (*job_loc, "port_buffer"), parts.pfc, graph, job.port_buffer_bytes, _dilation(parts))
    if job.buffering is not None:
        check_buffering_of_job(notes, (*job_loc, "buffering"), job.buffering, parts.shared_buffer, parts.queues)
    check_background(notes, dict(enumerate(job.background or ())), graph, _check_hosts, (*job_loc, "background"))
    check_faults(notes, dict(enumerate(job.faults or ())), graph, parts.time_limit_s, (*job_loc, "faults"))


def _dilation(parts: Parts) -> float:
    """Return the time dilation; 1 where the file has a problem with its scaling."""
    return 1.0 if parts.scaling is None else parts.scaling.time_dilation


def _check_reduced(notes: Notes, parts: Parts) -> None:
    """It names what the experiment has."""
    if parts.reduced is None:
        return
    for i, name in enumerate(parts.reduced.jobs or ()):
        if name not in parts.job_names:
            hint = did_you_mean(name, parts.job_names)
            notes.wrong(("reduced", "jobs", i), f"no job is called {name!r}", hint)
    labels = _said_of_schemes(notes.document, "label")
    for i, label in enumerate(parts.reduced.schemes or ()):
        if label not in labels:
            notes.wrong(("reduced", "schemes", i), f"no scheme is labelled {label!r}", did_you_mean(label, labels))
    if parts.repeats is not None and (parts.reduced.repeats or 0) > parts.repeats:
        problem = f"{parts.reduced.repeats} repeats are more than the experiment's {parts.repeats}"
        notes.wrong(("reduced", "repeats"), problem, "as many or fewer")


def _check_hosts(notes: Notes, loc: Loc, named: Sequence[str], hosts: Sequence[str] | None) -> None:
    for i, host in enumerate(named):
        if host in named[:i]:
            notes.wrong((*loc, i), f"{host} is named twice", "keep one of them")
        elif hosts is not None and host not in hosts:
            counted = list(hosts) == [f"h{number}" for number in range(1, len(hosts) + 1)]
            hint = f"hosts are {hosts[0]} to {hosts[-1]}" if counted else did_you_mean(host, hosts)
            notes.wrong((*loc, i), f"the topology has no host {host!r}", hint)


def _check_labels(notes: Notes, parts: Parts) -> None:
    first: dict[str, int] = {}
    for i, choice in parts.schemes.items():
        if first.setdefault(choice.label, i) != i:
            line = notes.document.line(("schemes", first[choice.label], "label"))
            problem = f"label {choice.label!r} is taken, in line {line}"
            notes.wrong(("schemes", i, "label"), problem, "labels tell schemes apart in tables and plots")


def _check_expectations(notes: Notes, parts: Parts) -> None:
    labels, names = _said_of_schemes(notes.document, "label"), _said_of_schemes(notes.document, "scheme")
    for i, expected in parts.expect.items():
        entry_loc: Loc = ("expect", i)
        if expected.job not in parts.job_names:
            hint = did_you_mean(expected.job, parts.job_names)
            notes.wrong((*entry_loc, "job"), f"no job is called {expected.job!r}", hint)
        elif expected.job in parts.jobs and not parts.jobs[expected.job].measured:
            problem = f"job {expected.job!r} only runs at the same time as others: nothing of it is measured"
            notes.wrong((*entry_loc, "job"), problem, "name a measured job")
        if expected.metric not in METRICS:
            hint = did_you_mean(expected.metric, METRICS)
            notes.wrong((*entry_loc, "metric"), f"no metric is called {expected.metric!r}", hint)
        elif expected.metric in TRAINING_METRICS and _workload_is_profile(parts, expected.job):
            problem = f"job {expected.job!r} trains nothing, so it has no {expected.metric}"
            notes.wrong((*entry_loc, "metric"), problem, "name a job whose workload is of kind training")
        for key, name in (("scheme", expected.scheme), ("against", expected.against)):
            _check_scheme_of_expectation(notes, (*entry_loc, key), name, labels, names)
        if expected.scheme == expected.against:
            notes.wrong((*entry_loc, "against"), f"{expected.scheme!r} is compared with itself", "name another scheme")
        if expected.margin is not None and expected.relation != "not-worse":
            problem = f"a margin says how much worse is not worse; it means nothing to {expected.relation!r}"
            notes.wrong((*entry_loc, "margin"), problem, "leave it out, or write relation: not-worse")


def _said_of_schemes(document: Document, key: str) -> list[str]:
    """Labels or names of all schemes of the file, of those with other mistakes too."""
    raw = document.get(("schemes",))
    values = (document.get(("schemes", i, key)) for i in range(len(raw) if isinstance(raw, list) else 0))
    return [name for name in values if isinstance(name, str)]


def _check_scheme_of_expectation(notes: Notes, loc: Loc, name: str, labels: list[str], names: list[str]) -> None:
    """A label, the name of a scheme that stands once in the file, or, to compare against, the best of the others."""
    if name in labels or names.count(name) == 1 or (name == BEST_OTHER and loc[-1] == "against"):
        return
    if names.count(name) > 1:
        notes.wrong(loc, f"scheme {name!r} stands here {names.count(name)} times", f"name a label: {', '.join(labels)}")
    elif labels:
        notes.wrong(loc, f"no scheme is labelled or called {name!r}", did_you_mean(name, _unique([*labels, *names])))


def _workload_is_profile(parts: Parts, job_name: str) -> bool:
    job = parts.jobs.get(job_name)
    return job is not None and isinstance(parts.workloads.get(job.workload), Profile)


def _check_name_and_repeats(notes: Notes, parts: Parts) -> None:
    stem = notes.document.path.stem
    if parts.name is not None and parts.name != stem:
        problem = f"`name` is {parts.name!r} but the file is called {notes.document.path.name}"
        notes.warn(("name",), problem, "results go to results/NAME: two experiments of one name share them")
    if parts.repeats is not None and parts.repeats < MIN_REPEATS:
        are = "repeat is" if parts.repeats == 1 else "repeats are"
        problem = f"{parts.repeats} {are} too few for an interval worth the name"
        if parts.repeats < 2 and parts.expect:
            notes.wrong(("repeats",), "one repeat has no interval, so no expectation can be judged", "at least 5")
        elif parts.repeats > 1 or len(parts.schemes) > 1:  # one run of one scheme is a try: it compares nothing
            notes.warn(("repeats",), problem, f"at least {MIN_REPEATS}")


def _unique(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(words))
