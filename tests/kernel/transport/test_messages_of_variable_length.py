"""Messages that are shorter than declared, alike over both transports."""

from __future__ import annotations

import numpy as np
import pytest
from loopback import TCP, ranks, take

from dlcp.transport.contract.endpoint import (
    Bound,
    Dtype,
    Endpoint,
    Leg,
    MessageKey,
    Placement,
    TransportError,
)
from dlcp.transport.contract.values import held_as, packets

MOST = 50_000
LENGTHS = [1, 40, 359, 360, 361, MOST, 1440, 1441, 2880, MOST // 20, 7, MOST - 1]
"""Over 20 times as long and as short again, from step to step."""
KEY = MessageKey(0, 0, Leg.PUSH)


@pytest.mark.parametrize("bound", [None, Bound(0.5)])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "bfloat16"])
def test_shorter__a_message_fills_what_it_has_and_tells_its_bytes(
    pair: list[Endpoint], dtype: Dtype, bound: Bound | None
) -> None:
    """Also where a bound is said, which does not hold of them, and on both legs. The first are sent early."""
    worker, server = pair
    random, kind = np.random.default_rng(3), held_as(dtype)
    size = kind.itemsize
    for endpoint in pair:
        endpoint.declare(0, MOST, queue=2, dtype=dtype, variable=True, push_bound=bound or Bound(0.0))
    sent = [random.integers(0, 100, length).astype(kind) for length in LENGTHS]
    buffers = [np.full(MOST, 7, kind) for _ in LENGTHS]
    for iteration, data in enumerate(sent):
        leg = Leg(iteration % 2)
        source, sink = pair if leg is Leg.PUSH else pair[::-1]
        key = MessageKey(iteration, 0, leg)
        if iteration < 4:
            source.send(pair.index(sink), key, data, bound=bound)
            sink.receive(pair.index(source), key, buffers[iteration], bound=bound)
        else:
            sink.receive(pair.index(source), key, buffers[iteration], bound=bound)
            source.send(pair.index(sink), key, data, bound=bound)
    completions = take(worker, len(LENGTHS)) + take(server, len(LENGTHS))
    for done in completions:
        told = LENGTHS[done.key.iteration] * size
        assert (done.bytes, done.delivered_bytes, done.lost_bytes) == (told, told, 0)
    assert len({(done.key, done.received) for done in completions}) == 2 * len(LENGTHS)
    for data, buffer in zip(sent, buffers, strict=True):
        np.testing.assert_array_equal(buffer[: data.size], data)
        assert (buffer[data.size :] == 7).all()


@pytest.mark.parametrize("placement", Placement)
@pytest.mark.parametrize("said", [True, False])
def test_shorter__contributors_are_told_of_its_packets_alone(
    pair: list[Endpoint], placement: Placement, said: bool
) -> None:
    worker, server = pair
    for endpoint in pair:
        endpoint.declare(0, 4 * 360 + 1, queue=2, variable=True)
    counts = np.full(packets(4 * 360 + 1), 10, np.uint16)
    buffer = np.full(4 * 360 + 1, 0.5, np.float32)
    contributors = np.array([5, 6, 7, 8, 9], np.uint16) if said else None
    server.receive(0, KEY, buffer, placement=placement, contributors=counts)
    worker.send(1, KEY, np.ones(400, np.float32), contributors=contributors)
    take(server, 1)
    adds = placement is Placement.ADD
    told = [5, 6] if said else [1, 1]
    assert counts.tolist() == ([told[0] + 10, told[1] + 10, 10, 10, 10] if adds else [*told, 0, 0, 0])
    assert buffer.tolist() == [1.5 if adds else 1.0] * 400 + [0.5] * (buffer.size - 400)


@pytest.mark.parametrize("size", [0, 101])
def test_shorter__neither_nothing_nor_more(pair: list[Endpoint], size: int) -> None:
    worker, _ = pair
    worker.declare(0, 100, queue=0, dtype="uint8", variable=True)
    with pytest.raises((ValueError, TransportError), match=f"has 100 contiguous uint8|tensor 0 with {size} elements"):
        worker.send(1, KEY, np.zeros(size, np.uint8))


@pytest.mark.parametrize("size", [99, 101])
def test_shorter__a_buffer_has_the_tensors_size(pair: list[Endpoint], size: int) -> None:
    _, server = pair
    server.declare(0, 100, queue=0, dtype="uint8", variable=True)
    with pytest.raises((ValueError, TransportError), match=f"has 100 contiguous uint8|tensor 0 with {size} elements"):
        server.receive(0, KEY, np.zeros(size, np.uint8))


def test_shorter__only_where_it_was_agreed() -> None:
    """Over DLCP: test_protocol_variable.py."""
    with ranks(TCP, 1, 1) as (worker, server):
        worker.declare(0, 100, queue=0, variable=True)
        server.declare(0, 100, queue=0)
        server.receive(0, KEY, np.zeros(100, np.float32))
        worker.send(1, KEY, np.zeros(40, np.float32))
        with pytest.raises(TransportError, match="carries 160 bytes, agreed were 400"):
            server.wait(5)
