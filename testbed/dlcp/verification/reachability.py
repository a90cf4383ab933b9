"""Reachability of every host from every other, and the delays of links."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dlcp.model.topology import Graph
from dlcp.verification.prober import SMALLEST_BYTES, Prober, Send
from dlcp.verification.rows import Row, Verdict, starved

REACH, DELAY = "reachability", "delay"
PROBES = 4
GAP_S = 0.0002
DELAY_TOLERANCE_S = 0.0005
"""Delay that a host's stack and an emulated hop add at most to the quickest of a pair's probes."""

Pair = tuple[str, str]


def sends(graph: Graph) -> tuple[list[Send], list[Pair]]:
    """A train for every ordered pair of hosts, named by its place in the list of pairs."""
    pairs = [(source, sink) for source in graph.hosts for sink in graph.hosts if source != sink]
    turn = dict.fromkeys(graph.hosts, 0)
    trains = []
    for name, (source, sink) in enumerate(pairs):
        trains.append(Send(source, sink, name, turn[source] * PROBES * GAP_S, ((0, SMALLEST_BYTES),), PROBES, flows=1))
        turn[source] += 1
    return trains, pairs


def delays_s(graph: Graph, source: str, sink: str) -> tuple[float, float]:
    """The shortest and the longest delay of all shortest paths: of the links, and a small frame's time on each."""
    distances = graph.distances_to(sink)
    known: dict[str, tuple[float, float]] = {sink: (0.0, 0.0)}
    for node in sorted(distances, key=lambda one: distances[one]):
        if node == sink:
            continue
        hops = [hop for hop in graph.neighbours[node] if distances.get(hop, -1) == distances[node] - 1 and hop in known]
        link_s = {
            hop: graph.link(node, hop).delay_s + SMALLEST_BYTES * 8 / graph.link_rate_bps(node, hop) for hop in hops
        }
        known[node] = (
            min(link_s[hop] + known[hop][0] for hop in hops),
            max(link_s[hop] + known[hop][1] for hop in hops),
        )
    return known[source]


def judge_reach(reached: Mapping[Pair, int]) -> Row:
    """reached: pair → probes that arrived."""
    verdict: Verdict
    lost = [pair for pair, count in reached.items() if count == 0]
    some = [pair for pair, count in reached.items() if 0 < count < PROBES]
    measured = f"{len(reached) - len(lost)} of {len(reached)}"
    if lost:
        verdict, why = "deviates", "nothing arrives from " + "; ".join(f"{a} at {b}" for a, b in lost[:4])
    elif some:
        verdict, why = "inconclusive", f"probes were lost between {len(some)} pairs, such as {' and '.join(some[0])}"
    else:
        verdict, why = "ok", ""
    return Row(
        REACH,
        "fabric",
        "every pair of hosts",
        f"{len(reached)} pairs",
        measured,
        "exact",
        verdict,
        why,
        {"lost": [list(pair) for pair in lost], "probes": PROBES},
    )


def judge_delay(intended: Mapping[Pair, tuple[float, float]], measured_s: Mapping[Pair, float]) -> Row:
    """intended: pair → shortest and longest delay; measured_s: the quickest probe's."""

    def off(pair: Pair) -> float:
        low, high = intended[pair]
        return max(low - DELAY_TOLERANCE_S - measured_s[pair], measured_s[pair] - high - DELAY_TOLERANCE_S)

    worst = max(measured_s, key=off, default=None)
    subject = "every pair of hosts, quickest probe"
    if worst is None:
        return Row(DELAY, "fabric", subject, "", "nothing", "", "inconclusive", "no probe arrived")
    span = f"{1e3 * min(a for a, _ in intended.values()):.2f}–{1e3 * max(b for _, b in intended.values()):.2f} ms"
    measured = f"{1e3 * min(measured_s.values()):.2f}–{1e3 * max(measured_s.values()):.2f} ms"
    wrong, wanted_ms = off(worst) > 0, 1e3 * intended[worst][0]
    why = f"{worst[0]} → {worst[1]} takes {1e3 * measured_s[worst]:.2f} ms, intended {wanted_ms:.2f}" if wrong else ""
    data = {f"{a} → {b}": {"intended_s": intended[a, b], "measured_s": took} for (a, b), took in measured_s.items()}
    return Row(
        DELAY,
        "fabric",
        subject,
        span,
        measured,
        f"± {1e3 * DELAY_TOLERANCE_S:g} ms",
        "deviates" if wrong else "ok",
        why,
        data,
    )


def probe(prober: Prober, graph: Graph) -> list[Row]:
    """Reachability; delays when links have any."""
    trains, pairs = sends(graph)
    shot = prober.shoot(trains, 0.05 + 4 * sum(link.delay_s for link in graph.links))
    reached: dict[Pair, int] = {}
    took_s: dict[Pair, float] = {}
    for host in graph.hosts:
        arrivals = shot.at(host)
        for name in np.unique(arrivals["train"]):
            train = arrivals[arrivals["train"] == name]
            reached[pairs[name]] = len(train)
            took_s[pairs[name]] = (
                float((train["arrived_ns"].astype(np.int64) - train["sent_ns"].astype(np.int64)).min()) / 1e9
            )
    rows = [starved(judge_reach({pair: reached.get(pair, 0) for pair in pairs}), shot.lost)]
    if any(link.delay_s for link in graph.links):
        intended = {pair: delays_s(graph, *pair) for pair in took_s}
        rows.append(starved(judge_delay(intended, took_s), shot.starved))
    return rows
