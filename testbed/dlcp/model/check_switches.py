"""What must hold of the switches that an experiment describes: switches that there are, buffers that hold packets."""

from __future__ import annotations

from collections.abc import Iterable

from dlcp.model.experiment import SharedBuffer
from dlcp.model.explain import did_you_mean
from dlcp.model.notes import Notes
from dlcp.model.regime import FRAME_BYTES
from dlcp.model.topology import Graph
from dlcp.model.units import show_size


def check_switches(
    notes: Notes, graph: Graph | None, load_balancing: Iterable[str], shared_buffer: SharedBuffer | None
) -> None:
    """load_balancing: the switches that it names. graph: None where the file has another problem with it."""
    if graph is not None:
        choosing = _choosing(graph)
        for name in load_balancing:
            if name not in graph.switches:
                hint = did_you_mean(name, graph.switches)
                notes.wrong(("load_balancing", name), f"the topology has no switch {name!r}", hint, key=True)
            elif name not in choosing:
                hint = f"switches with a choice: {', '.join(choosing) or 'none'}"
                what = f"{name} has one shortest way to each host: there is nothing to balance"
                notes.warn(("load_balancing", name), what, hint)
    if shared_buffer is not None:
        _check_shared(notes, shared_buffer)


def _choosing(graph: Graph) -> list[str]:
    """The switches that have several equal-cost next hops to some host."""
    found = {switch for host in graph.hosts for switch, hops in graph.next_hops_to(host).items() if len(hops) > 1}
    return [switch for switch in graph.switches if switch in found]


def _check_shared(notes: Notes, shared: SharedBuffer) -> None:
    """A queue that is alone fills the buffer to alpha / (1 + alpha): then alpha times what is free is what it holds."""
    alone_bytes = int(shared.size_bytes * shared.alpha / (1 + shared.alpha))
    if alone_bytes < FRAME_BYTES:
        what = (
            f"a queue that is alone gets {show_size(alone_bytes)} of a shared buffer of {show_size(shared.size_bytes)} "
            f"with alpha {shared.alpha:g}: not one frame of {FRAME_BYTES} B"
        )
        notes.wrong(("shared_buffer",), what, "a larger size, or a larger alpha")
