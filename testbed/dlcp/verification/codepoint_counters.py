"""Queue and precedence of each codepoint, by the switches' own counters: all switches, those too that probes
cannot block."""

from __future__ import annotations

from dlcp.model.topology import Graph
from dlcp.verification.codepoints import CODEPOINTS, COUNTED, judge_counters
from dlcp.verification.prober import SMALLEST_BYTES, Prober, Reading, Send
from dlcp.verification.rows import Row, starved, unsupported

FLOWS = 16
"""Flows of each codepoint, one probe each: so that flow hashes lead some of them through every switch."""
AFTER_S = 0.005

Cells = dict[tuple[int, int], int]


def pairs(graph: Graph) -> dict[tuple[str, str], tuple[str, ...]]:
    """Pairs of hosts that together cross every switch that can be crossed → the switches of each."""
    pairs_of: dict[tuple[str, str], tuple[str, ...]] = {}
    left = set(graph.switches)
    for source in graph.hosts:
        for sink in graph.hosts:
            crossed = on_the_way(graph, source, sink) if source != sink else set()
            if crossed & left:
                pairs_of[source, sink] = tuple(sorted(crossed))
                left -= crossed
        if not left:
            break
    return pairs_of


def on_the_way(graph: Graph, source: str, sink: str) -> set[str]:
    """The switches on all shortest paths."""
    distances, level, nodes = graph.distances_to(sink), {source}, set()
    while level:
        level = {
            hop
            for node in level
            for hop in graph.neighbours[node]
            if node in distances and distances.get(hop, -1) == distances[node] - 1
        }
        nodes |= level
    return nodes & set(graph.switches)


def probe_codepoints(prober: Prober, graph: Graph) -> list[Row]:
    """A row for each switch."""
    if prober.counters is None:
        return [unsupported(COUNTED, switch, "all 64 codepoints", "", prober.no_counters) for switch in graph.switches]
    cells_of: dict[str, dict[int, Cells]] = {switch: {} for switch in graph.switches}
    words = ""
    for (source, sink), crossed in pairs(graph).items():
        ports = [(switch, hop) for switch in crossed for hop in graph.next_hops(switch, sink)]
        before = prober.counters.read(ports)
        for dscp in range(CODEPOINTS):
            shot = prober.shoot(
                [Send(source, sink, dscp, 0.0, ((dscp << 2, SMALLEST_BYTES),), FLOWS, flows=FLOWS)], AFTER_S
            )
            after = prober.counters.read(ports)
            words = shot.lost or words
            for switch, hop in ports:
                cells = cells_of[switch].setdefault(dscp, {})
                _add(cells, before, after, (switch, hop))
            before = after
    return [starved(judge_counters(switch, cells), words) for switch, cells in cells_of.items() if cells]


def _add(cells: Cells, before: Reading, after: Reading, port: tuple[str, str]) -> None:
    for cell, columns in after.ports[port].items():
        count = columns["enqueued_packets"] - before.ports[port][cell]["enqueued_packets"]
        if count:
            cells[cell] = cells.get(cell, 0) + count
