"""Kernel TCP behind the Endpoint protocol: framing, admission of peers, and what happens when one goes away."""

from __future__ import annotations

import socket
import time

import numpy as np
import pytest
from loopback import CONGESTION_CONTROL, COOKIE, TCP, address, free_port, ranks, take, together

from dlcp.model.transport.settings import TransportSettings
from dlcp.transport.contract.endpoint import (
    RELIABLE,
    Bound,
    Dtype,
    Endpoint,
    Leg,
    MessageKey,
    Placement,
    TransportError,
    Values,
)
from dlcp.transport.tcp.connection import FRAME
from dlcp.transport.tcp.endpoint import TcpEndpoint
from dlcp.transport.tcp.handshake import HELLO, MAGIC, VERSION

SETTINGS = TCP
PUSH0 = MessageKey(0, 0, Leg.PUSH)


def declare(endpoints: list[Endpoint], *elements: int) -> None:
    for endpoint in endpoints:
        for tensor, count in enumerate(elements):
            endpoint.declare(tensor, count, queue=0, droppable=False, must_arrive=False)


def open_server(port: int, *, timeout_s: float = 5.0, settings: TransportSettings = SETTINGS) -> TcpEndpoint:
    """Rank 1, which waits for rank 0 to connect."""
    peers = {0: (address(0), port)}
    return TcpEndpoint(
        1, address(1), port, peers, settings, job_cookie=COOKIE, connects_to=(), connect_timeout_s=timeout_s
    )


def raw_client(port: int, hello: bytes) -> socket.socket:
    """A connection to rank 1 that says `hello`; tries until rank 1 listens."""
    deadline_s = time.monotonic() + 5
    while True:
        try:
            sock = socket.create_connection((address(1), port), timeout=5)
            sock.sendall(hello)
            return sock
        except ConnectionRefusedError:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)


def test_messages__arrive_whole_in_registered_buffers() -> None:
    random = np.random.default_rng(1)
    sizes = [1, 359, 360, 50_000, 700_001]
    data = [random.standard_normal(size, np.float32) for size in sizes]
    buffers = [np.full(size, np.nan, np.float32) for size in sizes]
    with ranks(SETTINGS, 1, 1) as (worker, server):
        declare([worker, server], *sizes)
        for tensor, buffer in enumerate(buffers):
            server.receive(0, MessageKey(3, tensor, Leg.PUSH), buffer)
        before_s = time.monotonic()
        for tensor in reversed(range(len(sizes))):
            worker.send(1, MessageKey(3, tensor, Leg.PUSH), data[tensor])
        received = take(server, len(sizes))
        sent = take(worker, len(sizes))
    assert [c.key.tensor for c in received] == [4, 3, 2, 1, 0], "first in, first out"
    for tensor, size in enumerate(sizes):
        np.testing.assert_array_equal(buffers[tensor], data[tensor])
        completion = next(c for c in received if c.key.tensor == tensor)
        assert (completion.peer, completion.received, completion.bytes) == (0, True, size * 4)
        assert completion.delivered_bytes == size * 4
        assert before_s <= completion.end_s <= time.monotonic()
    assert all(not c.received and c.peer == 1 for c in sent)


def test_receive__registered_after_the_message_came_still_gets_it() -> None:
    data = np.arange(100_000, dtype=np.float32)
    buffer = np.zeros_like(data)
    with ranks(SETTINGS, 1, 1) as (worker, server):
        declare([worker, server], data.size)
        worker.send(1, PUSH0, data)
        assert server.wait(0.2) == []
        server.receive(0, PUSH0, buffer)
        take(server, 1)
    np.testing.assert_array_equal(buffer, data)


def test_both_directions__at_once() -> None:
    data = np.arange(300_000, dtype=np.float32)
    up, down = np.zeros_like(data), np.zeros_like(data)
    pull = MessageKey(0, 0, Leg.PULL)
    with ranks(SETTINGS, 1, 1) as (worker, server):
        declare([worker, server], data.size)
        server.receive(0, PUSH0, up)
        worker.receive(1, pull, down)
        worker.send(1, PUSH0, data)
        server.send(0, pull, data)
        together([lambda: take(worker, 2), lambda: take(server, 2)])
    np.testing.assert_array_equal(up, data)
    np.testing.assert_array_equal(down, data)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_placement__add_sums_in_the_dtype_keep_and_zero_overwrite(dtype: Dtype) -> None:
    """Small whole numbers, which every dtype holds exactly."""
    held, arrives = as_dtype(np.arange(1000) % 50, dtype), as_dtype(np.arange(1000) % 7, dtype)
    for placement, expected in (
        (Placement.ADD, as_dtype(np.arange(1000) % 50 + np.arange(1000) % 7, dtype)),
        (Placement.KEEP, arrives),
        (Placement.ZERO, arrives),
    ):
        buffer = held.copy()
        with ranks(SETTINGS, 1, 1) as (worker, server):
            for endpoint in (worker, server):
                endpoint.declare(0, 1000, queue=0, dtype=dtype, push_bound=Bound(0.1))
            server.receive(0, PUSH0, buffer, placement=placement, bound=RELIABLE)
            worker.send(1, PUSH0, arrives, bound=RELIABLE)
            (found,) = take(server, 1)
        np.testing.assert_array_equal(buffer, expected)
        assert (found.bytes, found.lost_bytes, found.lost_energy_share) == (arrives.nbytes, 0, 0.0)


@pytest.mark.parametrize("told", [True, False], ids=["told", "not-told"])
def test_contributors__travel_with_the_message(told: bool) -> None:
    """Of a sender that says nothing, each packet holds one rank's values."""
    data, said = np.ones(1000, np.float32), np.array([3, 1, 2], np.uint16)
    added, put = np.array([1, 2, 3], np.uint16), np.array([9, 9, 9], np.uint16)
    with ranks(SETTINGS, 1, 1) as (worker, server):
        declare([worker, server], 1000, 1000, 1000)
        server.receive(0, PUSH0, np.zeros_like(data), placement=Placement.ADD, contributors=added)
        server.receive(0, MessageKey(0, 1, Leg.PUSH), np.zeros_like(data), contributors=put)
        server.receive(0, MessageKey(0, 2, Leg.PUSH), np.zeros_like(data))
        for tensor in range(3):
            worker.send(1, MessageKey(0, tensor, Leg.PUSH), data, contributors=said if told else None)
        take(server, 3)
    np.testing.assert_array_equal(put, said if told else [1, 1, 1])
    np.testing.assert_array_equal(added, np.array([1, 2, 3]) + (said if told else 1))


def test_steps__tell_messages_of_one_leg_apart() -> None:
    buffers = [np.zeros(10, np.float32) for _ in range(2)]
    with ranks(SETTINGS, 1, 1) as (worker, server):
        declare([worker, server], 10)
        for step, buffer in enumerate(buffers):
            server.receive(0, MessageKey(0, 0, Leg.PUSH, step), buffer)
        for step in (1, 0):
            worker.send(1, MessageKey(0, 0, Leg.PUSH, step), np.full(10, step + 1, np.float32))
        assert [c.key.step for c in take(server, 2)] == [1, 0]
    assert [buffer[0] for buffer in buffers] == [1, 2]


def as_dtype(whole: np.ndarray, dtype: Dtype) -> Values:
    """Whole numbers below 256 in a tensor's dtype; bfloat16 is the upper half of float32."""
    if dtype == "bfloat16":
        return (whole.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return whole.astype(dtype)


def test_statistics__count_payload_and_framing() -> None:
    data = np.ones(1000, np.float32)
    with ranks(SETTINGS, 1, 1) as (worker, server):
        declare([worker, server], data.size)
        server.receive(0, PUSH0, np.zeros_like(data))
        worker.send(1, PUSH0, data)
        take(server, 1)
        take(worker, 1)  # its own end of the message: until then the last bytes may not be in its account
        found = worker.statistics()
        assert found["sent_bytes"] == 4000 + FRAME.size
        assert server.statistics()["received_bytes"] == 4000 + FRAME.size
        assert found["connections"]["1"]["wire_sent_bytes"] == 4000 + FRAME.size + HELLO.size
        assert found["connections"]["1"]["rto_s"] > 0
        assert found["congestion_control"] == CONGESTION_CONTROL


def test_peer_death__names_rank_and_tensor() -> None:
    with ranks(SETTINGS, 2, 1) as (gone, alive, server):
        declare([gone, alive, server], 10)
        for peer in (0, 1):
            server.receive(peer, PUSH0, np.zeros(10, np.float32))
        gone.close()
        with pytest.raises(TransportError, match=r"rank 0 is gone .*tensor 0 \(push of iteration 0\)"):
            server.wait(5)


def test_peer_death__is_no_error_while_nothing_is_owed() -> None:
    data = np.ones(10, np.float32)
    with ranks(SETTINGS, 2, 1) as (done, alive, server):
        declare([done, alive, server], 10)
        done.close()
        server.receive(1, PUSH0, np.zeros_like(data))
        alive.send(2, PUSH0, data)
        assert [c.peer for c in take(server, 1)] == [1]
        with pytest.raises(TransportError, match="rank 0 is gone"):
            server.receive(0, PUSH0, np.zeros_like(data))


@pytest.mark.parametrize(
    "hello",
    [
        HELLO.pack(MAGIC, VERSION, 0, COOKIE ^ 1),
        HELLO.pack(b"HTTP", VERSION, 0, COOKIE),
        HELLO.pack(MAGIC, VERSION + 1, 0, COOKIE),
        HELLO.pack(MAGIC, VERSION, 7, COOKIE),
        b"",
    ],
    ids=["cookie", "magic", "version", "rank", "silent"],
)
def test_hello__a_stranger_is_hung_up_on_and_the_peer_still_gets_in(hello: bytes) -> None:
    port = free_port()

    def stranger_then_peer() -> TcpEndpoint:
        with raw_client(port, hello) as stranger:
            if hello:
                assert stranger.recv(1) == b"", "a stranger is told nothing"
            peers = {1: (address(1), port)}
            return TcpEndpoint(0, address(0), port, peers, SETTINGS, job_cookie=COOKIE, connects_to=(1,))

    server, worker = together([lambda: open_server(port), stranger_then_peer])
    rejected = server.statistics()["rejected_connections"]
    worker.close()
    server.close()
    assert rejected == (1 if hello else 0)


def test_open__names_the_ranks_that_do_not_come() -> None:
    with pytest.raises(TransportError, match="no connection from rank 0 in time"):
        open_server(free_port(), timeout_s=0.2)


def test_open__a_worker_with_another_cookie_is_told_so() -> None:
    port = free_port()

    def wrong_worker() -> None:
        peers = {1: (address(1), port)}
        with pytest.raises(TransportError, match="rank 1 hung up on our hello"):
            TcpEndpoint(0, address(0), port, peers, SETTINGS, job_cookie=1, connects_to=(1,), connect_timeout_s=3)

    def lonely_server() -> None:
        with pytest.raises(TransportError, match=r"rank 0 in time \(1 connections rejected\)"):
            open_server(port, timeout_s=1.5)

    together([lonely_server, wrong_worker])


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (FRAME.pack(0, 0, 0, 0, 0, 41), "carries 41 bytes, agreed were 40"),
        (FRAME.pack(0, 0, 0, 0, 0, 2**32 - 1), "carries 4294967295 bytes"),
        (FRAME.pack(0, 0, 0, 0, 9, 40), "tensor 9"),
        (FRAME.pack(5, 0, 0, 0, 0, 40), "leg 5"),
        (FRAME.pack(0, 2, 0, 0, 0, 40), "says 2 where"),
        (FRAME.pack(0, 0, 0, 0, 0, 40) + bytes(20), "closed the connection"),
        (FRAME.pack(0, 0, 0, 0, 0, 40)[:7], "closed the connection"),
    ],
    ids=["length", "huge", "tensor", "leg", "contributors", "truncated-payload", "truncated-header"],
)
def test_frames__what_a_peer_must_not_send_ends_its_connection(frame: bytes, reason: str) -> None:
    port = free_port()

    def misbehave() -> None:
        with raw_client(port, HELLO.pack(MAGIC, VERSION, 0, COOKIE)) as client:
            assert len(client.recv(HELLO.size)) == HELLO.size
            time.sleep(0.1)
            client.sendall(frame)

    def serve() -> None:
        server = open_server(port)
        try:
            declare([server], 10)
            server.receive(0, PUSH0, np.zeros(10, np.float32))
            with pytest.raises(TransportError, match=reason):
                server.wait(5)
        finally:
            server.close()

    together([serve, misbehave])


def test_ecn__asked_for_but_not_negotiated_is_an_error() -> None:
    """Nothing falls back silently. Whatever this machine's tcp_ecn is, one of the two settings does not hold."""
    wanted = [TCP.model_copy(update={"tcp_ecn": ecn}) for ecn in (False, True)]
    failures = []
    for settings in wanted:
        try:
            with ranks(settings, 1, 1):
                pass
        except TransportError as error:
            failures.append(str(error))
    assert len(failures) == 1
    assert "net.ipv4.tcp_ecn" in failures[0]


def test_source_ports__follow_from_the_cookie() -> None:
    """Paired runs meet the same flow-hash paths: the same cookie gives the same source port."""

    def source_port(cookie: int) -> int:
        port = free_port()

        def accept() -> int:
            with socket.create_server((address(1), port)) as listener:
                listener.settimeout(5)
                client, (_, found) = listener.accept()
                with client:
                    client.sendall(HELLO.pack(MAGIC, VERSION, 1, cookie))
                    return int(found)

        def connect() -> None:
            peers = {1: (address(1), port)}
            TcpEndpoint(0, address(0), port, peers, SETTINGS, job_cookie=cookie, connects_to=(1,)).close()

        return int(together([accept, connect])[0])

    assert source_port(1) == source_port(1) != source_port(2)


def test_send__wrong_arrays_are_refused() -> None:
    with ranks(SETTINGS, 1, 1) as (worker, server):
        declare([worker, server], 10)
        with pytest.raises(ValueError, match="was not declared"):
            worker.send(1, MessageKey(0, 1, Leg.PUSH), np.zeros(10, np.float32))
        for wrong in (np.zeros(11, np.float32), np.zeros(10, np.float64), np.zeros(20, np.float32)[::2]):
            with pytest.raises(ValueError, match="contiguous float32"):
                worker.send(1, PUSH0, wrong)  # type: ignore[arg-type]
