"""All that probes can say of a fabric, in order: paths, codepoints, service, curves, limits, isolation,
balance, rates."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from dlcp.model.base import OnProgress
from dlcp.model.frames import FRAME_BYTES
from dlcp.model.qos import QUEUES, QosIntent
from dlcp.model.topology import Graph
from dlcp.model.units import show_size
from dlcp.verification import balance, codepoints, curves, isolation, limits, overload, rates, reachability, service
from dlcp.verification.codepoint_counters import probe_codepoints
from dlcp.verification.intervals import FALSE_ALARM
from dlcp.verification.placement import Station, cushion_bytes, hosts_of, station
from dlcp.verification.probe_trains import calm, shoot
from dlcp.verification.prober import Prober
from dlcp.verification.repeat import settled
from dlcp.verification.rows import Row, starved, unsupported

BLOCKS = 40
"""Blocks of a curve, each with curves.STEPS probes at most."""


@dataclass(frozen=True)
class Step:
    """A part of the work: how it is called, about how long it takes (relative), what it does."""

    name: str
    weight: float
    run: Callable[[], list[Row]]
    settles: bool = True
    """True if a result that is not ok is measured again; else `run` does that itself."""


def verify(
    prober: Prober, graph: Graph, intent: QosIntent, *, seed: int, every_port: bool = False, on_progress: OnProgress
) -> Iterator[Row]:
    """Rows, as they are found. every_port: look at curves and limits of every port that leads to a host, not of one a
    switch."""
    slow: dict[tuple[str, str], float] = {}
    first = [
        Step("every pair of hosts", 1, lambda: reachability.probe(prober, graph)),
        Step("rates of hosts' links", 6, lambda: rates.probe_hosts(prober, graph), settles=False),
    ]

    def remaining_steps() -> list[Step]:
        return plan(prober, graph, intent, slow, seed=seed, every_port=every_port)

    total_weight, done = sum(step.weight for step in [*first, *remaining_steps()]), 0.0
    for step in itertools.chain(first, _late(remaining_steps)):
        on_progress(done / total_weight, step.name)
        for row in settled(step.run) if step.settles else step.run():
            yield row
            if row.check == rates.CHECK and row.verdict == "deviates":
                slow[rates.direction_of(row)] = row.data["measured_bps"]
        done += step.weight


def _late(make: Callable[[], list[Step]]) -> Iterator[Step]:
    """Steps that are planned when the first of them is due."""
    yield from make()


def plan(
    prober: Prober,
    graph: Graph,
    intent: QosIntent,
    slow: Mapping[tuple[str, str], float],
    *,
    seed: int,
    every_port: bool,
) -> list[Step]:
    """The steps after paths and rates of hosts' links. slow: links whose rate is not the intended one, and their rate:
    a port is blocked at the rate that it has."""
    ports = {
        (switch, host): station(graph, switch, host, slow)
        for switch in graph.switches
        for host in hosts_of(graph, switch)
    }
    stations = [port_station for port_station in ports.values() if isinstance(port_station, Station)]
    close = stations if every_port else list({near.switch: near for near in reversed(stations)}.values())[::-1]
    alpha = FALSE_ALARM / max(1, bands(graph, intent, len(close)))
    steps = [
        Step("codepoints by counters", 3, lambda: probe_codepoints(prober, graph)),
        Step("what probes cannot see", 0, lambda: [*_unfilled(graph, ports), *_unseen(intent)]),
    ]
    steps += [Step(f"{near.port}: order of service", 1, _Service(prober, near, intent, seed)) for near in stations]
    for near in close:
        steps += [
            Step(f"{near.port}: {curve.check} of {curve.what}", 1, _Curve(prober, near, intent, curve, alpha))
            for queue in reversed(range(QUEUES))
            for curve in curves.curves_of(intent, queue)
        ]
        steps.append(Step(f"{near.port}: limits", 1, _Limits(prober, near, intent)))
        steps.append(Step(f"{near.port}: isolation", 2, _Isolation(prober, near, intent)))
        steps.append(Step(f"{near.port}: overload", 2, _Overload(prober, near, intent)))
    steps.append(Step("load balancing", 2, lambda: balance.probe(prober, graph, intent, alpha)))
    switches = Step("rates of links between switches", 4, lambda: rates.probe_switches(prober, graph), settles=False)
    steps.append(switches)
    return steps


def bands(graph: Graph, intent: QosIntent, ports: int) -> int:
    """How many bands a verification has."""
    curved = sum(len(curves.curves_of(intent, queue)) for queue in range(QUEUES))
    return ports * curved * curves.BINS + sum(len(crossing.hops) for crossing in balance.crossings(graph))


def busy_bytes(intent: QosIntent) -> int:
    """Bytes that the top queue holds at most in a block that was not disturbed: the cushion, and a few frames more."""
    return cushion_bytes(intent) + 3 * FRAME_BYTES


def room_bytes(intent: QosIntent, queue: int) -> int:
    """Bytes that a queue surely holds while the cushion, and a frame or two of the blocker, wait in the top queue."""
    queue_intent, alpha, reserved = intent.queue(queue), intent.alpha_of(queue), intent.reserved_of(queue)
    kept = intent.reserved_bytes - sum(intent.reserved_of(number) for number in {queue, QUEUES - 1})
    busy = max(busy_bytes(intent), intent.reserved_of(QUEUES - 1))
    room = intent.port_buffer_bytes - kept - busy
    if intent.shared_buffer_bytes is not None:
        free = alpha * (intent.shared_buffer_bytes - busy) / (1 + alpha)
        room = min(room, reserved + int(free))
    return max(reserved, room if queue_intent.limit_bytes is None else min(room, queue_intent.limit_bytes))


@dataclass(frozen=True)
class _Service:
    prober: Prober
    station: Station
    intent: QosIntent
    seed: int

    def __call__(self) -> list[Row]:
        service.warm_up(self.prober, self.station, self.intent)
        return [
            codepoints.probe(self.prober, self.station, self.intent, self.seed),
            *service.probe_priority(self.prober, self.station, self.intent),
            *service.probe_weights(self.prober, self.station, self.intent, room_bytes(self.intent, 0)),
        ]


@dataclass(frozen=True)
class _Curve:
    prober: Prober
    station: Station
    intent: QosIntent
    curve: curves.Curve
    alpha: float

    def __call__(self) -> list[Row]:
        curve, where = self.curve, self.station.port
        intended = curves.intended_words(curve.profile)
        if curve.queue == QUEUES - 1:
            return [unsupported(curve.check, where, curve.what, intended, "no queue outranks it, so none can block it")]
        room = room_bytes(self.intent, curve.queue)
        load = curves.load_of(curve, room)
        cushion = cushion_bytes(self.intent)
        sample = shoot(self.prober, self.station, lambda: [load] * BLOCKS, cushion, wanted=BLOCKS // 2)
        sample = replace(sample, blocks=calm(sample.blocks, busy_bytes(self.intent)))
        if curve.averaging:
            backlogs, struck = curves.averaged_samples(curve, sample.blocks, room, self.station.rate_bps)
        else:
            backlogs, struck = curves.samples(curve, sample.held, room)
        row = curves.judge(
            curve,
            where,
            backlogs,
            struck,
            tolerance=curves.tolerance_bytes(load),
            alpha=self.alpha,
            doubt=sample.doubt,
            dropped=curves.dropped_instead(curve, sample.held, room) if curve.marks else 0,
        )
        return [starved(row, sample.lost)]


@dataclass(frozen=True)
class _Limits:
    prober: Prober
    station: Station
    intent: QosIntent

    def __call__(self) -> list[Row]:
        return limits.probe(self.prober, self.station, self.intent)


@dataclass(frozen=True)
class _Isolation:
    prober: Prober
    station: Station
    intent: QosIntent

    def __call__(self) -> list[Row]:
        return isolation.probe(self.prober, self.station, self.intent)


@dataclass(frozen=True)
class _Overload:
    prober: Prober
    station: Station
    intent: QosIntent

    def __call__(self) -> list[Row]:
        return overload.probe(self.prober, self.station, self.intent)


def _unseen(intent: QosIntent) -> list[Row]:
    """A row for each part of an intent that no probe looks at."""
    if intent.pfc is None:
        return []
    queues = ", ".join(map(str, intent.pfc.queues))
    wanted = f"pause beyond {show_size(intent.pfc.xoff_bytes)}, until {show_size(intent.pfc.xon_bytes)}"
    return [unsupported("pfc", "fabric", f"queues {queues}", wanted, "no probe makes a port pause the one before it")]


def _unfilled(graph: Graph, ports: dict[tuple[str, str], Station | str]) -> list[Row]:
    """A row for each port that leads to a host and cannot be blocked, and for each switch without such ports."""
    subject = "order of service, curves, limits"
    rows = [
        unsupported("ports", f"{switch}-{host}", subject, "", why)
        for (switch, host), why in ports.items()
        if isinstance(why, str)
    ]
    for switch in graph.switches:
        if not hosts_of(graph, switch):
            why = "no host hangs on it: what arrives for one of its ports comes on many paths, in any order"
            rows.append(unsupported("ports", switch, subject, "", why))
    return rows
