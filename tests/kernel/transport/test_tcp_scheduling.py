"""P3 and ByteScheduler as a peer sees them on the wire: which slice comes when, and how much is under way."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import COOKIE, TCP, address, free_port, ranks, together

from dlcp import schemes
from dlcp.model.experiment import Scaling
from dlcp.model.transport.settings import TransportSettings
from dlcp.model.workload import Job, Profile
from dlcp.schemes.base import UnfitError
from dlcp.transport.contract.endpoint import Leg, MessageKey, TransportError
from dlcp.transport.tcp.connection import CAME, FRAME
from dlcp.transport.tcp.endpoint import TcpEndpoint
from dlcp.transport.tcp.handshake import HELLO, MAGIC, VERSION
from dlcp.transport.tcp.send_queue import CreditWindow, Outbox, Outgoing, front_first

P3 = TCP.model_copy(update={"tcp_priority": True, "tcp_low_water_bytes": 16_000})
CREDIT_BYTES = 100_000
BYTESCHEDULER = TCP.model_copy(update={"tcp_priority": True, "tcp_credit_bytes": CREDIT_BYTES})
ELEMENTS = 10_000
BIG_ELEMENTS = 1_000_000
"""More than two small socket buffers hold."""


@contextmanager
def sender_and_wire(settings: TransportSettings, *elements: int) -> Iterator[tuple[TcpEndpoint, socket.socket]]:
    """Rank 1, whose tensors have so many elements, and the bare socket of its peer, rank 0, with a small buffer."""
    port = free_port()

    def wire() -> socket.socket:
        deadline_s = time.monotonic() + 5
        while True:
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
            sock.settimeout(10)
            try:
                sock.connect((address(1), port))
                break
            except ConnectionRefusedError:
                sock.close()
                assert time.monotonic() < deadline_s
                time.sleep(0.02)
        sock.sendall(HELLO.pack(MAGIC, VERSION, 0, COOKIE))
        assert len(sock.recv(HELLO.size)) == HELLO.size
        return sock

    def sender() -> TcpEndpoint:
        return TcpEndpoint(1, address(1), port, {0: (address(0), port)}, settings, job_cookie=COOKIE, connects_to=())

    endpoint, sock = together([sender, wire])
    for tensor, count in enumerate(elements):
        endpoint.declare(tensor, count, queue=0)
    try:
        with sock:
            yield endpoint, sock
    finally:
        endpoint.close()


def send(endpoint: TcpEndpoint, tensor: int, elements: int, *, iteration: int = 0, leg: Leg = Leg.PUSH) -> None:
    endpoint.send(0, MessageKey(iteration, tensor, leg), np.zeros(elements, np.float32))


def read(sock: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = sock.recv(min(65_536, size - len(found)))
        assert part, "the sender hung up"
        found += part
    return found


def next_frame(sock: socket.socket) -> tuple[int, int]:
    """Iteration and tensor of the next message, its payload read."""
    _, _, _, iteration, tensor, size = FRAME.unpack(read(sock, FRAME.size))
    read(sock, size)
    return iteration, tensor


def came(sock: socket.socket, tensor: int) -> None:
    sock.sendall(FRAME.pack(Leg.PUSH + CAME, 0, 0, 0, tensor, 0))


def silent(sock: socket.socket) -> bool:
    """Nothing comes for a while."""
    return not select.select([sock], [], [], 0.1)[0]


def test_p3__of_the_slices_that_wait_the_front_goes_first_and_what_has_begun_goes_on() -> None:
    sizes = [ELEMENTS] * 5 + [BIG_ELEMENTS]
    with sender_and_wire(P3, *sizes) as (endpoint, sock):
        send(endpoint, 5, BIG_ELEMENTS)
        assert select.select([sock], [], [], 10)[0], "the last layer's gradient is ready first, and has begun"
        for tensor in (4, 2, 3, 0, 1):
            send(endpoint, tensor, ELEMENTS)
        assert [next_frame(sock)[1] for _ in range(6)] == [5, 0, 1, 2, 3, 4]


def test_p3__the_older_iteration_goes_before_a_front_layer() -> None:
    sizes = [ELEMENTS] * 3 + [BIG_ELEMENTS]
    with sender_and_wire(P3, *sizes) as (endpoint, sock):
        send(endpoint, 3, BIG_ELEMENTS, leg=Leg.PULL)
        assert select.select([sock], [], [], 10)[0]
        for iteration, tensor in ((1, 0), (0, 2), (0, 1), (1, 1)):
            send(endpoint, tensor, ELEMENTS, iteration=iteration, leg=Leg.PULL)
        assert [next_frame(sock) for _ in range(5)] == [(0, 3), (0, 1), (0, 2), (1, 0), (1, 1)]


def test_bytescheduler__what_is_under_way_never_exceeds_the_credit_and_the_front_gets_what_comes_free() -> None:
    with sender_and_wire(BYTESCHEDULER, *[ELEMENTS] * 6) as (endpoint, sock):
        for tensor in (5, 4, 3, 2, 1, 0):
            send(endpoint, tensor, ELEMENTS)  # 40 kB each: two fit
        assert {next_frame(sock)[1] for _ in range(2)} == {5, 4}, "the first ones found the credit free"
        for acknowledged, expected in ((4, 0), (5, 1), (0, 2), (1, 3)):
            assert silent(sock)
            came(sock, acknowledged)
            assert next_frame(sock)[1] == expected
        assert endpoint.statistics()["most_under_way_bytes"] == 2 * 4 * ELEMENTS <= CREDIT_BYTES


def test_bytescheduler__parameters_wait_for_no_credit() -> None:
    with sender_and_wire(BYTESCHEDULER, *[ELEMENTS] * 4) as (endpoint, sock):
        for tensor in range(4):
            send(endpoint, tensor, ELEMENTS, leg=Leg.PULL)
        assert [next_frame(sock)[1] for _ in range(4)] == [0, 1, 2, 3]


def test_bytescheduler__a_receiver_gives_the_credit_back() -> None:
    count = 40
    buffers = [np.zeros(ELEMENTS, np.float32) for _ in range(count)]
    with ranks(BYTESCHEDULER, 1, 1) as (worker, server):
        for endpoint in (worker, server):
            for tensor in range(count):
                endpoint.declare(tensor, ELEMENTS, queue=0)
        for tensor, buffer in enumerate(buffers):
            server.receive(0, MessageKey(0, tensor, Leg.PUSH), buffer)
        for tensor in range(count):
            worker.send(1, MessageKey(0, tensor, Leg.PUSH), np.full(ELEMENTS, tensor, np.float32))
        found = 0
        deadline_s = time.monotonic() + 20
        while found < count:
            assert time.monotonic() < deadline_s
            found += len(server.wait(0.2))
        assert 0 < worker.statistics()["most_under_way_bytes"] <= CREDIT_BYTES
    assert [buffer[-1] for buffer in buffers] == list(range(count))


def test_bytescheduler__credit_for_what_was_never_sent_ends_the_connection() -> None:
    with sender_and_wire(BYTESCHEDULER, ELEMENTS) as (endpoint, sock):
        endpoint.receive(0, MessageKey(0, 0, Leg.PULL), np.zeros(ELEMENTS, np.float32))
        came(sock, 0)
        with pytest.raises(TransportError, match="has come, which was not under way"):
            endpoint.wait(5)


def test_bytescheduler__credit_that_carries_bytes_ends_the_connection() -> None:
    with sender_and_wire(BYTESCHEDULER, ELEMENTS) as (endpoint, sock):
        endpoint.receive(0, MessageKey(0, 0, Leg.PULL), np.zeros(ELEMENTS, np.float32))
        sock.sendall(FRAME.pack(Leg.PUSH + CAME, 0, 0, 0, 0, 8))
        with pytest.raises(TransportError, match="a frame that says what has come carries 8 bytes"):
            endpoint.wait(5)


def outgoing(tensor: int, size: int) -> Outgoing:
    return Outgoing(MessageKey(0, tensor, Leg.PUSH), [memoryview(bytes(16)), memoryview(bytes(size))], size, 0.0)


@given(st.lists(st.one_of(st.integers(0, 5), st.integers(1, 300).map(lambda count: -count)), max_size=40))
def test_outbox__takes_all_bytes_in_order_and_interrupts_nothing(steps: list[int]) -> None:
    """A step is a message of a tensor handed over, or so many bytes taken by the kernel."""
    box = Outbox(front_first)
    size_bytes = {tensor: 16 + 40 * tensor + 1 for tensor in range(6)}
    stream: list[int] = []
    added = taken = 0
    for step in steps:
        if step >= 0:
            box.add(outgoing(step, size_bytes[step] - 16))
            added += size_bytes[step]
            continue
        count = min(-step, sum(len(part) for part in box.parts(100)))
        expected = [message.key.tensor for message in box]
        assert expected[1:] == sorted(expected[1:])
        stream += [message.key.tensor for message in box.sent(count)]
        taken += count
        left = sum(len(part) for message in box for part in message.parts)
        assert added == taken + left
        assert taken >= sum(size_bytes[tensor] for tensor in stream)
    assert sum(message.begun for message in box) <= 1


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 120)), max_size=30), st.randoms(use_true_random=False))
def test_credit__is_kept_whatever_comes_in_which_order(messages: list[tuple[int, int]], random: object) -> None:
    """Peers say in any order what has come; in the end everything has gone, a message above the credit alone."""
    window = CreditWindow(100, front_first)
    under_way: dict[tuple[int, MessageKey], int] = {}
    gone = 0

    def go(free: list[tuple[int, Outgoing]]) -> None:
        nonlocal gone
        for peer, message in free:
            under_way[peer, message.key] = message.size_bytes
            gone += 1
            assert sum(under_way.values()) <= 100 or len(under_way) == 1

    for number, (peer, size) in enumerate(messages):
        go(window.add(peer, outgoing(number, size)))
        if under_way and random.random() < 0.5:  # type: ignore[attr-defined]
            name = random.choice(sorted(under_way, key=str))  # type: ignore[attr-defined]
            del under_way[name]
            go(window.came(*name))
    while under_way:
        name = next(iter(under_way))
        del under_way[name]
        go(window.came(*name))
    assert gone == len(messages)


SCALING = Scaling(lab_rate="10 Gbit/s", byte_scale=100)
JOB = Job(workload="model", workers=("h1", "h2"), servers=("h3",), iterations=10, bucket="40 kB")
MODEL = Profile(
    kind="profile",
    name="model",
    source="made up",
    source_quality="derived",
    device="none",
    batch=1,
    parameters=1,
    layers=({"name": "only", "parameters": 1, "forward": 0.0, "backward": 0.0},),
)


def settings_of(name: str, **knobs: object) -> TransportSettings:
    return schemes.scheme_class(name).model_validate(knobs).for_job(JOB, MODEL).transport(SCALING)


def test_schemes__knobs_reach_the_transport() -> None:
    plain = settings_of("p3")
    assert (plain.tcp_priority, plain.tcp_credit_bytes, plain.partition_bytes) == (True, 0, 0)
    assert settings_of("p3", slice="10 kB", low_water="8 kB").partition_bytes == 10_000
    assert settings_of("bytescheduler").tcp_credit_bytes == 160_000
    tuned = settings_of("bytescheduler", partition="10 kB", credit="30 kB")
    assert (tuned.tcp_priority, tuned.tcp_credit_bytes, tuned.partition_bytes) == (True, 30_000, 10_000)
    assert schemes.scheme_class("p3")().hosts(SCALING).rto_min_s == pytest.approx(0.005), "over tuned TCP"


def test_schemes__a_credit_below_a_partition_and_a_ring_for_p3_are_refused() -> None:
    with pytest.raises(UnfitError, match="credit: 40000 B hold no partition, of 40000 B"):
        settings_of("bytescheduler", credit="40 kB")
    ring = JOB.model_copy(update={"servers": (), "pattern": "ring"})
    with pytest.raises(UnfitError, match="job of model is a ring"):
        schemes.scheme_class("p3")().for_job(ring, MODEL)
    assert schemes.scheme_class("bytescheduler")().for_job(ring, MODEL).transport(SCALING).tcp_priority
