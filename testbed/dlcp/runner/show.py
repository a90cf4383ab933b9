"""What there is to choose from: schemes, workloads, switches, topologies. Plain data, for a table or for JSON."""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import BaseModel

from dlcp import schemes
from dlcp.errors import Problem, Problems
from dlcp.model.explain import did_you_mean
from dlcp.model.load import load_sizes, load_topology, load_workload, sizes_names, topology_names, workload_names
from dlcp.model.qos import PRECEDENCES, QUEUES, LoadBalancing
from dlcp.model.sizes import SizeTable
from dlcp.model.topology import Graph, TopologyKind
from dlcp.model.units import show_duration, show_fraction, show_rate, show_size
from dlcp.model.workload import Profile, Workload
from dlcp.paths import TOPOLOGIES
from dlcp.runner.estimate import FLOAT_BYTES

Kind = Literal["schemes", "workloads", "switches", "topologies"]
KINDS: tuple[Kind, ...] = get_args(Kind)

Rows = list[dict[str, Any]]


def overview(kind: Kind) -> Rows:
    """One row for each thing of a kind; `name` first."""
    return {"schemes": _schemes, "workloads": _workloads, "switches": _switches, "topologies": _topologies}[kind]()


def details(kind: Kind, name: str) -> dict[str, Any]:
    """All about one thing: scalars, and lists of rows. Problem when there is none of that name."""
    known = [row["name"] for row in overview(kind)]
    if name not in known:
        raise Problem(f"show {kind}", f"there is no {name!r}", did_you_mean(name, known))
    if kind == "schemes":
        return _scheme(name)
    if kind == "workloads":
        return _workload(name)
    if kind == "topologies":
        return _topology(name)
    return next(row for row in overview(kind) if row["name"] == name)


def _schemes() -> Rows:
    found = ((name, schemes.scheme_class(name)) for name in schemes.names())
    return [
        {"name": name, "title": kind.title, "mechanism": kind.mechanism, "substrates": ", ".join(kind.substrates)}
        for name, kind in found
    ]


def _scheme(name: str) -> dict[str, Any]:
    kind = schemes.scheme_class(name)
    defaults = kind().model_dump(mode="json", by_alias=True)
    knobs = [
        {"knob": key, "default": defaults[key], "meaning": field.description or ""}
        for key, field in ((field.alias or own, field) for own, field in kind.model_fields.items())
    ]
    return {
        "name": name, "title": kind.title, "mechanism": kind.mechanism, "paper": kind.paper,
        "substrates": ", ".join(kind.substrates), "knobs": knobs,
    }  # fmt: skip


def _workloads() -> Rows:
    rows = []
    for name in workload_names():
        workload = _load(name)
        what = (
            f"{workload.parameters:,} parameters in {len(workload.layers)} layers, times of {workload.device}"
            if isinstance(workload, Profile)
            else f"trains on {workload.dataset} with {workload.script}"
        )
        rows.append({"name": name, "kind": workload.kind, "batch": workload.batch, "what": what})
    return rows + [{"name": name, "kind": "sizes", "batch": None, "what": _sizes(name)} for name in sizes_names()]


def _sizes(name: str) -> str:
    """A table of flow sizes in a line."""
    table = _load_sizes(name)
    half = next(point for point in table.points if point.share >= 0.5)
    return (
        f"background flows of {show_size(table.mean_bytes)} in the mean; {show_fraction(half.share)} have at most "
        f"{show_size(half.size_bytes)}, all at most {show_size(table.points[-1].size_bytes)}"
    )


def _load_sizes(name: str) -> SizeTable:
    table, problems = load_sizes(name)
    if table is None:
        raise Problems(problems)
    return table


def _workload(name: str) -> dict[str, Any]:
    if name in sizes_names():
        table = _load_sizes(name)
        points = [{"size": show_size(one.size_bytes), "share": show_fraction(one.share)} for one in table.points]
        return {
            **table.model_dump(mode="json", exclude={"points"}), "mean": show_size(table.mean_bytes),
            "interpolation": "linear in the size between points; divided by an experiment's byte_scale",
            "points": points,
        }  # fmt: skip
    workload = _load(name)
    if not isinstance(workload, Profile):
        return workload.model_dump(mode="json")
    layers = [
        {
            "layer": layer.name, "parameters": layer.parameters,
            "gradient": show_size(layer.parameters * FLOAT_BYTES),
            "forward": show_duration(layer.forward_s), "backward": show_duration(layer.backward_s),
        }
        for layer in workload.layers
    ]  # fmt: skip
    return {
        **workload.model_dump(mode="json", exclude={"layers"}),
        "gradient": show_size(workload.parameters * FLOAT_BYTES),
        "forward": show_duration(sum(layer.forward_s for layer in workload.layers)),
        "backward": show_duration(sum(layer.backward_s for layer in workload.layers)),
        "layers": layers,
    }


def _load(name: str) -> Workload:
    workload, problems = load_workload(name)
    if workload is None:
        raise Problems(problems)
    return workload


def _switches() -> Rows:
    return [
        {
            "name": "emulated", "queues": QUEUES, "scheduling": "strict priority, chosen by DSCP",
            "drop_precedences": PRECEDENCES, "wred": True, "ecn": True,
            "load_balancing": ", ".join(get_args(LoadBalancing)), "made_of": "HTB and eBPF, on the substrate emulate",
        }
    ]  # fmt: skip


def _topologies() -> Rows:
    """Kinds, and the files that ship; what both have in common is what an experiment writes under `topology`."""
    rows = []
    for kind in get_args(TopologyKind):
        keys = [field.alias or name for name, field in kind.model_fields.items()]
        name = get_args(kind.model_fields["kind"].annotation)[0]
        rows.append({"name": name, "is": "kind", "what": _sentence(kind), "keys": ", ".join(keys)})
    for name in topology_names():
        topology = _load_topology(name)
        rows.append({"name": name, "is": "file", "what": _size(topology.graph), "keys": f"kind: {topology.kind}"})
    return rows


def _topology(name: str) -> dict[str, Any]:
    """A kind: what it is and its keys. A file: its path, what it says, and every link."""
    if name not in topology_names():
        return next(row for row in _topologies() if row["name"] == name)
    topology = _load_topology(name)
    said = topology.model_dump(mode="json", by_alias=True, exclude={"hosts", "switches", "links"}, exclude_none=True)
    links = [
        {
            "link": f"{link.a} - {link.b}",
            "rate": show_rate(link.rate_bps),
            "delay": show_duration(link.delay_s) if link.delay_s else "",
        }
        for link in topology.graph.links
    ]
    graph = topology.graph
    return {
        "name": name, "file": str(TOPOLOGIES / f"{name}.yaml"), "what": _size(graph),
        "rate_of_hosts": show_rate(graph.slowest_host_bps), **said,
        "hosts": ", ".join(graph.hosts), "switches": ", ".join(graph.switches), "links": links,
    }  # fmt: skip


def _load_topology(name: str) -> TopologyKind:
    topology, problems = load_topology(name)
    if topology is None:
        raise Problems(problems)
    return topology


def _size(graph: Graph) -> str:
    rates = sorted({link.rate_bps for link in graph.links})
    switches = f"{len(graph.switches)} switch{'es' * (len(graph.switches) > 1)}"
    return f"{len(graph.hosts)} hosts, {switches}, {len(graph.links)} links of {', '.join(map(show_rate, rates))}"


def _sentence(kind: type[BaseModel]) -> str:
    """A docstring on one line."""
    return " ".join((kind.__doc__ or "").split())
