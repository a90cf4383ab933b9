"""Consistency of an experiment's background traffic, beyond the type of each value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dlcp.model.loading.document import Loc
from dlcp.model.loading.notes import Notes
from dlcp.model.qos import CONTROL_QUEUE
from dlcp.model.topology import Graph
from dlcp.model.units import show_fraction, show_rate
from dlcp.model.workload import Constant, Incast, Poisson, partners

CheckHosts = Callable[[Notes, Loc, Sequence[str], Sequence[str] | None], None]


def check_background(
    notes: Notes,
    entries: Mapping[int, Incast | Poisson | Constant],
    graph: Graph | None,
    check_hosts: CheckHosts,
    stem: Loc = ("background",),
) -> None:
    """Problems and warnings of every entry. graph: None when the topology cannot be read. stem: where they stand."""
    for i, entry in entries.items():
        entry_loc: Loc = (*stem, i)
        hosts = graph.hosts if graph is not None else None
        check_hosts(notes, (*entry_loc, "sources"), entry.sources, hosts)
        check_hosts(notes, (*entry_loc, "sinks"), entry.sinks, hosts)
        known = graph if graph is not None and {*entry.sources, *entry.sinks} <= {*graph.hosts} else None
        if isinstance(entry, Incast):
            _check_incast(notes, entry_loc, entry)
        else:
            _check_partners(notes, entry_loc, entry)
        if isinstance(entry, Poisson):
            _check_poisson(notes, entry_loc, entry, known)
        if isinstance(entry, Constant) and known is not None:
            _check_constant(notes, entry_loc, entry, known)
        if entry.queue == CONTROL_QUEUE:
            problem = f"queue {CONTROL_QUEUE} is for control packets: this background delays every acknowledgement"
            notes.warn((*entry_loc, "queue"), problem, f"0 to {CONTROL_QUEUE - 1}")


def _check_incast(notes: Notes, here: Loc, incast: Incast) -> None:
    for j, sink in enumerate(incast.sinks):
        if sink in incast.sources:
            notes.wrong((*here, "sinks", j), f"{sink} is a source of this incast too", "a host cannot send to itself")
    if incast.interval_s == 0:
        notes.wrong((*here, "interval"), "interval 0 s: bursts without a pause are no bursts", "such as 200 ms")
    if incast.burst_bytes == 0:
        notes.wrong((*here, "burst"), "burst 0 B sends nothing", "such as 20 kB, or leave the background out")


def _check_partners(notes: Notes, here: Loc, entry: Any) -> None:
    for j, source in enumerate(entry.sources):
        if not partners(entry, source):
            problem = f"{source} is the only sink too: it has nobody to send to"
            notes.wrong((*here, "sources", j), problem, "name another sink")


def _check_poisson(notes: Notes, here: Loc, entry: Poisson, graph: Graph | None) -> None:
    if notes.document.get((*here, "table")) is not None:
        notes.wrong((*here, "table"), "`table` is filled in from `sizes`", "leave it out", key=True)
    if graph is None or any(not partners(entry, source) for source in entry.sources):
        return
    for sink in entry.sinks:
        coming = sum(
            entry.load * graph.host_link(source).rate_bps / len(partners(entry, source))
            for source in entry.sources
            if source != sink
        )
        share = coming / graph.host_link(sink).rate_bps
        if share >= 1:
            problem = (
                f"load {show_fraction(entry.load)} of the sources' links is {show_fraction(share)} of {sink}'s link"
            )
            notes.warn((*here, "load"), problem, "more sinks, or a lower load: its queue only grows")
            return


def _check_constant(notes: Notes, here: Loc, entry: Constant, graph: Graph) -> None:
    for source in entry.sources:
        going, link = entry.rate_bps * len(partners(entry, source)), graph.host_link(source).rate_bps
        if going > link:
            problem = (
                f"{show_rate(entry.rate_bps)} to each sink is {show_rate(going)} from {source}, on {show_rate(link)}"
            )
            notes.warn((*here, "rate"), problem, "the rest is dropped where it starts: a lower rate, or fewer sinks")
            return
