"""N senders to one receiver over one shallow port, in virtual time: goodput, loss, fairness, recovery."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from switch_port import Port
from virtual_time import MS, US, Done, Node, World

ELEMENTS = 10_000
WARM_UP_NS = 300 * MS
MEASURED_NS = 700 * MS
UTILISATION_TO_GOODPUT = 1440 / 1514
"""Payload of a full packet over its Ethernet frame: what a saturated link carries as goodput."""


@dataclass(frozen=True)
class Measured:
    """goodput: of the link's rate. loss: of the packets sent. fairness: Jain's index of the senders."""

    goodput: float
    loss: float
    fairness: float
    median_queue_packets: float


def incast(senders: int, *, blocked_ms: tuple[tuple[int, int], ...] = (), jitter_us: int = 0) -> Measured:
    """Back-to-back messages from every sender; blocked_ms: (start, length) of times at which traffic of a higher
    priority has the link for itself."""
    port = Port(0, jitter_ns=jitter_us * US)
    nodes = {0: Node(0, list(range(1, senders + 1)))}
    nodes |= {rank: Node(rank, [0]) for rank in range(1, senders + 1)}
    world = World(nodes, port)
    data = np.random.default_rng(0).normal(size=ELEMENTS).astype(np.float32)
    for node in nodes.values():
        node.declare(0, ELEMENTS)

    def submit(rank: int, iteration: int) -> None:
        nodes[0].receive(rank, (iteration, 0, 0), np.empty(ELEMENTS, np.float32), world.now_ns)
        nodes[rank].send(0, (iteration, 0, 0), data, world.now_ns)

    def next_message(node: Node, done: Done) -> None:
        def go() -> None:
            submit(node.rank, done.key[0] + 2)
            world.run_node(nodes[0])
            world.run_node(node)

        if not done.received:
            world.at(world.now_ns + 1, go)

    world.on_done = next_message
    for rank in range(1, senders + 1):
        submit(rank, 0)
        submit(rank, 1)
    for start, length in blocked_ms:
        until = (start + length) * MS
        world.at(start * MS, lambda until=until: setattr(port, "blocked_until_ns", until))  # type: ignore[misc]
    world.run(WARM_UP_NS)
    before = {rank: node.statistics() for rank, node in nodes.items()}
    dropped = port.dropped
    port.samples.clear()
    world.run(WARM_UP_NS + MEASURED_NS)
    after = {rank: node.statistics() for rank, node in nodes.items()}

    def grown(rank: int, name: str) -> int:
        return after[rank][name] - before[rank][name]

    useful = grown(0, "data_packets_received") - grown(0, "packets_duplicate") - grown(0, "packets_late")
    sent = np.array([grown(rank, "data_packets_sent") for rank in nodes if rank])
    return Measured(
        goodput=useful * 1440 * 8 / (MEASURED_NS / 1e9) / port.rate_bps,
        loss=(port.dropped - dropped) / sent.sum(),
        fairness=sent.sum() ** 2 / len(sent) / (sent**2).sum(),
        median_queue_packets=float(np.median(port.samples)) / 1514,
    )


@pytest.mark.parametrize("senders", [2, 8, 32, 64])
def test_incast_fills_the_link_with_little_loss_and_equal_shares(senders: int) -> None:
    measured = incast(senders)
    assert measured.goodput >= 0.90
    assert measured.loss <= 0.01
    assert measured.fairness >= 0.95


def test_eight_senders_leave_room_in_the_buffer() -> None:
    measured = incast(8)
    assert measured.goodput >= 0.97 * UTILISATION_TO_GOODPUT
    assert measured.loss == 0
    assert measured.median_queue_packets <= 16, "the buffer holds 26"


def test_a_switch_that_delays_unevenly_does_not_starve_the_link() -> None:
    """Up to half a millisecond of noise each way, most of a round trip."""
    measured = incast(8, jitter_us=500)
    assert measured.goodput >= 0.90
    assert measured.loss <= 0.01


@pytest.mark.parametrize("senders", [1, 8])
def test_traffic_of_higher_priority_takes_the_link_and_it_recovers(senders: int) -> None:
    """50, 10 and 40 ms gone out of 700: the rest is used to 90 % at least, nothing collapses."""
    measured = incast(senders, blocked_ms=((350, 50), (550, 10), (700, 40)))
    assert measured.goodput >= 0.90 * UTILISATION_TO_GOODPUT * (700 - 100) / 700
    assert measured.loss <= 0.01
