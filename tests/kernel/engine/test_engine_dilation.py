"""The engine under time dilation, with real sockets: its timers seen on the wire, its API in the host's time."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
from attempts import several_attempts
from two_hosts import NEEDS_ROOT, hosts

from dlcp.model.transport.settings import TransportSettings
from dlcp.transport._native import ffi, lib
from dlcp.transport.contract.endpoint import Deadline, Leg, MessageKey, TransportError
from dlcp.transport.dlcp_endpoint import DlcpEndpoint

LOOPBACK = "127.0.0.1"
COOKIE = 11
ELEMENTS = 360
"""One packet."""
KEY = MessageKey(0, 0, Leg.PUSH)
LATE_S = 0.05
"""How late this thread or the engine's may be on a busy machine: spans that are compared are longer."""


def endpoint(rank: int, dilation: float, address: str = LOOPBACK, **options: float) -> DlcpEndpoint:
    settings = TransportSettings(kind="dlcp", time_dilation=dilation)
    options.setdefault("link_rate_bps", 1e8)
    made = DlcpEndpoint(rank, address, 0, {}, settings, job_cookie=COOKIE, **options)  # type: ignore[arg-type]
    made.declare(0, ELEMENTS, queue=3)
    return made


@contextmanager
def mute_peer(one: DlcpEndpoint) -> Iterator[socket.socket]:
    """Rank 1 of `one`: a socket that hears everything and says nothing."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sock:
        sock.bind((LOOPBACK, 0))
        sock.settimeout(10)
        one.add_peer(1, LOOPBACK, sock.getsockname()[1])
        yield sock


def kind(packet: bytes) -> int:
    return packet[0] & 15


# R24, R81, R103
@pytest.mark.parametrize("dilation", [1.0, 4.0])
@several_attempts
def test_greetings_of_a_silent_peer_are_seen_on_the_wire_at_stretched_gaps(dilation: float) -> None:
    """40 ms after the first, then 80, in lab time: the first greeting's 20 ms double with each (liveness.c)."""
    with endpoint(0, dilation) as one, mute_peer(one) as peer:
        one.send(1, KEY, np.ones(ELEMENTS, np.float32))
        heard: list[float] = []
        while len(heard) < 3:
            packet = peer.recv(2048)
            assert kind(packet) == lib.DLCP_PROBE, "nothing is sent into a path that has not answered"
            heard.append(time.monotonic())
    gaps_s = np.diff(heard)
    for gap_s, lab_s in zip(gaps_s, (0.04, 0.08), strict=True):
        assert gap_s == pytest.approx(lab_s * dilation, abs=LATE_S), gaps_s


# R84, R106
@pytest.mark.parametrize("dilation", [1.0, 4.0])
@several_attempts
def test_a_peer_is_given_up_after_the_silence_of_the_lab_and_the_error_says_whose_seconds(dilation: float) -> None:
    with endpoint(0, dilation, first_contact_s=0.25) as one, mute_peer(one):
        one.receive(1, KEY, np.empty(ELEMENTS, np.float32))
        begun_s = time.monotonic()
        with pytest.raises(TransportError, match=r"rank 1 is gone: silent for 0\.[23] s") as raised:
            one.wait(10)
        assert time.monotonic() - begun_s == pytest.approx(0.25 * dilation, abs=LATE_S)
    assert ("(in seconds of the lab, each 4 s here)" in str(raised.value)) is (dilation == 4)


def data_packet(sequence: int) -> bytes:
    """One packet of rank 1's message that asks for no acknowledgement."""
    header = ffi.new("struct dlcp_header *")
    header.type, header.source, header.cookie = lib.DLCP_DATA, 1, COOKIE
    header.sequence, header.count, header.dtype = sequence, ELEMENTS, lib.DLCP_FLOAT32
    packet = ffi.new("uint8_t[]", lib.DLCP_HEADER_BYTES + 4 * ELEMENTS)
    lib.dlcp_header_encode(header, packet)
    return bytes(ffi.buffer(packet))


# R20, R107
@pytest.mark.parametrize("dilation", [1.0, 20.0])
@several_attempts
def test_an_acknowledgement_is_held_back_for_half_a_millisecond_of_the_lab(dilation: float) -> None:
    """And says so in the lab's microseconds, which the sender takes off the round trip."""
    with endpoint(0, dilation) as one, mute_peer(one) as peer:
        address = (LOOPBACK, one.port)
        one.declare(1, 2 * ELEMENTS, queue=3)
        sent_s = time.monotonic()
        peer.sendto(data_packet(0), address)
        while kind(packet := peer.recv(2048)) != lib.DLCP_ACK:
            pass
        held_s = time.monotonic() - sent_s
        ack = ffi.new("struct dlcp_ack *")
        assert lib.dlcp_ack_decode(ack, packet, len(packet)) == 0
    assert 0.0005 * dilation <= held_s <= 0.0005 * dilation + LATE_S
    assert 500 <= ack.delay_us <= 500 + LATE_S * 1e6 / dilation


@contextmanager
def pair(dilation: float) -> Iterator[tuple[DlcpEndpoint, DlcpEndpoint]]:
    with endpoint(0, dilation) as a, endpoint(1, dilation) as b:
        a.add_peer(1, LOOPBACK, b.port)
        b.add_peer(0, LOOPBACK, a.port)
        yield a, b


# R105
def test_what_callers_are_told_is_the_hosts_time() -> None:
    with pair(10.0) as (a, b):
        before_s = time.monotonic()
        b.receive(0, KEY, np.empty(ELEMENTS, np.float32))
        a.send(1, KEY, np.ones(ELEMENTS, np.float32))
        (received,), (sent,) = b.wait(10), a.wait(10)
        after_s = time.monotonic()
        rtt_s = a.statistics()["peers"][1]["min_rtt_ns"] / 1e9
    one_lab_ns_s = 20e-9
    assert before_s - one_lab_ns_s <= received.start_s <= received.first_s <= received.end_s <= after_s
    assert before_s - one_lab_ns_s <= sent.start_s <= sent.end_s <= after_s
    assert received.end_s <= sent.end_s
    assert 0 < rtt_s < after_s - before_s, "a round trip is not longer than all of it"


# R105
@pytest.mark.parametrize("after_first", [False, True])
@several_attempts
def test_a_deadline_is_the_hosts_time(after_first: bool) -> None:
    """0.3 s from now, or after the first packet: not 0.3 s of the lab, which were 3 s here."""
    dilation, lasts_s = 10.0, 0.3
    with endpoint(0, dilation) as one, mute_peer(one) as peer:
        one.declare(1, 2 * ELEMENTS, queue=3)
        header = data_packet(0)
        begun_s = time.monotonic()
        deadline = Deadline(0.0, after_first_s=lasts_s) if after_first else Deadline(0.0, at_s=begun_s + lasts_s)
        one.receive(1, MessageKey(0, 1, Leg.PUSH), np.empty(2 * ELEMENTS, np.float32), deadline=deadline)
        peer.sendto(with_tensor(header, 1), (LOOPBACK, one.port))
        (done,) = one.wait(10)
        took_s = time.monotonic() - begun_s
    assert done.delivered_bytes == 4 * ELEMENTS
    assert done.lost_bytes == 4 * ELEMENTS
    assert took_s == pytest.approx(lasts_s, abs=LATE_S)


def with_tensor(packet: bytes, tensor: int) -> bytes:
    """The same packet of another tensor."""
    header = ffi.new("struct dlcp_header *")
    assert lib.dlcp_header_decode(header, packet, len(packet)) == 0
    header.tensor = tensor
    changed = ffi.new("uint8_t[]", packet)
    lib.dlcp_header_encode(header, changed)
    return bytes(ffi.buffer(changed, len(packet)))


@pytest.mark.parametrize("dilation", [0.5, float("nan"), float("inf"), 1e7])
def test_a_dilation_that_is_none_is_refused(dilation: float) -> None:
    settings = TransportSettings(kind="dlcp").model_copy(update={"time_dilation": dilation})
    with pytest.raises(TransportError, match=r"time dilation .* is not between 1 and 1e"):
        DlcpEndpoint(0, LOOPBACK, 0, {}, settings, job_cookie=COOKIE, link_rate_bps=1e8)


@dataclass(frozen=True)
class Moved:
    """took_s: lab time. Counters of the sender."""

    took_s: float
    sent: int
    lost: int
    acks: int


MESSAGES = 16
LARGE = 100_000
"""Elements of a message: 278 packets."""
SHAPED_BPS, WANTED_BPS = 5e7, 7.5e7
"""Of the wire, and what the sender takes its link for: it has to find out, and loses packets meanwhile."""


def move_over_a_shaped_wire(dilation: float) -> Moved:
    with hosts() as (here, there):
        rate = f"{SHAPED_BPS / dilation:.0f}bit"
        here.do(lambda: _shape(rate))
        one = here.do(lambda: endpoint(0, dilation, "198.18.0.1", link_rate_bps=WANTED_BPS / dilation))
        other = there.do(lambda: endpoint(1, dilation, "198.18.0.2", link_rate_bps=WANTED_BPS / dilation))
        with one, other:
            one.add_peer(1, "198.18.0.2", other.port)
            other.add_peer(0, "198.18.0.1", one.port)
            data = np.ones(LARGE, np.float32)
            for end in (one, other):
                end.declare(1, LARGE, queue=3)
            begun_s = time.monotonic()
            for i in range(MESSAGES):
                other.receive(0, MessageKey(i, 1, Leg.PUSH), np.empty(LARGE, np.float32))
                one.send(1, MessageKey(i, 1, Leg.PUSH), data)
            left, last_s = MESSAGES, begun_s
            while left:
                done = other.wait(20)
                assert done, other.pending()
                left, last_s = left - len(done), max(last_s, *(one.end_s for one in done))
            sender, receiver = one.statistics(), other.statistics()
    return Moved(
        (last_s - begun_s) / dilation, sender["data_packets_sent"], sender["losses_detected"], receiver["acks_sent"]
    )


def _shape(rate: str) -> None:
    words = f"tc qdisc add dev wire0 root tbf rate {rate} burst 3100 limit 9000"
    subprocess.run(words.split(), check=True, timeout=20)


# R104
@NEEDS_ROOT
@several_attempts
def test_a_stretched_wire_carries_the_same_packets_in_the_same_lab_time() -> None:
    lab, stretched = move_over_a_shaped_wire(1.0), move_over_a_shaped_wire(4.0)
    ideal_s = MESSAGES * 278 * 1514 * 8 / SHAPED_BPS
    assert lab.lost > 0, "nothing was lost: loss recovery was not tried"
    assert ideal_s * 0.97 < lab.took_s < ideal_s * 1.35
    assert stretched.took_s == pytest.approx(lab.took_s, rel=0.08)
    assert stretched.sent == pytest.approx(lab.sent, rel=0.05)
    assert stretched.acks == pytest.approx(lab.acks, rel=0.15)
