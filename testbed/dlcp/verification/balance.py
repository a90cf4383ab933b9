"""How a switch shares packets out over equal-cost next hops, by its counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlcp.model.qos import LoadBalancing, QosIntent
from dlcp.model.topology import Graph
from dlcp.verification.intervals import band
from dlcp.verification.prober import SMALLEST_BYTES, Prober, Reading, Send
from dlcp.verification.rows import Row, Verdict, starved, unsupported

CHECK = "load balancing"
FLOWS = 400
PACKETS = 4800
BURST = 4
"""Probes of a flow in a row."""
LOAD = 0.2
"""Share of the slowest link on the way that probes take; so that nothing is dropped."""
PACKET_OVERHEAD = 3
"""A switch may have other packets: that many per port do not count."""


@dataclass(frozen=True)
class Crossing:
    """Probes from source to sink cross the switch, which has these next hops."""

    switch: str
    source: str
    sink: str
    hops: tuple[str, ...]


def crossings(graph: Graph) -> list[Crossing]:
    """One for each switch that has several next hops to some host; the source is as near as can be."""
    crossings_ = []
    for switch in graph.switches:
        ways = [(host, graph.next_hops(switch, host)) for host in graph.hosts]
        ways = [(host, hops) for host, hops in ways if len(hops) > 1]
        for sink, hops in sorted(ways, key=lambda way: -len(way[1])):
            distances = graph.distances_to(sink)
            above = [host for host in graph.hosts if host != sink and _crosses(graph, host, switch, distances)]
            if above:
                source = min(above, key=lambda host: (distances[host], host))
                crossings_.append(Crossing(switch, source, sink, hops))
                break
    return crossings_


def _crosses(graph: Graph, host: str, switch: str, distances: Mapping[str, int]) -> bool:
    """Return true if some shortest path from the host leads through the switch."""
    level = {host}
    while level and switch not in level:
        level = {
            hop
            for node in level
            for hop in graph.neighbours[node]
            if hop in distances and node in distances and distances[hop] == distances[node] - 1
        }
    return bool(level)


def balancing_of(intent: QosIntent, switch: str) -> LoadBalancing:
    """Load balancing that the intent gives a switch."""
    return intent.switch_load_balancing.get(switch, intent.load_balancing)


def train(graph: Graph, crossing: Crossing, balancing: LoadBalancing, flowlet_gap_s: float) -> tuple[Send, int]:
    """Return the packets to send, and how many of them the switch treats as one. A flow's probes are BURST in a row;
    flowlets of one flow are apart by more than the gap, since all other flows take their turn between.
    """
    rate_bps = LOAD * min(link.rate_bps for link in graph.links)
    flows = FLOWS if balancing in ("flow-hash", "flowlet") else 16
    if balancing == "flowlet":
        rate_bps = min(rate_bps, flows * BURST * SMALLEST_BYTES * 8 / (3 * flowlet_gap_s))
    send = Send(
        crossing.source, crossing.sink, 0, 0.0, ((0, SMALLEST_BYTES),), PACKETS, rate_bps, flows=flows, burst=BURST
    )
    per_unit = {"flow-hash": PACKETS // flows, "flowlet": BURST}.get(balancing, 1)
    return send, per_unit


def judge(
    crossing: Crossing, balancing: LoadBalancing, found: Sequence[int], per_unit: int, alpha: float, lost: int = 0
) -> Row:
    """found: packets of each next hop; per_unit: packets that go the same way together.

    At random (of flows, flowlets, packets): each hop's units are binomial. In turn: the counts differ by what other
    packets took of the turns, at most.
    """
    verdict: Verdict
    total, hops = sum(found), len(found)
    share = 1 / hops
    measured = " : ".join(f"{count / total:.1%}" for count in found) if total else "nothing"
    subject = f"{balancing} over {', '.join(crossing.hops)}"
    verdict, why, tolerance = "ok", "", "bands"
    bands = [band(round(count / per_unit), round(total / per_unit), alpha) for count in found]
    if not total:
        verdict, why = "inconclusive", "no probe came through"
    elif balancing == "round-robin":
        tolerance = f"± {PACKET_OVERHEAD} packets"
        if max(found) - min(found) > PACKET_OVERHEAD:
            verdict, why = "deviates", f"the next hops took {', '.join(map(str, found))} packets"
    else:
        low, high = bands[0]
        tolerance = f"± {100 * (high - low) / 2:.1f} points"
        off = [hop for hop, (low, high) in zip(crossing.hops, bands, strict=True) if not low <= share <= high]
        torn = [hop for hop, count in zip(crossing.hops, found, strict=True) if count % per_unit] if not lost else []
        if off:
            verdict, why = "deviates", f"{off[0]} takes more or less than {share:.1%} of {total} packets"
        elif balancing == "flow-hash" and torn:
            verdict, why = "deviates", f"a flow's packets take several ways: {torn[0]} took a part of one"
    return Row(
        CHECK,
        crossing.switch,
        subject,
        f"{share:.1%} each",
        measured,
        tolerance,
        verdict,
        why,
        {"packets": dict(zip(crossing.hops, found, strict=True)), "per_unit": per_unit, "bands": bands, "alpha": alpha},
    )


def probe(prober: Prober, graph: Graph, intent: QosIntent, alpha: float) -> list[Row]:
    """A row for each switch with several next hops."""
    return [_probe(prober, graph, intent, crossing, alpha) for crossing in crossings(graph)]


def _probe(prober: Prober, graph: Graph, intent: QosIntent, crossing: Crossing, alpha: float) -> Row:
    balancing = balancing_of(intent, crossing.switch)
    if prober.counters is None:
        subject = f"{balancing} over {', '.join(crossing.hops)}"
        return unsupported(CHECK, crossing.switch, subject, "", prober.no_counters)
    ports = [(crossing.switch, hop) for hop in crossing.hops]
    send, per_unit = train(graph, crossing, balancing, intent.flowlet_gap_s)
    before = prober.counters.read(ports)
    shot = prober.shoot([send], 0.05)
    after = prober.counters.read(ports)
    counts = [packets(after, port) - packets(before, port) for port in ports]
    lost = send.count - len(shot.at(crossing.sink))
    return starved(judge(crossing, balancing, counts, per_unit, alpha, lost), shot.lost)


def packets(reading: Reading, port: tuple[str, str], column: str = "enqueued_packets") -> int:
    """A column summed over the queues and precedences of a port."""
    return sum(cell[column] for cell in reading.ports[port].values())
