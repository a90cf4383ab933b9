"""Checks of an experiment's faults: their links exist, they fit in the run, one at a time on each link."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dlcp.model.faults import FaultKind, GrayFailure, LinkDown, QueueFrozen, RateDrop, exclude
from dlcp.model.loading.document import Loc
from dlcp.model.loading.explain import did_you_mean
from dlcp.model.loading.notes import Notes
from dlcp.model.topology import Graph
from dlcp.model.units import show_duration, show_rate


def check_faults(
    notes: Notes,
    faults: Mapping[int, FaultKind],
    graph: Graph | None,
    limit_s: float | None,
    stem: Loc = ("faults",),
) -> None:
    """faults: by their position in the list at `stem`. limit_s: the experiment's time limit. What could not be read is
    None."""
    for i, fault in faults.items():
        fault_loc = (*stem, i)
        if limit_s is not None:
            _check_times(notes, fault_loc, fault, limit_s)
        if graph is not None and _is_there(notes, fault_loc, fault, graph):
            _check_effect(notes, fault_loc, fault, graph)
    _check_overlaps(notes, faults, stem)


def _check_times(notes: Notes, here: Loc, fault: FaultKind, limit_s: float) -> None:
    if fault.at_s >= limit_s:
        problem = (
            f"it would begin at {show_duration(fault.at_s)}; a run ends after {show_duration(limit_s)} at the latest"
        )
        notes.wrong((*here, "at"), problem, "earlier, or a longer time_limit")
    elif math.isfinite(fault.end_s) and fault.end_s > limit_s:
        problem = (
            f"it would end at {show_duration(fault.end_s)}; a run ends after {show_duration(limit_s)} at the latest"
        )
        notes.wrong((*here, "for"), problem, "shorter; or leave `for` out: it then lasts as long as the run")


def _is_there(notes: Notes, here: Loc, fault: FaultKind, graph: Graph) -> bool:
    """Return true if the link of a fault exists, and its port is a switch's."""
    keys: tuple[Loc, Loc]
    if isinstance(fault, GrayFailure):
        keys = (*here, "from"), (*here, "to")
    else:
        key = "port" if isinstance(fault, QueueFrozen) else "link"
        keys = (*here, key, 0), (*here, key, 1)
    nodes = fault.ends
    for loc, node in zip(keys, nodes, strict=True):
        if node not in graph.neighbours:
            known = (*graph.switches, *graph.hosts)
            notes.wrong(loc, f"the topology has no node {node!r}", did_you_mean(node, known))
            return False
    if nodes[1] not in graph.neighbours[nodes[0]]:
        others = ", ".join(graph.neighbours[nodes[0]])
        notes.wrong(keys[1], f"no link joins {nodes[0]} and {nodes[1]}", f"{nodes[0]} is linked to {others}")
        return False
    if isinstance(fault, QueueFrozen) and nodes[0] not in graph.switches:
        problem = f"{nodes[0]} is a host: the queues that freeze are a switch's"
        notes.wrong(keys[0], problem, f"write the switch first: [{nodes[1]}, {nodes[0]}]")
        return False
    return True


def _check_effect(notes: Notes, here: Loc, fault: FaultKind, graph: Graph) -> None:
    if isinstance(fault, RateDrop):
        healthy_bps = graph.link_rate_bps(*fault.link)
        if fault.rate_bps >= healthy_bps:
            problem = f"{show_rate(fault.rate_bps)} is no drop: the link runs at {show_rate(healthy_bps)}"
            notes.wrong((*here, "rate"), problem, "a lower rate")
    if isinstance(fault, LinkDown) and fault.reroute_after_s is not None:
        a, b = fault.link
        if b not in graph.without([fault.link]).distances_to(a):
            problem = f"no other way joins {a} and {b}: rerouting helps nobody"
            notes.warn((*here, "reroute_after"), problem, "cut a link that has a detour, or leave it out")


def _check_overlaps(notes: Notes, faults: Mapping[int, FaultKind], stem: Loc) -> None:
    """Refuse two faults of one thing at a time: its state, and its state after them, would be undefined."""
    in_time = sorted(faults.items(), key=lambda item: item[1].at_s)
    for later, (i, fault) in enumerate(in_time):
        for j, before in in_time[:later]:
            if exclude(fault, before) and fault.at_s < before.end_s:
                line = notes.document.line((*stem, j))
                lasts = f"to {show_duration(before.end_s)}" if math.isfinite(before.end_s) else "to the end of the run"
                problem = f"there is {before.what} already, in line {line}, which lasts {lasts}"
                notes.wrong((*stem, i, "at"), problem, "one fault at a time on one link")
                break
