"""The background's flows: drawn from the experiment's numbers and a seed, the same under every scheme.

Who needs them, an agent or its caller, computes them again from the same few numbers: they are too many to send.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from dlcp.errors import Problem
from dlcp.model.base import Frozen
from dlcp.model.frames import TCP_OVERHEAD_BYTES, TCP_PAYLOAD_BYTES, UDP_OVERHEAD_BYTES
from dlcp.model.sizes import SizeTable
from dlcp.model.topology import Graph
from dlcp.model.workload import Background, Constant, Incast, Poisson, partners
from dlcp.traffic.native import DATAGRAM_BYTES, HEADER_BYTES, Array, group_datagrams, whole

DATAGRAM_FRAME_BYTES = DATAGRAM_BYTES + UDP_OVERHEAD_BYTES
"""A full datagram of the background, as a queue counts it."""
CONNECTION_PACKETS = 5
"""Of a TCP flow beside its data and their acknowledgements: three to open it, two to close it."""
ACKNOWLEDGED_SEGMENTS = 2
"""Linux acknowledges every second full segment."""
SEND_CPU_S = 25e-6
"""Of a group of datagrams, beside theirs on their way: waking up for it (measured: 45 µs a datagram at 5 Mbit/s, 36 at
20, 40 a group of four at 100, over one switch)."""
FLOW_CPU_S = 200e-6
"""Of a TCP flow, beside its packets' on their way: sockets, and waking up at both ends (measured: 280 µs a flow of one
packet over one switch, whose 7 packets take 50)."""
QUANTILES = 20_000
"""Points at which a mean over a size table is taken: within 0.1 % of the integral for the tables that are shipped."""
MOST_FLOWS = 3_000_000
"""Of a plan: 130 MB in every agent while it makes its own part of it."""
_STREAM = 5
"""Of the seed: what is drawn for the background has nothing to do with what is drawn for the job."""
_GAPS, _SOURCES, _SINKS, _SIZES = range(4)

PLANNED = np.dtype(
    [("entry", "i4"), ("source", "i4"), ("sink", "i4"), ("number", "u4"), ("start_s", "f8"), ("bytes", "i8")]
)
"""A flow of the plan. source, sink: index into the plan's hosts; number: of the flow at its sink; start_s: from the
job's start."""


class TrafficSpec(Frozen):
    """What the plan follows from. rates_bps: of each host's link. horizon_s: flows are planned for so long.

    Times and rates are as emulated. time_dilation: how many emulated seconds stand for one of the lab.
    """

    entries: tuple[Background, ...]
    rates_bps: dict[str, float]
    seed: int
    horizon_s: float
    byte_scale: float = 1.0
    time_dilation: float = Field(default=1.0, ge=1)


@dataclass(frozen=True)
class TrafficPlan:
    """flows: PLANNED, by entry and then by start."""

    hosts: tuple[str, ...]
    flows: Array


@dataclass(frozen=True)
class Offered:
    """What an entry asks of the fabric in the mean, were nothing in its way.

    packets_per_s: of the flows' data, and of TCP also its acknowledgements and what opens and closes connections.
    rate_bps: the data's frames. cpu: cores that it takes to make it, beside what its packets take on their way.
    least_packets_per_s: those that remain however much the experiment is scaled down: flows become smaller, not fewer.
    pairs: who sends to whom.
    """

    packets_per_s: float
    rate_bps: float
    flows_per_s: float
    cpu: float
    least_packets_per_s: float
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Burst:
    """One source's part of a burst; time_s counts from the job's start."""

    time_s: float
    source: str
    sink: str
    size_bytes: int


def plan_traffic(spec: TrafficSpec) -> TrafficPlan:
    """All flows of all entries before the horizon. Problem when they are too many."""
    hosts = tuple(spec.rates_bps)
    parts = [_planned(spec, entry, stream, hosts) for stream, entry in enumerate(spec.entries)]
    flows = np.concatenate(parts) if parts else np.zeros(0, PLANNED)
    by_sink = np.argsort(flows["sink"], kind="stable")
    counts = np.bincount(flows["sink"], minlength=len(hosts))
    flows["number"][by_sink] = np.arange(len(flows)) - np.repeat(np.cumsum(counts) - counts, counts)
    return TrafficPlan(hosts, flows)


def host_rates_bps(graph: Graph) -> dict[str, float]:
    """Host → the rate of its link."""
    return {host: graph.host_link(host).rate_bps for host in graph.hosts}


def offered(entry: Background, graph: Graph, byte_scale: float = 1.0, time_dilation: float = 1.0) -> Offered:
    """What an entry offers to a fabric in the mean; of a Poisson entry that was loaded with its table.

    time_dilation: in how many emulated seconds a lab second passes: datagrams leave in as large groups as in the lab.
    """
    pairs = tuple((source, sink) for source in entry.sources for sink in partners(entry, source))
    if isinstance(entry, Constant):
        rate_bps = entry.rate_bps * len(pairs)
        packets_per_s = rate_bps / 8 / DATAGRAM_FRAME_BYTES
        cpu = packets_per_s * _group_cpu_s(entry.rate_bps, time_dilation)
        return Offered(packets_per_s, rate_bps, 0.0, cpu, 0.0, pairs)
    if isinstance(entry, Incast):
        share = sum(len([s for s in entry.sources if s != sink]) for sink in entry.sinks) / len(entry.sinks)
        flows_per_s = share / entry.interval_s
        burst_packets = math.ceil(entry.burst_bytes / DATAGRAM_BYTES)
        rate_bps = flows_per_s * 8 * (entry.burst_bytes + burst_packets * UDP_OVERHEAD_BYTES)
        cpu = flows_per_s * burst_packets * _group_cpu_s(graph.slowest_host_bps, time_dilation)
        return Offered(flows_per_s * burst_packets, rate_bps, flows_per_s, cpu, 0.0, pairs)
    sizes = _typical_sizes(entry, byte_scale)
    rate_bps = entry.load * sum(graph.host_link(source).rate_bps for source in entry.sources)
    flows_per_s = rate_bps / 8 / float(_frame_bytes(entry, sizes).mean())
    packets, least = float(_packets(entry, sizes).mean()), 1.0
    cpu = flows_per_s * packets * _group_cpu_s(graph.slowest_host_bps, time_dilation)
    if entry.transport == "tcp":
        packets += CONNECTION_PACKETS + float(np.ceil(_packets(entry, sizes) / ACKNOWLEDGED_SEGMENTS).mean())
        least += CONNECTION_PACKETS + 1
        cpu = flows_per_s * FLOW_CPU_S
    return Offered(flows_per_s * packets, rate_bps, flows_per_s, cpu, flows_per_s * least, pairs)


def _group_cpu_s(rate_bps: float, time_dilation: float) -> float:
    """A datagram's share of waking up for its group."""
    return SEND_CPU_S / group_datagrams(rate_bps, time_dilation)


def require_few(entry: int, flows_per_s: float, horizon_s: float) -> None:
    """Problem when an entry's plan would not fit into the agents' memory."""
    if flows_per_s * horizon_s > MOST_FLOWS:
        what = f"{flows_per_s * horizon_s:,.0f} flows in {horizon_s:g} s; {MOST_FLOWS:,} is the most"
        raise Problem(f"background[{entry}]", what, "a lower load, longer intervals, or a shorter time_limit")


def incast_bursts(incast: Incast, seed: int, horizon_s: float, stream: int = 0) -> list[Burst]:
    """All bursts before horizon_s: exponential gaps, a random sink each, every source but the sink itself sends.

    stream: which of the experiment's background entries it is, so that two of them differ.
    """
    random = np.random.default_rng([seed, _STREAM, stream])
    bursts: list[Burst] = []
    time_s = random.exponential(incast.interval_s)
    while time_s < horizon_s:
        sink = incast.sinks[int(random.integers(len(incast.sinks)))]
        bursts += [Burst(time_s, source, sink, incast.burst_bytes) for source in incast.sources if source != sink]
        time_s += random.exponential(incast.interval_s)
    return bursts


def sizes_at(table: SizeTable, shares: Array, byte_scale: float = 1.0) -> Array:
    """The sizes in whole bytes, divided by byte_scale, that so large shares of all flows do not exceed."""
    points = table.points
    lab = np.interp(shares, [point.share for point in points], [point.size_bytes for point in points])
    return np.ceil(lab / byte_scale).astype(np.int64)


def _planned(spec: TrafficSpec, entry: Background, stream: int, hosts: tuple[str, ...]) -> Array:
    index = {host: i for i, host in enumerate(hosts)}
    if isinstance(entry, Incast):
        bursts = incast_bursts(entry, spec.seed, spec.horizon_s, stream)
        sizes = whole(np.array([burst.size_bytes for burst in bursts], np.int64))
        sources, sinks = [index[burst.source] for burst in bursts], [index[burst.sink] for burst in bursts]
        return _rows(stream, sources, sinks, [burst.time_s for burst in bursts], sizes)
    if isinstance(entry, Constant):
        return _constant(spec, entry, stream, index)
    return _poisson(spec, entry, stream, index)


def _constant(spec: TrafficSpec, entry: Constant, stream: int, index: dict[str, int]) -> Array:
    """One flow for each pair, as long as the plan. Each begins at a random instant of its first gap: streams of one
    rate are not in step."""
    pairs = [(index[source], index[sink]) for source in entry.sources for sink in partners(entry, source)]
    gap_s = DATAGRAM_FRAME_BYTES * 8 / entry.rate_bps
    starts = np.random.default_rng([spec.seed, _STREAM, stream]).uniform(0, gap_s, len(pairs))
    packets = np.maximum(1, np.ceil((spec.horizon_s - starts) / gap_s)).astype(np.int64)
    order = np.argsort(starts)
    sources, sinks = np.array(pairs, np.int32).reshape(-1, 2)[order].T
    return _rows(stream, sources, sinks, starts[order], packets[order] * DATAGRAM_BYTES)


def _poisson(spec: TrafficSpec, entry: Poisson, stream: int, index: dict[str, int]) -> Array:
    """Gaps, sources, sinks and sizes are drawn apart, so that a longer horizon only adds flows."""
    gaps, sources, sinks, sizes = (
        np.random.default_rng([spec.seed, _STREAM, stream, what]) for what in (_GAPS, _SOURCES, _SINKS, _SIZES)
    )
    rates = np.array([spec.rates_bps[source] for source in entry.sources])
    typical = _typical_sizes(entry, spec.byte_scale)
    per_second = entry.load * rates.sum() / 8 / _frame_bytes(entry, typical).mean()
    require_few(stream, per_second, spec.horizon_s)
    drawn_gaps = np.zeros(0)
    while drawn_gaps.sum() < spec.horizon_s:
        more = gaps.exponential(1 / per_second, 10 + int(per_second * spec.horizon_s))
        drawn_gaps = np.concatenate([drawn_gaps, more])
    starts = np.cumsum(drawn_gaps)
    starts = starts[starts < spec.horizon_s]
    chosen = np.searchsorted(np.cumsum(rates) / rates.sum(), sources.random(len(starts)), side="right")
    chosen = np.minimum(chosen, len(rates) - 1)
    others = [[index[sink] for sink in partners(entry, source)] for source in entry.sources]
    widest = max(map(len, others))
    table = np.array([(row * widest)[:widest] for row in others])
    drawn = (sinks.random(len(starts)) * np.array([len(row) for row in others])[chosen]).astype(np.int64)
    size = _sized(entry, sizes.random(len(starts)), spec.byte_scale)
    origin = np.array([index[source] for source in entry.sources])
    return _rows(stream, origin[chosen], table[chosen, drawn], starts, size)


def _rows(
    entry: int,
    sources: Array | Sequence[int],
    sinks: Array | Sequence[int],
    starts: Array | Sequence[float],
    size: Array,
) -> Array:
    flows = np.zeros(len(starts), PLANNED)
    flows["entry"], flows["source"], flows["sink"] = entry, sources, sinks
    flows["start_s"], flows["bytes"] = starts, size
    return flows


def _sized(entry: Poisson, shares: Array, byte_scale: float) -> Array:
    """What is sent of flows of those quantiles: over either protocol at least a header."""
    if entry.table is None:
        raise Problem("background", f"the table of flow sizes {entry.sizes!r} was not loaded")
    sizes = sizes_at(entry.table, shares, byte_scale)
    return whole(sizes) if entry.transport == "udp" else np.maximum(sizes, HEADER_BYTES)


def _typical_sizes(entry: Poisson, byte_scale: float) -> Array:
    return _sized(entry, (np.arange(QUANTILES) + 0.5) / QUANTILES, byte_scale)


def _packets(entry: Poisson, sizes: Array) -> Array:
    return np.ceil(sizes / (DATAGRAM_BYTES if entry.transport == "udp" else TCP_PAYLOAD_BYTES))


def _frame_bytes(entry: Poisson, sizes: Array) -> Array:
    """What the data of flows take of a link; TCP's handshakes and acknowledgements come on top."""
    overhead = UDP_OVERHEAD_BYTES if entry.transport == "udp" else TCP_OVERHEAD_BYTES
    frames: Array = sizes + _packets(entry, sizes) * overhead
    return frames
