"""The ideal transport: every byte at line rate, perfectly overlapped with compute. No real one can be faster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlcp.agents.job_spec import JobSpec
from dlcp.model.topology import Graph
from dlcp.model.transport.settings import TransportSettings
from dlcp.patterns import pattern_of


@dataclass(frozen=True)
class Transfer:
    """Payload that one host sends another in one iteration."""

    source: str
    destination: str
    size_bytes: float


def transfers_of(spec: JobSpec, settings: TransportSettings) -> list[Transfer]:
    """Payload of one iteration, as the job's pattern moves it."""
    moved = pattern_of(spec.pattern).transfers(spec.traffic(settings))
    return [Transfer(spec.hosts[source], spec.hosts[sink], size_bytes) for source, sink, size_bytes in moved]


def transfers_seen(messages: Mapping[str, Sequence[Any]], iterations: int) -> list[Transfer]:
    """Payload of a mean iteration of a job that ran, from its table `messages`: where codes vary in length, nobody
    knows it before."""
    sizes: dict[tuple[str, str], int] = {}
    for pair, size in zip(zip(messages["src"], messages["dst"], strict=True), messages["bytes"], strict=True):
        sizes[pair] = sizes.get(pair, 0) + size
    return [Transfer(source, sink, size / iterations) for (source, sink), size in sizes.items()]


def link_loads_bytes(graph: Graph, transfers: list[Transfer]) -> dict[tuple[str, str], float]:
    """(from, to) → payload bytes that cross that direction of the link, split evenly over equal-cost paths."""
    loads: dict[tuple[str, str], float] = {}
    for transfer in transfers:
        todo = {graph.neighbours[transfer.source][0]: transfer.size_bytes}
        first = (transfer.source, next(iter(todo)))
        loads[first] = loads.get(first, 0.0) + transfer.size_bytes
        while todo:
            switch, share = todo.popitem()
            hops = graph.next_hops(switch, transfer.destination)
            for hop in hops:
                part = share / len(hops)
                loads[switch, hop] = loads.get((switch, hop), 0.0) + part
                if hop != transfer.destination:
                    todo[hop] = todo.get(hop, 0.0) + part
    return loads


def ideal_communication_s(graph: Graph, transfers: list[Transfer]) -> float:
    """Time that the busiest direction of a link needs for the payload alone: no headers, no gaps, no waiting."""
    loads = link_loads_bytes(graph, transfers)
    return max(load * 8 / graph.link_rate_bps(a, b) for (a, b), load in loads.items())


def ideal_iteration_s(graph: Graph, transfers: list[Transfer], compute_s: float) -> float:
    """The longer of compute and communication: the what-if of "Is Network the Bottleneck" (arXiv 2006.10103)."""
    return max(compute_s, ideal_communication_s(graph, transfers))
