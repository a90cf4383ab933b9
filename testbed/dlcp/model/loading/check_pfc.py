"""Checks of priority flow control (PFC): its queues exist, and its thresholds fit in the buffer."""

from __future__ import annotations

from dlcp.model.loading.document import Loc
from dlcp.model.loading.notes import Notes
from dlcp.model.qos import QUEUES, Pfc
from dlcp.model.topology import Graph
from dlcp.model.units import show_duration, show_size

FASTEST_BPS = 100e6
"""Beyond it the emulated loop, which takes a millisecond and more, is too slow (facts of the emulated switch, PFC)."""
_LEAST_HEADROOM_S = 0.002
"""The loop's period, and as much again until a pause is in force; lab time, as the loop's period is."""


def check_pfc(notes: Notes, pfc: Pfc, graph: Graph | None, port_buffer_bytes: int | None, time_dilation: float) -> None:
    """port_buffer_bytes, graph: None where the file has another problem with them."""
    problem = "PFC is experimental: a loop looks at the queues every ms and pauses all neighbours of a congested switch"
    hint = (
        f"real PFC acts within µs, port by port; links may have {FASTEST_BPS / 1e6:g} Mbit/s; each run judges the loop"
    )
    notes.warn(("pfc",), problem, hint)
    for i, queue in enumerate(pfc.queues):
        if not 0 <= queue < QUEUES:
            notes.wrong(("pfc", "queues", i), f"queue {queue} does not exist", f"queues are 0 to {QUEUES - 1}")
        elif queue in pfc.queues[:i]:
            notes.wrong(("pfc", "queues", i), f"queue {queue} is named twice", "keep one of them")
    for key, given in (("headroom", pfc.headroom_bytes), ("watchdog", pfc.watchdog_s)):
        if given is not None:
            notes.wrong(("pfc", key), f"the emulated switch has no {key}", "it is of switches in a lab: leave it out")
    if port_buffer_bytes is not None:
        check_pfc_room(notes, ("pfc", "xoff"), pfc, graph, port_buffer_bytes, time_dilation)


def check_pfc_room(
    notes: Notes, here: Loc, pfc: Pfc, graph: Graph | None, port_buffer_bytes: int, time_dilation: float
) -> None:
    """Check that xoff leaves room below port_buffer, the experiment's or a job's. here: the place that is named."""
    if pfc.xoff_bytes >= port_buffer_bytes:
        problem = f"xoff {show_size(pfc.xoff_bytes)} is not below port_buffer {show_size(port_buffer_bytes)}"
        notes.wrong(here, problem, "a queue would drop before it pauses anybody: a lower xoff")
    elif graph is not None:
        _check_headroom(notes, here, graph, port_buffer_bytes - pfc.xoff_bytes, time_dilation)


def _check_headroom(notes: Notes, here: Loc, graph: Graph, headroom_bytes: int, time_dilation: float) -> None:
    least_s = _LEAST_HEADROOM_S * time_dilation
    into_bps = {
        switch: sum(graph.link_rate_bps(switch, node) for node in graph.neighbours[switch]) for switch in graph.switches
    }
    switch = max(into_bps, key=lambda name: into_bps[name])
    lasts_s = headroom_bytes * 8 / into_bps[switch]
    if lasts_s < least_s:
        problem = (
            f"between xoff and port_buffer there are {show_size(headroom_bytes)}: what all neighbours of {switch} "
            f"send in {show_duration(lasts_s)}, less than a pause takes ({show_duration(least_s)})"
        )
        notes.warn(here, problem, "a lower xoff or a larger port_buffer, if queues are to drop nothing")
