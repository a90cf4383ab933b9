"""Checks of the switches that an experiment describes: they exist, and their buffers hold packets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dlcp.model.buffering import Buffering, alone_bytes
from dlcp.model.experiment import QueueRule, SharedBuffer
from dlcp.model.frames import FRAME_BYTES
from dlcp.model.loading.document import Loc
from dlcp.model.loading.explain import did_you_mean
from dlcp.model.loading.notes import Notes
from dlcp.model.topology import Graph
from dlcp.model.units import show_size


def check_switches(
    notes: Notes,
    graph: Graph | None,
    load_balancing: Iterable[str],
    buffering: Buffering | None,
    shared_buffer: SharedBuffer | None,
    queues: Mapping[int, QueueRule],
) -> None:
    """load_balancing: the switches that it names. queues: by place in the file. graph: None where the file has another
    problem with it; buffering likewise."""
    if graph is not None:
        choosing = _choosing(graph)
        for name in load_balancing:
            if name not in graph.switches:
                hint = did_you_mean(name, graph.switches)
                notes.wrong(("load_balancing", name), f"the topology has no switch {name!r}", hint, key=True)
            elif name not in choosing:
                hint = f"switches with a choice: {', '.join(choosing) or 'none'}"
                problem = f"{name} has one shortest way to each host: there is nothing to balance"
                notes.warn(("load_balancing", name), problem, hint)
    if shared_buffer is not None:
        _check_shared(notes, shared_buffer)
        if buffering is not None:
            _check_alpha(notes, ("buffering",), buffering, shared_buffer)
    unshared = shared_buffer is None and buffering is not None and not buffering.dynamic
    for i, rule in queues.items():
        _check_rule(notes, i, rule, [other.queue for j, other in queues.items() if j < i], unshared=unshared)


def check_buffering_of_job(
    notes: Notes, here: Loc, buffering: Buffering, shared_buffer: SharedBuffer | None, queues: Mapping[int, QueueRule]
) -> None:
    """Check the buffering that a job has instead of the experiment's against the switches of the experiment. here: its
    place in the file."""
    if shared_buffer is not None:
        _check_alpha(notes, here, buffering, shared_buffer)
    elif not buffering.dynamic:
        for rule in queues.values():
            if rule.alpha is not None:
                clash = f"queue {rule.queue} has alpha {rule.alpha:g} of a shared buffer, and there is none here"
                notes.wrong(here, clash, "buffering: dynamic, or leave alpha out of `queues`")


def _check_alpha(notes: Notes, here: Loc, buffering: Buffering, shared: SharedBuffer) -> None:
    """Refuse an alpha that is written in the buffering at `here` and differs from the one that holds, the memory's."""
    loc = (*here, "alpha")
    if notes.document.get(loc) is not None and buffering.alpha != shared.alpha:
        clash = f"alpha is {buffering.alpha:g} here and {shared.alpha:g} in shared_buffer"
        notes.wrong(loc, clash, "with shared_buffer its alpha holds: leave this one out")


def _check_rule(notes: Notes, i: int, rule: QueueRule, before: Sequence[int], *, unshared: bool) -> None:
    if rule.queue in before:
        notes.wrong(("queues", i, "queue"), f"queue {rule.queue} is named twice", "one entry for each queue")
    if rule.limit_bytes is not None and rule.limit_bytes < FRAME_BYTES:
        problem = f"limit {show_size(rule.limit_bytes)} cannot hold one frame of {FRAME_BYTES} B"
        notes.wrong(("queues", i, "limit"), problem, f"{FRAME_BYTES} B or more")
    if rule.alpha is not None and unshared:
        problem = "alpha is a share of the switch's shared buffer, and there is none"
        notes.wrong(
            ("queues", i, "alpha"), problem, "buffering: dynamic, or shared_buffer: {size: 200 kB}, or leave alpha out"
        )


def _choosing(graph: Graph) -> list[str]:
    """The switches that have several equal-cost next hops to some host."""
    switches = {switch for host in graph.hosts for switch, hops in graph.next_hops_to(host).items() if len(hops) > 1}
    return [switch for switch in graph.switches if switch in switches]


def _check_shared(notes: Notes, shared: SharedBuffer) -> None:
    """A queue that is alone fills the buffer to alpha / (1 + alpha): then alpha times what is free is what it holds."""
    only_bytes = alone_bytes(shared.size_bytes, shared.alpha)
    if only_bytes < FRAME_BYTES:
        problem = (
            f"a queue that is alone gets {show_size(only_bytes)} of a shared buffer of {show_size(shared.size_bytes)} "
            f"with alpha {shared.alpha:g}: not one frame of {FRAME_BYTES} B"
        )
        notes.wrong(("shared_buffer",), problem, "a larger size, or a larger alpha")
