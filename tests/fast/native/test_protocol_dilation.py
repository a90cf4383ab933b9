"""The protocol under time dilation, driven by hand in virtual time: exactly the run of the lab, stretched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from switch_port import Port
from virtual_time import MS, US, AnyKey, Done, Node, Packet, Values, World

from dlcp.transport._native import ffi, lib

SENDERS = 6
ELEMENTS = 20_000
MESSAGES = 6
ORIGIN_NS = 3_000 * MS
RATE_BPS = 1e8


class DilatedNode(Node):
    """A rank as the engine drives it: its world has the host's clock, its protocol the lab's."""

    def __init__(self, rank: int, peers: list[int], dilation: float, **overrides: object) -> None:
        super().__init__(rank, peers, **overrides)
        self._clock = ffi.new("struct dlcp_clock *", lib.dlcp_clock_new(dilation, ORIGIN_NS))

    def lab(self, host_ns: int) -> int:
        return int(lib.dlcp_clock_lab(self._clock, host_ns))

    def input(self, packet: Packet, now_ns: int) -> None:
        super().input(packet, self.lab(now_ns))

    def poll(self, now_ns: int) -> list[Packet]:
        return super().poll(self.lab(now_ns))

    def next_timer(self, now_ns: int) -> int | None:
        at_ns = super().next_timer(self.lab(now_ns))
        return None if at_ns is None else int(lib.dlcp_clock_host(self._clock, at_ns))

    def receive(self, peer: int, key: AnyKey, buffer: Values, now_ns: int, **more: Any) -> None:
        super().receive(peer, key, buffer, self.lab(now_ns), **more)

    def send(self, peer: int, key: AnyKey, data: Values, now_ns: int, **more: Any) -> None:
        super().send(peer, key, data, self.lab(now_ns), **more)


@dataclass(frozen=True)
class Outcome:
    """trace: of every packet's bytes, acknowledgements' holding times among them. ends_ns: in lab time."""

    trace: int
    statistics: dict[int, dict[str, int]]
    ends_ns: list[tuple[int, int, int, bool]]
    dropped: int


def incast(dilation: float, congestion_control: str) -> Outcome:
    """Six senders to one receiver over a port of 8 packets, which a higher priority blocks for 30 ms: losses, probes,
    timeouts, everything; links and delays of the lab, stretched."""
    port = Port(
        0,
        rate_bps=RATE_BPS / dilation,
        buffer_bytes=12_000,
        delay_ns=round(350 * US * dilation),
        mark_bytes=6_000 if congestion_control == "dctcp" else 0,
    )
    options = {"congestion_control": congestion_control.encode(), "link_bps": RATE_BPS}
    nodes: dict[int, Node] = {0: DilatedNode(0, list(range(1, SENDERS + 1)), dilation, **options)}
    nodes |= {rank: DilatedNode(rank, [0], dilation, **options) for rank in range(1, SENDERS + 1)}
    world = World(nodes, port, now_ns=ORIGIN_NS)
    data = np.random.default_rng(0).normal(size=ELEMENTS).astype(np.float32)
    ends: list[tuple[int, int, int, bool]] = []

    def note(node: Node, done: Done) -> None:
        ends.append((node.rank, done.key[0], done.end_ns, done.received))

    world.on_done = note
    for node in nodes.values():
        node.declare(0, ELEMENTS)
    for rank in range(1, SENDERS + 1):
        for iteration in range(MESSAGES):
            nodes[0].receive(rank, (iteration, 0, 0), np.empty(ELEMENTS, np.float32), world.now_ns)
            nodes[rank].send(0, (iteration, 0, 0), data, world.now_ns)
    blocked_ns = ORIGIN_NS + round(100 * MS * dilation)
    until_ns = ORIGIN_NS + round(130 * MS * dilation)
    world.at(blocked_ns, lambda: setattr(port, "blocked_until_ns", until_ns))
    world.run(ORIGIN_NS + round(10_000 * MS * dilation), lambda: len(ends) == 2 * SENDERS * MESSAGES)
    assert len(ends) == 2 * SENDERS * MESSAGES, "not all of it came to an end"
    return Outcome(world.trace, {rank: node.statistics() for rank, node in nodes.items()}, ends, port.dropped)


# R103
@pytest.mark.parametrize("congestion_control", ["timely", "dctcp", "fixed"])
@pytest.mark.parametrize("dilation", [2.0, 4.0, 10.0])
def test_a_stretched_run_is_the_same_run_packet_by_packet(dilation: float, congestion_control: str) -> None:
    lab, stretched = incast(1.0, congestion_control), incast(dilation, congestion_control)
    assert lab.dropped > 0, "nothing was lost: retransmission was not tried"
    assert sum(one["losses_detected"] for one in lab.statistics.values()) > 0
    assert sum(one["probes_sent"] + one["dones_sent"] for one in lab.statistics.values()) > 0
    assert stretched == lab


@pytest.mark.parametrize("dilation", [1.7, 2.5])
def test_a_dilation_that_is_no_whole_number_differs_by_rounding_alone(dilation: float) -> None:
    lab, stretched = incast(1.0, "timely"), incast(dilation, "timely")
    last_lab, last = (max(end for _, _, end, _ in one.ends_ns) - ORIGIN_NS for one in (lab, stretched))
    assert last == pytest.approx(last_lab, rel=0.03)
    assert stretched.dropped == pytest.approx(lab.dropped, rel=0.3, abs=20)
