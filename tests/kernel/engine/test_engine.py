"""The engine with real sockets on loopback."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from waits import wait_until

from dlcp.model.transport.settings import TransportSettings
from dlcp.transport._native import ffi, lib
from dlcp.transport.contract.endpoint import (
    Bound,
    Completion,
    Deadline,
    Droppable,
    Dtype,
    Floats,
    Leg,
    MessageKey,
    Placement,
    TransportError,
)
from dlcp.transport.dlcp_endpoint import DlcpEndpoint

ELEMENTS = 50_000
LOOPBACK = "127.0.0.1"


def endpoint(rank: int, *, link_rate_bps: float = 1e9, **options: object) -> DlcpEndpoint:
    settings = TransportSettings(kind="dlcp")
    return DlcpEndpoint(rank, LOOPBACK, 0, {}, settings, job_cookie=77, link_rate_bps=link_rate_bps, **options)  # type: ignore[arg-type]


def introduce(*endpoints: DlcpEndpoint) -> None:
    for one in endpoints:
        for other in endpoints:
            if one is not other:
                one.add_peer(other.rank, LOOPBACK, other.port)
        one.declare(0, ELEMENTS, queue=3, droppable=Droppable.SMALL)


@pytest.fixture
def pair() -> Iterator[tuple[DlcpEndpoint, DlcpEndpoint]]:
    with endpoint(0) as a, endpoint(1) as b:
        introduce(a, b)
        yield a, b


def values(seed: int) -> Floats:
    return np.random.default_rng(seed).normal(size=ELEMENTS).astype(np.float32)


def move(a: DlcpEndpoint, b: DlcpEndpoint, iteration: int = 0) -> tuple[Floats, Floats, Completion, Completion]:
    """One message from a to b; what was sent, what came, and both completions."""
    key = MessageKey(iteration, 0, Leg.PUSH)
    sent, got = values(iteration), np.full(ELEMENTS, np.nan, np.float32)
    b.receive(a.rank, key, got)
    a.send(b.rank, key, sent)
    (received,), (finished,) = b.wait(10), a.wait(10)
    return sent, got, received, finished


def test_what_is_sent_arrives_bit_by_bit(pair: tuple[DlcpEndpoint, DlcpEndpoint]) -> None:
    for iteration in range(20):
        sent, got, received, finished = move(*pair, iteration)
        assert sent.tobytes() == got.tobytes()
        assert (received.received, received.delivered_bytes, received.lost_bytes) == (True, ELEMENTS * 4, 0)
        assert (finished.received, finished.bytes) == (False, ELEMENTS * 4)
        assert finished.start_s <= received.end_s <= finished.end_s <= time.monotonic()


# R94
def test_statistics_tell_that_the_bytes_went_over_dlcp(pair: tuple[DlcpEndpoint, DlcpEndpoint]) -> None:
    move(*pair)
    sender, receiver = pair[0].statistics(), pair[1].statistics()
    assert sender["data_bytes_sent"] - sender["bytes_resent"] == ELEMENTS * 4
    assert receiver["data_bytes_received"] >= ELEMENTS * 4
    assert sender["segmentation_errno"] == 0
    assert sender["segmented_bursts"] > 0
    assert sender["peers"][1]["min_rtt_ns"] > 0
    assert receiver["receive_buffer_bytes"] > 0


def test_every_dtype_is_summed_into_the_buffer_with_its_contributors(pair: tuple[DlcpEndpoint, DlcpEndpoint]) -> None:
    a, b = pair
    dtypes: list[tuple[Dtype, object]] = [("float32", np.float32), ("float16", np.float16), ("bfloat16", np.uint16)]
    for tensor, (dtype, held) in enumerate(dtypes, 1):
        for one in pair:
            one.declare(tensor, 1000, queue=3, dtype=dtype)
        packets = 3 if dtype == "float32" else 2
        two, three = (0x4000, 0x4040) if dtype == "bfloat16" else (2, 3)
        key = MessageKey(9, tensor, Leg.PUSH, step=3)
        got, got_counts = np.full(1000, two, held), np.full(packets, 4, np.uint16)  # type: ignore[call-overload]
        b.receive(0, key, got, placement=Placement.ADD, contributors=got_counts)
        a.send(1, key, np.full(1000, two // 2 if dtype != "bfloat16" else 0x3F80, held), contributors=got_counts // 2)  # type: ignore[call-overload]
        (received,), (sent,) = b.wait(10), a.wait(10)
        assert received.key == sent.key == key
        assert (got == three).all()
        assert got_counts.tolist() == [6] * packets


# R48
def test_a_message_may_have_a_bound_of_its_own(pair: tuple[DlcpEndpoint, DlcpEndpoint]) -> None:
    """Everything may be missing, so the message is over as soon as its sender says that it has sent all."""
    a, b = pair
    key, bound = MessageKey(0, 0, Leg.PUSH), Bound(1.0, 0.5)
    b.receive(0, key, np.empty(ELEMENTS, np.float32), bound=bound)
    a.send(1, key, values(0), bound=bound)
    (received,) = b.wait(10)
    assert 0 <= received.lost_energy_share <= 0.5


def test_arrays_of_another_kind_are_refused(pair: tuple[DlcpEndpoint, DlcpEndpoint]) -> None:
    a, _ = pair
    key = MessageKey(0, 0, Leg.PUSH)
    with pytest.raises(ValueError, match="contiguous float32"):
        a.send(1, key, np.zeros(ELEMENTS, np.float16))
    with pytest.raises(ValueError, match="139 packets"):
        a.send(1, key, values(0), contributors=np.ones(138, np.uint16))
    frozen = values(0)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        a.receive(1, key, frozen)


# R94
def test_without_segmentation_it_works_the_same() -> None:
    with endpoint(0, segmentation=False) as a, endpoint(1) as b:
        introduce(a, b)
        sent, got, _, _ = move(a, b)
        assert sent.tobytes() == got.tobytes()
        assert a.statistics()["segmented_bursts"] == 0


def test_several_senders_and_both_legs_at_once() -> None:
    with endpoint(0) as server, endpoint(1) as one, endpoint(2) as two, endpoint(3) as three:
        workers = (one, two, three)
        introduce(server, *workers)
        push, pull = MessageKey(0, 0, Leg.PUSH), MessageKey(0, 0, Leg.PULL)
        pushed = {w.rank: np.empty(ELEMENTS, np.float32) for w in workers}
        pulled = {w.rank: np.empty(ELEMENTS, np.float32) for w in workers}
        for worker in workers:
            server.receive(worker.rank, push, pushed[worker.rank])
            worker.receive(0, pull, pulled[worker.rank])
        for worker in workers:
            worker.send(0, push, values(worker.rank))
            server.send(worker.rank, pull, values(100))
        ends = [sum(len(e.wait(10)) for _ in range(n)) for e, n in ((server, 1),)]
        deadline = time.monotonic() + 10
        while ends[0] < 6 and time.monotonic() < deadline:
            ends[0] += len(server.wait(1))
        left = {w.rank: 2 for w in workers}
        while any(left.values()) and time.monotonic() < deadline:
            for worker in workers:
                left[worker.rank] -= len(worker.wait(0.05)) if left[worker.rank] else 0
        assert ends == [6]
        assert not any(left.values())
        for worker in workers:
            assert np.array_equal(pushed[worker.rank], values(worker.rank))
            assert np.array_equal(pulled[worker.rank], values(100))


def test_a_peer_that_is_gone_ends_in_a_bounded_error_that_names_it() -> None:
    with endpoint(0, silence_s=0.4, first_contact_s=0.8) as a:
        b = endpoint(1)
        introduce(a, b)
        move(a, b)
        b.close()
        a.receive(1, MessageKey(7, 0, Leg.PULL), np.empty(ELEMENTS, np.float32))
        with pytest.raises(
            TransportError, match=r"rank 1 is gone.*tensor 0 of iteration 7 \(pull\): 139 of 139 packets"
        ):
            a.wait(5)


def test_who_is_gone_is_named_again_whatever_failed_since() -> None:
    with endpoint(0, silence_s=0.2, first_contact_s=0.2) as a:
        a.add_peer(1, LOOPBACK, 9)
        a.declare(0, ELEMENTS, queue=3, droppable=Droppable.SMALL)
        a.send(1, MessageKey(0, 0, Leg.PUSH), values(0))
        with pytest.raises(TransportError, match="rank 1 is gone"):
            a.wait(5)
        with pytest.raises(TransportError, match="rank 9"):
            a.send(9, MessageKey(0, 0, Leg.PUSH), values(0))
        with pytest.raises(TransportError, match="rank 1 is gone"):
            a.send(1, MessageKey(1, 0, Leg.PUSH), values(0))
        with pytest.raises(TransportError, match="rank 9"):
            a.receive(9, MessageKey(0, 0, Leg.PUSH), values(0))
        with pytest.raises(TransportError, match="rank 1 is gone"):
            a.wait(0)


def test_a_peer_that_is_refused_changes_nothing(pair: tuple[DlcpEndpoint, DlcpEndpoint]) -> None:
    with pytest.raises(TransportError, match="rank 1 cannot be added"):
        pair[0].add_peer(1, LOOPBACK, 9)
    sent, got, _, _ = move(*pair)
    assert sent.tobytes() == got.tobytes()


def test_a_wait_that_runs_out_is_empty_and_can_say_what_is_missing(pair: tuple[DlcpEndpoint, DlcpEndpoint]) -> None:
    pair[1].receive(0, MessageKey(3, 0, Leg.PUSH), np.empty(ELEMENTS, np.float32))
    assert pair[1].wait(0.05) == []
    assert "rank 0: tensor 0 of iteration 3 (push): 139 of 139 packets have not arrived" in pair[1].pending()


# R98, R108
def test_strangers_and_garbage_change_nothing(pair: tuple[DlcpEndpoint, DlcpEndpoint]) -> None:
    a, b = pair
    key = MessageKey(0, 0, Leg.PUSH)
    got = np.zeros(ELEMENTS, np.float32)
    b.receive(0, key, got)
    header = ffi.new("struct dlcp_header *", {"type": lib.DLCP_DATA, "cookie": 77, "count": 360})
    out = ffi.new("uint8_t[]", lib.DLCP_HEADER_BYTES)
    lib.dlcp_header_encode(header, out)
    forged = ffi.buffer(out)[:] + b"\xff" * 1440
    numbers = np.random.default_rng(5)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        to = (LOOPBACK, b.port)
        for _ in range(50):
            stranger.sendto(forged, to)  # right cookie, wrong address
            stranger.sendto(numbers.bytes(numbers.integers(0, 2000)), to)
            stranger.sendto(forged[: numbers.integers(0, 32)], to)
    wait_until(lambda: b.statistics()["strange_address"] >= 50, "what strangers sent has come")
    assert not got.any()
    sent = values(1)
    a.send(1, key, sent)
    b.wait(10)
    assert np.array_equal(got, sent)
    statistics = b.statistics()
    assert statistics["strange_address"] >= 50
    assert statistics["packets_malformed"] + statistics["truncated"] > 0


# R96
def test_on_a_slow_link_the_thread_lets_two_packets_gather() -> None:
    nap_s = 2 * lib.DLCP_DATAGRAM_BYTES * 8 / 100e6
    with endpoint(0, link_rate_bps=100e6) as a, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        before, begun = a.statistics()["wakeups"], time.monotonic()
        for _ in range(5000):  # far more of them than naps
            stranger.sendto(b"", (LOOPBACK, a.port))
        wakeups = a.statistics()["wakeups"] - before
        took_s = time.monotonic() - begun
    # the end of a nap, and the datagram that comes when a nap has found none
    assert 0 < wakeups <= 2 * took_s / nap_s + 5


# R10
def test_another_job_is_refused() -> None:
    with endpoint(0) as a, endpoint(1) as b:
        introduce(a, b)
        other = DlcpEndpoint(
            2, LOOPBACK, 0, {1: (LOOPBACK, b.port)}, TransportSettings(kind="dlcp"), job_cookie=78, link_rate_bps=1e9
        )
        with other:
            b.add_peer(2, LOOPBACK, other.port)
            other.declare(0, ELEMENTS, queue=3, droppable=Droppable.SMALL)
            other.send(1, MessageKey(0, 0, Leg.PUSH), values(0))
            wait_until(lambda: b.statistics()["packets_stranger"] > 0, "what a stranger sent has come")
            assert other.statistics()["peers"][1]["min_rtt_ns"] == 0


# R110, R111
def test_misuse_is_refused_with_a_reason(pair: tuple[DlcpEndpoint, DlcpEndpoint]) -> None:
    a, _ = pair
    key = MessageKey(0, 0, Leg.PUSH)
    with pytest.raises(TransportError, match="rank 9"):
        a.send(9, key, values(0))
    with pytest.raises(TransportError, match="tensor 5"):
        a.send(1, MessageKey(0, 5, Leg.PUSH), values(0))
    with pytest.raises(TransportError, match="10 elements"):
        a.send(1, key, np.zeros(10, np.float32))
    with pytest.raises(ValueError, match="contiguous float32"):
        a.send(1, key, np.zeros(2 * ELEMENTS, np.float32)[::2])
    a.receive(1, key, np.zeros(ELEMENTS, np.float32))
    with pytest.raises(TransportError, match="expected already"):
        a.receive(1, key, np.zeros(ELEMENTS, np.float32))
    with pytest.raises(TransportError, match="declared otherwise"):
        a.declare(0, ELEMENTS, queue=4, droppable=Droppable.SMALL)


def test_a_closed_endpoint_says_so_and_closes_twice() -> None:
    a = endpoint(0)
    a.close()
    a.close()
    with pytest.raises(TransportError, match="closed"):
        a.wait(0)


def test_a_port_in_use_is_an_error_with_its_number() -> None:
    with endpoint(0) as a, pytest.raises(TransportError, match=f"port {a.port}"):
        DlcpEndpoint(1, LOOPBACK, a.port, {}, TransportSettings(kind="dlcp"), job_cookie=1, link_rate_bps=1e9)


# R95
def test_data_come_merged_on_loopback_and_arrive_bit_by_bit(pair: tuple[DlcpEndpoint, DlcpEndpoint]) -> None:
    sent, got, _, _ = move(*pair)
    assert sent.tobytes() == got.tobytes()
    assert pair[1].statistics()["merged_packets"] > 0


PORTS = 4


def test_with_several_source_ports_everything_arrives_and_nothing_is_taken_for_lost() -> None:
    with endpoint(0, source_ports=PORTS) as a, endpoint(1, source_ports=PORTS) as b:
        for one, other in ((a, b), (b, a)):
            one.add_peer(other.rank, LOOPBACK, other.port, other.source_ports)
            one.declare(0, ELEMENTS, queue=3)
        assert len({a.port, *a.source_ports}) == PORTS
        for iteration in range(20):
            sent, got, _, _ = move(a, b, iteration)
            assert sent.tobytes() == got.tobytes()
        assert b.statistics()["strange_address"] == 0
        assert a.statistics()["packets_resent"] <= 0.02 * a.statistics()["data_packets_sent"]


# R97
def test_bursts_leave_from_all_source_ports_in_turn() -> None:
    """Seen by a relay between the two; each knows the other by the relay's port."""
    came: Counter[int] = Counter()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as relay, endpoint(0, source_ports=PORTS) as a:
        relay.bind((LOOPBACK, 0))
        relay.settimeout(0.05)
        with endpoint(1) as b:
            ended = threading.Event()

            def carry() -> None:
                while not ended.is_set():
                    try:
                        data, (_, port) = relay.recvfrom(2048)
                    except TimeoutError:
                        continue
                    came[port] += len(data) if data[0] & 15 == lib.DLCP_DATA else 0
                    relay.sendto(data, (LOOPBACK, a.port if port == b.port else b.port))

            carrier = threading.Thread(target=carry)
            carrier.start()
            for one, other in ((a, b), (b, a)):
                one.add_peer(other.rank, LOOPBACK, relay.getsockname()[1])
                one.declare(0, ELEMENTS, queue=3)
            for iteration in range(10):
                move(a, b, iteration)
            ended.set()
            carrier.join()
    carried = [octets for octets in came.values() if octets]
    assert len(carried) == PORTS
    assert min(carried) >= 0.7 * max(carried)


# R98
def test_what_comes_from_a_source_port_that_was_not_told_is_a_stranger_s() -> None:
    with endpoint(0, source_ports=2) as a, endpoint(1) as b:
        introduce(a, b)
        sent, got, _, _ = move(a, b)
        assert sent.tobytes() == got.tobytes(), "what leaves from the first port is enough: the rest is sent again"
        assert b.statistics()["strange_address"] > 0


def test_too_many_source_ports_are_refused() -> None:
    with pytest.raises(TransportError, match="17 source ports: 16 at most"):
        endpoint(0, source_ports=17)


def test_a_receive_buffer_that_overflows_is_counted_apart_and_all_arrives() -> None:
    """Three senders into room for one datagram."""
    with endpoint(0, receive_bytes=1) as a, endpoint(1) as b, endpoint(2) as c, endpoint(3) as d:
        introduce(a, b, c, d)
        key = MessageKey(0, 0, Leg.PUSH)
        got = {sender.rank: np.empty(ELEMENTS, np.float32) for sender in (b, c, d)}
        for rank, buffer in got.items():
            a.receive(rank, key, buffer)
        for sender in (b, c, d):
            sender.send(0, key, values(sender.rank))
        ended: list[Completion] = []
        deadline = time.monotonic() + 20
        while len(ended) < 3 and time.monotonic() < deadline:
            ended += a.wait(1)
        assert len(ended) == 3, a.pending()
        for rank, buffer in got.items():
            assert buffer.tobytes() == values(rank).tobytes()
        assert a.statistics()["socket_overflow"] > 0
        assert max(sender.statistics()["overflow_reported"] for sender in (b, c, d)) > 0


def test_a_deadline_closes_a_message_of_which_nothing_comes(pair: tuple[DlcpEndpoint, DlcpEndpoint]) -> None:
    key, got, begun_s = MessageKey(0, 0, Leg.PUSH), np.full(ELEMENTS, np.nan, np.float32), time.monotonic()
    pair[1].receive(0, key, got, deadline=Deadline(0.0, at_s=begun_s + 0.05))
    (done,) = pair[1].wait(10)
    assert done.end_s >= begun_s + 0.05
    assert (done.lost_bytes, done.lost_energy_share, done.first_s) == (ELEMENTS * 4, 1.0, 0.0)
    assert not got.any()
    pair[0].send(1, key, values(0))
    assert pair[0].wait(10)[0].key == key, "its sender is told that it is over"
    sent, got, received, _ = move(*pair, 1)
    assert sent.tobytes() == got.tobytes()
    assert received.start_s < received.first_s < received.end_s


@pytest.mark.parametrize("times", [{"share": 1.1}, {"share": 0.5, "at_s": -1.0}, {"share": 0.5, "after_first_s": 0.0}])
def test_a_deadline_that_makes_no_sense_is_refused(times: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="a share from 0 to 1 and times above 0"):
        Deadline(**times)


# R102
def test_a_rank_that_closes_answers_until_nobody_has_asked_for_a_while() -> None:
    """Asked again and again for 0.2 s, it stays for that time and 0.1 s more."""
    fields = {"type": lib.DLCP_DONE, "source": 1, "cookie": 77, "offset": 5}
    head = ffi.new("uint8_t[]", lib.DLCP_HEADER_BYTES)
    lib.dlcp_header_encode(ffi.new("struct dlcp_header *", fields), head)
    done = ffi.buffer(head)[:] + (1).to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes(12)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind((LOOPBACK, 0))
        peer.settimeout(5)
        a = endpoint(0)
        a.add_peer(1, LOOPBACK, peer.getsockname()[1])
        address = (LOOPBACK, a.port)
        closing = threading.Thread(target=a.close)
        begun_s = time.monotonic()
        closing.start()
        asked_s = begun_s
        while asked_s < begun_s + 0.2:
            asked_s = time.monotonic()
            peer.sendto(done, address)
            assert peer.recv(2048)[0] & 15 == lib.DLCP_NACK
            time.sleep(0.005)
        closing.join()
        assert 0.1 <= time.monotonic() - asked_s < 0.5
