"""The rate of every link in each direction: saturate it, count what passes.

Of a host's link the receivers' time stamps tell the rate: outwards, one host sends all it can to another; inwards, two
or more send to it. Between switches, pairs of hosts are found whose shortest paths cross the link and together ask for
more than it has; its switch's counters tell the rate. Where hosts cannot ask for more than that, what passes is a lower
bound of the rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from dlcp.model.frames import FRAME_BYTES
from dlcp.model.topology import Graph
from dlcp.model.units import show_rate
from dlcp.verification.balance import packets
from dlcp.verification.prober import Arrivals, Prober, Send
from dlcp.verification.rows import Row, Verdict, starved, unsupported

CHECK = "rate"
TOLERANCE = 0.005
EDGE_FRAMES = 4
"""Frames by which a window may be off at each end: what a shaper lets through at once."""
WINDOW_S = 0.4
LEAST_FRAMES = 800
LONGEST_S = 2.0
SATURATED = 1.2
"""Offered to a link, of its rate, when it is to be saturated."""
ASKED_SHARE = 0.9
"""Of what is asked of a link that cannot be saturated, that must come through: flows are not split quite evenly."""
BUSY_PACKETS_S = 26_000.0
"""Packets a second of all that is sent at once: what two cores carry beside their hosts' processes."""
AFTER_S = 0.05
"""Until the last of what hosts still hold has arrived."""
QUICK_FRAMES, QUICK_SHARE = 64, 0.9
"""A machine that is too busy slows a link down for moments. What never comes near its rate in stretches of so many
frames is a slow link on any machine."""
TRIES = 3
_ROUNDS = 6

Direction = tuple[str, str]
"""From a node to its neighbour."""
Flow = tuple[str, str]
"""From a host to a host."""


@dataclass(frozen=True)
class Aim:
    """Links to be measured together, and who sends to whom. offered: what is asked of each link, over its rate."""

    flows: tuple[Flow, ...]
    links: tuple[Direction, ...]
    offered: dict[Direction, float] = field(default_factory=dict)


def host_aims(graph: Graph) -> list[Aim]:
    """Every host's link, outwards and inwards; those that do not disturb each other and are not too many together."""
    outwards = [
        Aim(((host, sink),), ((host, graph.neighbours[host][0]),))
        for host in graph.hosts
        if (sink := _sink_of(graph, host)) is not None
    ]
    inwards = []
    for host in graph.hosts:
        switch = graph.neighbours[host][0]
        if sources := _sources_of(graph, host, SATURATED * graph.link_rate_bps(switch, host)):
            inwards.append(Aim(tuple((source, host) for source in sources), ((switch, host),)))
    return [*_together(graph, outwards), *_together(graph, inwards)]


def switch_aims(graph: Graph) -> list[Aim]:
    """Every link between switches, in both directions: first those that can be saturated."""
    left = {(a, b) for link in graph.links for a, b in ((link.a, link.b), (link.b, link.a))}
    left = {(a, b) for a, b in left if a not in graph.hosts and b not in graph.hosts}
    tried = {direction: _crossing(graph, direction) for direction in sorted(left)}
    tried = {direction: aim for direction, aim in tried.items() if aim.flows}
    aims = []
    for direction, aim in sorted(tried.items(), key=lambda one: (-one[1].offered[one[0]], one[0])):
        if direction not in left:
            continue
        same = [
            one
            for one in left & tried.keys()
            if aim.offered.get(one, 0.0) >= min(SATURATED, tried[one].offered[one]) - 1e-9
        ]
        links = tuple(sorted({direction, *same}))
        left -= set(links)
        aims.append(Aim(aim.flows, links, aim.offered))
    return aims


def unreached(graph: Graph) -> list[Direction]:
    """Directed links between switches that no shortest path between two hosts crosses."""
    found = []
    for link in graph.links:
        for direction in ((link.a, link.b), (link.b, link.a)):
            if not set(direction) & set(graph.hosts) and not _crossing(graph, direction).flows:
                found.append(direction)
    return found


def fluid(graph: Graph, flows: Iterable[Flow]) -> dict[Direction, float]:
    """What many small flows from each source at its full rate offer to every directed link, bit/s, when every switch
    splits evenly over its next hops and no link carries more than its rate."""
    flows = list(flows)
    senders = [source for source, _ in flows]
    passes: dict[Direction, float] = {}
    offered: dict[Direction, float] = {}
    for _ in range(_ROUNDS):
        offered = {}
        for source, sink in flows:
            distances = graph.distances_to(sink)
            first = (source, graph.neighbours[source][0])
            held = {source: graph.link_rate_bps(*first) / senders.count(source)}
            while held.keys() - {sink}:
                ahead: dict[str, float] = {}
                for node, rate_bps in held.items():
                    hops = [hop for hop in graph.neighbours[node] if distances.get(hop, -1) == distances[node] - 1]
                    for hop in hops:
                        asked = rate_bps / len(hops)
                        offered[node, hop] = offered.get((node, hop), 0.0) + asked
                        ahead[hop] = ahead.get(hop, 0.0) + asked * passes.get((node, hop), 1.0)
                held = ahead
        passes = {link: min(1.0, graph.link_rate_bps(*link) / asked) for link, asked in offered.items()}
    return offered


def _sink_of(graph: Graph, host: str, turn: int = 0) -> str | None:
    """Who can take all that a host sends: near, with a fast link; at the next turn, the next best."""
    others = [other for other in graph.hosts if other != host and host in graph.distances_to(other)]
    own = graph.link_rate_bps(host, graph.neighbours[host][0])

    def cost(other: str) -> tuple[bool, int, int]:
        slow = graph.link_rate_bps(other, graph.neighbours[other][0]) < own
        apart = (graph.hosts.index(other) - graph.hosts.index(host)) % len(graph.hosts)
        return slow, graph.distances_to(other)[host], apart

    others.sort(key=cost)
    return others[turn % len(others)] if others else None


def _sources_of(graph: Graph, host: str, rate_bps: float, turn: int = 0) -> list[str]:
    """The fewest near hosts that together send at least a rate, others first at the next turn; empty when all of them
    do not."""
    distances = graph.distances_to(host)
    others = [other for other in graph.hosts if other != host and other in distances]
    others.sort(
        key=lambda other: (distances[other], (graph.hosts.index(other) - graph.hosts.index(host)) % len(graph.hosts))
    )
    others = others[turn:] + others[:turn]
    found: list[str] = []
    switch = graph.neighbours[host][0]
    for other in others:
        found.append(other)
        if fluid(graph, [(one, host) for one in found]).get((switch, host), 0.0) >= rate_bps:
            return found
    return []


def _together(graph: Graph, aims: list[Aim]) -> list[Aim]:
    """Aims merged into as few as can be sent at once: no node twice among senders and receivers, no link overloaded but
    those that are measured."""
    merged: list[list[Aim]] = []
    for aim in aims:
        for group in merged:
            if _fit(graph, [*group, aim]):
                group.append(aim)
                break
        else:
            merged.append([aim])
    return [
        Aim(tuple(flow for aim in group for flow in aim.flows), tuple(link for aim in group for link in aim.links))
        for group in merged
    ]


def _fit(graph: Graph, aims: Sequence[Aim]) -> bool:
    flows = [flow for aim in aims for flow in aim.flows]
    sources, sinks = [a for a, _ in flows], {b for _, b in flows}
    measured = {link for aim in aims for link in aim.links}
    if len(set(sources)) < len(sources) or len(sinks) < sum(len({b for _, b in aim.flows}) for aim in aims):
        return False
    offered = fluid(graph, flows)
    crowded = [link for link, asked in offered.items() if asked > 1.01 * graph.link_rate_bps(*link)]
    sent = sum(graph.link_rate_bps(source, graph.neighbours[source][0]) for source in sources)
    return set(crowded) <= measured and sent / 8 / FRAME_BYTES <= BUSY_PACKETS_S


def _crossing(graph: Graph, direction: Direction) -> Aim:
    """Flows that ask for as much of a directed link as is wanted, or for all that hosts can."""
    a, b = direction
    sinks = [host for host in graph.hosts if b in graph.next_hops(a, host)]
    sources = [host for host in graph.hosts if any(_leads(graph, host, direction, sink) for sink in sinks)]
    flows: list[Flow] = []
    best = Aim((), (direction,))
    wanted = SATURATED * graph.link_rate_bps(a, b)
    for turn, source in enumerate(sources):
        fitting = [sink for sink in sinks if sink != source and _leads(graph, source, direction, sink)]
        if not fitting:
            continue
        flows.append((source, fitting[turn % len(fitting)]))
        offered = fluid(graph, flows)
        share = {link: asked / graph.link_rate_bps(*link) for link, asked in offered.items()}
        if share[direction] > best.offered.get(direction, 0.0) + 1e-9:
            best = Aim(tuple(flows), (direction,), share)
        if offered[direction] >= wanted:
            break
    return best


def _leads(graph: Graph, source: str, direction: Direction, sink: str) -> bool:
    """Whether some shortest path from source to sink crosses a directed link."""
    a, b = direction
    if source == sink or b not in graph.next_hops(a, sink):
        return False
    distances = graph.distances_to(sink)
    level = {source}
    while level and a not in level:
        level = {
            hop
            for node in level
            for hop in graph.neighbours[node]
            if node in distances and distances.get(hop, -1) == distances[node] - 1
        }
    return bool(level)


def window_s(rate_bps: float) -> float:
    """How long a link of that rate is watched."""
    return min(LONGEST_S, max(WINDOW_S, LEAST_FRAMES * FRAME_BYTES * 8 / rate_bps))


def judge(
    direction: Direction, rate_bps: float, measured_bps: float, seconds: float, offered: float = SATURATED
) -> Row:
    """offered: what was asked of the link, over its rate; below SATURATED the measured rate is a lower bound only, and
    has to come near to what was asked."""
    at_least = offered < SATURATED - 1e-9
    verdict: Verdict
    edge = 2 * EDGE_FRAMES * FRAME_BYTES * 8 / (seconds * rate_bps) if seconds else 1.0
    tolerance = TOLERANCE + edge
    off = measured_bps / rate_bps - 1
    verdict, why = "ok", ""
    if off > tolerance or (off < -tolerance and not at_least):
        verdict, why = "deviates", f"{off:+.2%}"
    elif at_least and measured_bps < ASKED_SHARE * min(1.0, offered) * rate_bps:
        verdict, why = "inconclusive", f"less than the {show_rate(offered * rate_bps)} that hosts asked of it"
    measured = f"at least {show_rate(measured_bps)}" if at_least and verdict != "deviates" else f"{off:+.2%}"
    return Row(
        CHECK,
        f"{direction[0]} → {direction[1]}",
        "lower bound" if at_least else "saturated",
        show_rate(rate_bps),
        measured,
        f"± {tolerance:.2%}",
        verdict,
        why,
        {"rate_bps": rate_bps, "measured_bps": measured_bps, "window_s": seconds, "at_least": at_least},
    )


def direction_of(row: Row) -> Direction:
    """The directed link that a row is of."""
    a, _, b = row.where.partition(" → ")
    return a, b


def received_bps(arrivals: Arrivals, frame_bytes: int = FRAME_BYTES) -> tuple[float, float]:
    """The rate of what arrived, its first tenth left out, and how long that took."""
    times = np.sort(arrivals["arrived_ns"].astype(np.int64))
    steady = times[len(times) // 10 :]
    if len(steady) < 2 or steady[-1] == steady[0]:
        return 0.0, 0.0
    took_s = float(steady[-1] - steady[0]) / 1e9
    return (len(steady) - 1) * frame_bytes * 8 / took_s, took_s


def quick_bps(arrivals: Arrivals, frame_bytes: int = FRAME_BYTES) -> float:
    """The rate that one stretch of QUICK_FRAMES in ten exceeds: what the link gives when nothing holds it up. 0 when
    there are not ten."""
    times = np.sort(arrivals["arrived_ns"].astype(np.int64))[::QUICK_FRAMES]
    if len(times) < 11:
        return 0.0
    return float(np.quantile(QUICK_FRAMES * frame_bytes * 8e9 / np.maximum(1, np.diff(times)), 0.9))


def probe_hosts(prober: Prober, graph: Graph) -> list[Row]:
    """Two rows for each host's link."""
    rows = [row for aim in host_aims(graph) for row in _again(partial(_probe_hosts, prober, graph, aim))]
    seen = {row.where for row in rows}
    for host in graph.hosts:
        switch = graph.neighbours[host][0]
        for a, b in ((host, switch), (switch, host)):
            if f"{a} → {b}" not in seen:
                why = "the other hosts together cannot ask for more than it has"
                rows.append(unsupported(CHECK, f"{a} → {b}", "", show_rate(graph.link_rate_bps(a, b)), why))
    return rows


def _again(measure: Callable[[int], list[Row]]) -> list[Row]:
    """Measure until nothing deviates, a few times at most: only what deviates every time does. Each row is the one
    nearest to what is intended; its data has the rates of all tries. measure: told which turn it is, so that it may
    send between other hosts."""
    best: dict[str, Row] = {}
    tries: dict[str, list[float]] = {}
    for turn in range(TRIES):
        for row in measure(turn):
            tries.setdefault(row.where, []).append(row.data["measured_bps"])
            known = best.get(row.where)
            if known is None or _distance(row) < _distance(known):
                best[row.where] = row
        if all(row.verdict == "ok" for row in best.values()):
            break
    return [replace(row, data=row.data | {"tries_bps": tries[where]}) for where, row in best.items()]


def _distance(row: Row) -> float:
    return abs(float(row.data["measured_bps"]) / float(row.data["rate_bps"]) - 1)


def _probe_hosts(prober: Prober, graph: Graph, aim: Aim, turn: int) -> list[Row]:
    """At the first turn all links together; then one by one, between other hosts, whose links may be the fault."""
    if turn:
        return [row for link in aim.links for row in _probe_together(prober, graph, _alone(graph, link, turn))]
    return _probe_together(prober, graph, aim)


def _alone(graph: Graph, link: Direction, turn: int) -> Aim:
    a, b = link
    if a in graph.hosts:
        sink = _sink_of(graph, a, turn)
        assert sink is not None, "there was one at the first turn"
        return Aim(((a, sink),), (link,))
    sources = _sources_of(graph, b, SATURATED * graph.link_rate_bps(a, b), turn)
    return Aim(tuple((source, b) for source in sources), (link,))


def _probe_together(prober: Prober, graph: Graph, aim: Aim) -> list[Row]:
    seconds = max(window_s(graph.link_rate_bps(*link)) for link in aim.links)
    shot = prober.shoot(_floods(graph, aim.flows, seconds, 1), seconds + AFTER_S)
    rows = []
    for a, b in aim.links:
        sink = b if b in graph.hosts else next(to for source, to in aim.flows if source == a)
        rate_bps = graph.link_rate_bps(a, b)
        measured_bps, took_s = received_bps(shot.at(sink))
        slow = quick_bps(shot.at(sink)) < QUICK_SHARE * rate_bps  # not for want of CPU: at no time was it quicker
        rows.append(starved(judge((a, b), rate_bps, measured_bps, took_s), shot.lost if slow else shot.starved))
    return rows


def probe_switches(prober: Prober, graph: Graph) -> list[Row]:
    """Two rows for each link between switches."""
    aims = switch_aims(graph)
    if prober.counters is None:
        links = [link for aim in aims for link in aim.links]
        return [
            unsupported(CHECK, f"{a} → {b}", "", show_rate(graph.link_rate_bps(a, b)), prober.no_counters)
            for a, b in links
        ]
    rows = [row for aim in aims for row in _again(partial(_probe_switches, prober, graph, aim))]
    for a, b in unreached(graph):
        why = "no shortest path between two hosts crosses it"
        rows.append(unsupported(CHECK, f"{a} → {b}", "", show_rate(graph.link_rate_bps(a, b)), why))
    return rows


def _probe_switches(prober: Prober, graph: Graph, aim: Aim, _turn: int) -> list[Row]:
    seconds = max(window_s(graph.link_rate_bps(*link)) for link in aim.links)
    begin_s, end_s = 0.15 * seconds, 1.1 * seconds
    trains = _floods(graph, aim.flows, 1.2 * seconds, 64)
    shot, (before, after) = prober.shoot_and_read(trains, 1.2 * seconds + AFTER_S, aim.links, (begin_s, end_s))
    rows = []
    for link in aim.links:
        took_s = after.since_s(before, link)
        sent = packets(after, link, "sent_bytes") - packets(before, link, "sent_bytes")
        offered = aim.offered[link]
        rows.append(starved(judge(link, graph.link_rate_bps(*link), sent * 8 / took_s, took_s, offered), shot.starved))
    return rows


def _floods(graph: Graph, flows: Sequence[Flow], seconds: float, ports: int) -> list[Send]:
    """All that each source's link takes in that time. A source is in one flow only."""
    found = []
    for name, (source, sink) in enumerate(flows):
        rate_bps = graph.link_rate_bps(source, graph.neighbours[source][0])
        frames = math.ceil(seconds * rate_bps / 8 / FRAME_BYTES)
        found.append(Send(source, sink, name, 0.0, ((0, FRAME_BYTES),), frames, flows=ports))
    return found


def expected(aims: Sequence[Aim]) -> Mapping[Direction, bool]:
    """Directed link → whether it is to be saturated."""
    return {link: aim.offered.get(link, SATURATED) >= SATURATED - 1e-9 for aim in aims for link in aim.links}
