"""Catalogue of schemes, workloads, switches and topologies. Plain data, for a table or for JSON."""

from __future__ import annotations

from inspect import getdoc
from typing import Any, Literal, get_args

from pydantic import BaseModel

from dlcp import schemes
from dlcp.errors import Problem, Problems
from dlcp.model.loading.experiment_files import (
    load_sizes,
    load_topology,
    load_workload,
    sizes_names,
    topology_names,
    workload_names,
)
from dlcp.model.loading.explain import did_you_mean
from dlcp.model.qos import PRECEDENCES, QUEUES, LoadBalancing
from dlcp.model.sizes import SizeTable
from dlcp.model.topology import Graph, TopologyKind
from dlcp.model.units import show_duration, show_fraction, show_rate, show_size
from dlcp.model.workload import Profile, Workload
from dlcp.paths import TOPOLOGIES
from dlcp.runner.machine.emulator_support import why_not
from dlcp.runner.planning.estimate import FLOAT_BYTES
from dlcp.schemes.base import Scheme
from dlcp.substrates.registry import names_for
from dlcp.switches.vendor.features import FEATURES, Feature
from dlcp.switches.vendor.systems import Missing, Native, System, load_system, system_names

Kind = Literal["schemes", "workloads", "switches", "topologies"]
KINDS: tuple[Kind, ...] = get_args(Kind)

Rows = list[dict[str, Any]]

EMULATED = "emulated"
"""The switch of the substrate emulate."""


def overview(kind: Kind) -> Rows:
    """One row for each thing of a kind; `name` first."""
    return {"schemes": _schemes, "workloads": _workloads, "switches": _switches, "topologies": _topologies}[kind]()


def summary(kind: Kind) -> Rows:
    """One short row for each thing of a kind, for a terminal; `details` has the rest."""
    if kind != "schemes":
        return overview(kind)
    classes = ((name, schemes.scheme_class(name)) for name in schemes.names())
    return [{"name": name, "title": cls.title, "runs on": _short_substrates(cls)} for name, cls in classes]


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
    return _switch(name)


def _schemes() -> Rows:
    classes = ((name, schemes.scheme_class(name)) for name in schemes.names())
    return [
        {"name": name, "title": kind.title, "mechanism": kind.mechanism, "substrates": _substrates(kind)}
        for name, kind in classes
    ]


def _scheme(name: str) -> dict[str, Any]:
    """notes: what its class says of itself, with what differs from the paper."""
    kind = schemes.scheme_class(name)
    defaults = kind().model_dump(mode="json", by_alias=True)
    knobs = [
        {"knob": key, "default": defaults[key], "meaning": field.description or ""}
        for key, field in ((field.alias or field_name, field) for field_name, field in kind.model_fields.items())
    ]
    return {
        "name": name,
        "title": kind.title,
        "mechanism": kind.mechanism,
        "paper": kind.paper,
        "notes": " ".join((getdoc(kind) or "").split()),
        "substrates": _substrates(kind),
        "knobs": knobs,
    }


def _short_substrates(kind: type[Scheme]) -> str:
    """Substrates of a scheme, and a mark where this machine cannot run it; the reason is shown with its details."""
    names = ", ".join(names_for(needs_network=kind.needs_network))
    return f"{names} (not on this machine)" if why_not(kind()) else names


def _substrates(kind: type[Scheme]) -> str:
    """Substrates of a scheme, and the reason why this machine cannot run it."""
    names, why = ", ".join(names_for(needs_network=kind.needs_network)), why_not(kind())
    return f"{names}; unsupported here: {why}" if why else names


def _workloads() -> Rows:
    rows = []
    for name in workload_names():
        workload = _load(name)
        size = (
            f"{workload.parameters:,} parameters in {len(workload.layers)} layers, times of {workload.device}, "
            f"{workload.source_quality}"
            if isinstance(workload, Profile)
            else f"trains on {workload.dataset} with {workload.script}: {workload.predicts}"
        )
        rows.append({"name": name, "kind": workload.kind, "batch": workload.batch, "what": size})
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
        points = [{"size": show_size(point.size_bytes), "share": show_fraction(point.share)} for point in table.points]
        return {
            **table.model_dump(mode="json", exclude={"points"}),
            "mean": show_size(table.mean_bytes),
            "interpolation": "linear in the size between points; divided by an experiment's byte_scale",
            "points": points,
        }
    workload = _load(name)
    if not isinstance(workload, Profile):
        return workload.model_dump(mode="json")
    layers = [
        {
            "layer": layer.name,
            "parameters": layer.parameters,
            "gradient": show_size(layer.parameters * FLOAT_BYTES),
            "forward": show_duration(layer.forward_s),
            "backward": show_duration(layer.backward_s),
        }
        for layer in workload.layers
    ]
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
    """The emulated switch, and the systems of switch_configs with what each lacks (on some chips: in brackets)."""
    lacks = "dscp-override, pfc-headroom, pfc-watchdog"
    rows = [{"name": EMULATED, "is": "HTB and eBPF, on the substrate emulate", "status": "proven", "lacks": lacks}]
    for name in system_names():
        system = load_system(name)
        capabilities = system.capabilities
        status = capabilities.status + ("" if capabilities.on_hardware else ", unproven on hardware")
        lacks = ", ".join(word for feature in FEATURES if (word := _lack(system, feature)))
        rows.append({"name": name, "is": capabilities.title, "status": status, "lacks": lacks})
    return rows


def switch_matrix() -> Rows:
    """Feature × system: yes; yes? with a doubt; instead: something else, declared; no. Chips that differ follow."""
    systems = [load_system(name) for name in system_names()]
    return [{"feature": feature, **{system.name: _cell(system, feature) for system in systems}} for feature in FEATURES]


def _cell(system: System, feature: Feature) -> str:
    chips = system.capabilities.chips
    words = {chip: _verdict(system.verdict(feature, chip)) for chip in chips}
    usual = _verdict(system.capabilities.features[feature])
    return "; ".join([usual, *(f"{chip}: {word}" for chip, word in words.items() if word != usual)])


def _verdict(said: Native | Missing) -> str:
    if isinstance(said, Native):
        return "yes?" if said.doubt else "yes"
    return "instead" if said.substitute else "no"


def switch_sources() -> Rows:
    """Sources of the capabilities, system by system."""
    return [
        {"system": name, "source": short, "is": long}
        for name in system_names()
        for short, long in load_system(name).capabilities.sources.items()
    ]


def _lack(system: System, feature: Feature) -> str:
    without = [c for c in system.capabilities.chips if isinstance(system.verdict(feature, c), Missing)]
    if not without:
        return ""
    everywhere = len(without) == len(system.capabilities.chips)
    return feature if everywhere else f"{feature} ({', '.join(without)})"


def _switch(name: str) -> dict[str, Any]:
    """All that a system's folder says, with its sources."""
    if name == EMULATED:
        return {
            "name": EMULATED,
            "queues": QUEUES,
            "scheduling": "strict priority, chosen by DSCP",
            "drop_precedences": PRECEDENCES,
            "wred": True,
            "ecn": True,
            "load_balancing": ", ".join(get_args(LoadBalancing)),
            "made_of": "HTB and eBPF, on the substrate emulate",
        }
    system = load_system(name)
    capabilities = system.capabilities
    features = []
    for feature in FEATURES:
        notes: dict[str, list[str]] = {}
        for chip in capabilities.chips:
            notes.setdefault(system.verdict(feature, chip).model_dump_json(), []).append(chip)
        for chips in notes.values():
            verdict = system.verdict(feature, chips[0])
            where = f" ({', '.join(chips)})" if len(notes) > 1 else ""
            if isinstance(verdict, Native):
                more = {"says": verdict.how, "source": verdict.source, "doubt_or_way_out": verdict.doubt}
            else:
                way_out = verdict.way_out + (f"; degrade: {verdict.substitute}" if verdict.substitute else "")
                more = {"says": verdict.why, "source": verdict.source, "doubt_or_way_out": way_out}
            features.append({"feature": feature + where, "has": _verdict(verdict), **more})
    return {
        "name": name,
        "is": capabilities.title,
        "status": capabilities.status,
        "proof": capabilities.proof,
        "on_hardware": capabilities.on_hardware,
        "folder": str(system.folder),
        "thresholds_in": capabilities.units.thresholds.write,
        "sources": [{"source": short, "is": long} for short, long in capabilities.sources.items()],
        "chips": [{"chip": chip, "title": entry.title} for chip, entry in capabilities.chips.items()],
        "features": features,
        "conflicts": [
            {
                "conflict": entry.name,
                "features": ", ".join(entry.features),
                "within": entry.within,
                "why": entry.why,
                "source": entry.source,
                "way_out": entry.way_out,
            }
            for entry in system.conflicts
        ],
        "counters": [
            {
                "counter": entry.command,
                "per": entry.per,
                "shows": ", ".join(entry.shows),
                "source": entry.source,
                "needs": entry.needs,
            }
            for entry in system.counters
        ],
    }


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
    values = topology.model_dump(mode="json", by_alias=True, exclude={"hosts", "switches", "links"}, exclude_none=True)
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
        "name": name,
        "file": str(TOPOLOGIES / f"{name}.yaml"),
        "what": _size(graph),
        "rate_of_hosts": show_rate(graph.slowest_host_bps),
        **values,
        "hosts": ", ".join(graph.hosts),
        "switches": ", ".join(graph.switches),
        "links": links,
    }


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
