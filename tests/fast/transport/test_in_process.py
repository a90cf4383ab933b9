"""Endpoints in one process: what a rule takes, where it is put, and how waits end."""

from __future__ import annotations

import numpy as np
import pytest

from dlcp.transport.contract.endpoint import Leg, MessageKey, Placement, TransportError, Values
from dlcp.transport.in_process import InProcessEndpoint, InProcessNetwork, Lost

KEY = MessageKey(3, 0, Leg.PUSH)
ELEMENTS = 3 * 360 + 40
"""Four packets, the last of which is short."""


def second_and_last(source: int, key: MessageKey, data: Values) -> Lost | None:
    """Lose two packets of every push."""
    return np.array([False, True, False, True]) if key.leg is Leg.PUSH else None


def pair(network: InProcessNetwork) -> tuple[InProcessEndpoint, InProcessEndpoint]:
    worker, server = network.endpoints.values()
    for endpoint in (worker, server):
        endpoint.declare(0, ELEMENTS, queue=2)
    return worker, server


@pytest.mark.parametrize("first", ["send", "receive"])
@pytest.mark.parametrize(
    ("placement", "held", "hole", "counted"),
    [
        (Placement.ZERO, 2.0, 0.0, [4, 0, 4, 0]),
        (Placement.KEEP, 2.0, 5.0, [4, 0, 4, 0]),
        (Placement.ADD, 7.0, 5.0, [5, 1, 5, 1]),
    ],
)
def test_lost__packets_leave_the_hole_that_the_placement_says(
    first: str, placement: Placement, held: float, hole: float, counted: list[int]
) -> None:
    worker, server = pair(InProcessNetwork(range(2), second_and_last))
    data, buffer = np.full(ELEMENTS, 2, np.float32), np.full(ELEMENTS, 5, np.float32)
    said, counts = np.full(4, 4, np.uint16), np.ones(4, np.uint16)
    for call in sorted(("send", "receive"), key=lambda name: name != first):
        if call == "send":
            worker.send(1, KEY, data, contributors=said)
        else:
            server.receive(0, KEY, buffer, placement=placement, contributors=counts)
    arrived = np.repeat([True, False, True, False], 360)[:ELEMENTS]
    np.testing.assert_array_equal(buffer, np.where(arrived, held, hole))
    assert counts.tolist() == counted
    (got,), (sent,) = server.wait(0), worker.wait(0)
    assert (got.received, got.bytes, got.delivered_bytes, got.lost_bytes) == (True, ELEMENTS * 4, 720 * 4, 400 * 4)
    assert got.lost_energy_share == pytest.approx(400 / ELEMENTS)
    assert (sent.received, sent.bytes, sent.lost_bytes) == (False, ELEMENTS * 4, 0)


def test_lost__without_energy_the_share_of_bytes_stands() -> None:
    worker, server = pair(InProcessNetwork(range(2), second_and_last))
    worker.send(1, KEY, np.full(ELEMENTS, np.inf, np.float32))
    server.receive(0, KEY, np.zeros(ELEMENTS, np.float32))
    assert server.wait(0)[0].lost_energy_share == pytest.approx(400 / ELEMENTS)


def test_lost__a_rule_of_other_packets_is_refused() -> None:
    worker, server = pair(InProcessNetwork(range(2), lambda source, key, data: np.zeros(3, np.bool_)))
    worker.send(1, KEY, np.zeros(ELEMENTS, np.float32))
    with pytest.raises(ValueError, match="names 3 packets of a message of 4"):
        server.receive(0, KEY, np.zeros(ELEMENTS, np.float32))


def test_wait__ends_with_nothing_in_time_or_with_the_peer_that_is_gone() -> None:
    worker, server = pair(InProcessNetwork(range(2)))
    worker.send(1, KEY, np.zeros(ELEMENTS, np.float32))
    assert worker.wait(0.001) == []
    server.close()
    with pytest.raises(TransportError, match="rank 0: rank 1 closed its end"):
        worker.wait(10)
    with pytest.raises(TransportError, match="rank 1 closed its end"):
        worker.send(1, MessageKey(4, 0, Leg.PUSH), np.zeros(ELEMENTS, np.float32))
    with pytest.raises(TransportError, match="rank 1: closed"):
        server.wait(10)


def test_ranks__that_are_not_there_are_named() -> None:
    worker, _ = pair(InProcessNetwork(range(2)))
    with pytest.raises(ValueError, match="rank 7 is not in this process"):
        worker.send(7, KEY, np.zeros(ELEMENTS, np.float32))
    server_key = MessageKey(3, 0, Leg.PULL)
    worker.receive(1, server_key, np.zeros(ELEMENTS, np.float32))
    with pytest.raises(ValueError, match="registered already"):
        worker.receive(1, server_key, np.zeros(ELEMENTS, np.float32))
