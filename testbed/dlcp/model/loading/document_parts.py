"""The parts of an experiment file that are valid by themselves, so that one mistake does not hide the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from dlcp.model.buffering import Buffering
from dlcp.model.experiment import Expectation, Experiment, QueueRule, Reduced, Scaling, SchemeChoice, SharedBuffer
from dlcp.model.faults import Fault, FaultKind
from dlcp.model.loading.document import Document
from dlcp.model.loading.explain import validate
from dlcp.model.qos import LoadBalancing, Pfc
from dlcp.model.topology import Topology, TopologyKind
from dlcp.model.units import Duration, Size
from dlcp.model.workload import Background, Constant, Incast, Job, Poisson, Workload

_TIME_LIMIT_S: float = Experiment.model_fields["time_limit_s"].default


@dataclass(frozen=True)
class Parts:
    """Parts of a file that could be read. None, or no entry, where the file has a problem of its own already.

    Lists are kept by their position in the file. job_names: all jobs of the file, readable or not. load_balancing: the
    switches that it names. workloads: by name, those that are valid.
    """

    topology: TopologyKind | None = None
    port_buffer_bytes: int | None = None
    time_limit_s: float | None = None
    scaling: Scaling | None = None
    repeats: int | None = None
    name: str | None = None
    job_names: tuple[str, ...] = ()
    jobs: dict[str, Job] = field(default_factory=dict)
    buffering: Buffering | None = None
    shared_buffer: SharedBuffer | None = None
    queues: dict[int, QueueRule] = field(default_factory=dict)
    load_balancing: tuple[str, ...] = ()
    pfc: Pfc | None = None
    faults: dict[int, FaultKind] = field(default_factory=dict)
    background: dict[int, Incast | Poisson | Constant] = field(default_factory=dict)
    schemes: dict[int, SchemeChoice] = field(default_factory=dict)
    expect: dict[int, Expectation] = field(default_factory=dict)
    reduced: Reduced | None = None
    workloads: dict[str, Workload] = field(default_factory=dict)


def collect(document: Document) -> Parts:
    """Validate each part of an experiment apart from the others; what is wrong in them is not reported here."""

    def read_part(kind: Any, *loc: int | str) -> Any:
        return validate(document, kind, loc)[0]

    def entries(kind: Any, key: str) -> dict[Any, Any]:
        raw = document.get((key,))
        names = raw if isinstance(raw, dict) else range(len(raw)) if isinstance(raw, list) else ()
        parts = {name: read_part(kind, key, name) for name in names}
        return {name: part for name, part in parts.items() if part is not None}

    raw_jobs = document.get(("jobs",))
    return Parts(
        topology=read_part(Topology, "topology"),
        port_buffer_bytes=read_part(Size, "port_buffer"),
        time_limit_s=read_part(Duration, "time_limit") if document.get(("time_limit",)) is not None else _TIME_LIMIT_S,
        scaling=read_part(Scaling, "scaling"),
        repeats=read_part(Annotated[int, Experiment.model_fields["repeats"]], "repeats"),
        name=read_part(Annotated[str, Experiment.model_fields["name"]], "name"),
        job_names=tuple(str(name) for name in raw_jobs) if isinstance(raw_jobs, dict) else (),
        jobs=entries(Job, "jobs"),
        buffering=read_part(Buffering, "buffering") if document.get(("buffering",)) is not None else Buffering(),
        shared_buffer=read_part(SharedBuffer, "shared_buffer"),
        queues=entries(QueueRule, "queues"),
        load_balancing=tuple(entries(LoadBalancing, "load_balancing")),
        pfc=read_part(Pfc, "pfc"),
        faults=entries(Fault, "faults"),
        background=entries(Background, "background"),
        schemes=entries(SchemeChoice, "schemes"),
        expect=entries(Expectation, "expect"),
        reduced=read_part(Reduced, "reduced"),
    )
