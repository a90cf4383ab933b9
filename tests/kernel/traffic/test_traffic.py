"""Sources and sinks of plain traffic, over real sockets on loopback: what is planned arrives, and is told apart."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import numpy as np
import pytest
from loopback import address
from waits import in_time, wait_until

from dlcp.model.frames import UDP_OVERHEAD_BYTES
from dlcp.traffic.native import (
    ARRIVAL,
    DATAGRAM_BYTES,
    DATAGRAM_MOST,
    EXPECTED,
    FLOW,
    HEADER_BYTES,
    SENT,
    TCP_PORTS,
    Lane,
    Sink,
    Source,
    datagram_bytes,
    expect,
    flow_array,
    group_datagrams,
    whole,
)
from dlcp.transport._native import ffi

HERE, THERE = address(0), address(1)
COOKIE = 0xC0FFEE
HEAD_START_NS = 5_000_000
REFUSED_WITHIN_S = 0.5
"""Nothing but its end tells what a source or sink has turned away: far longer than that takes on loopback."""


@pytest.mark.parametrize(
    ("name", "ours"), [("flow", FLOW), ("flow_sent", SENT), ("expected", EXPECTED), ("arrival", ARRIVAL)]
)
def test_arrays__are_laid_out_as_the_structs(name: str, ours: np.dtype[Any]) -> None:
    theirs = ffi.typeof(f"struct dlcp_{name}")
    assert ours.itemsize == ffi.sizeof(theirs)
    assert ours.fields is not None
    assert {field: (kind.itemsize, at) for field, (kind, at, *_) in ours.fields.items()} == {
        field: (ffi.sizeof(described.type), described.offset) for field, described in theirs.fields
    }


@pytest.mark.parametrize(("rate_bps", "group"), [(1e6, 1), (100e6, 4), (1e9, 42), (10e9, 44)])
def test_groups__are_half_a_millisecond_of_the_line(rate_bps: float, group: int) -> None:
    assert group_datagrams(rate_bps) == group
    flows = flow_array([0.0], 88 * DATAGRAM_BYTES)
    *_, sent, _ = carry_out(Lane(flows, rate_bps=rate_bps), 44 * DATAGRAM_BYTES)
    assert sent["sends"] == -(-sent["datagrams"] // group)


def carry_out(lane: Lane, until_bytes: int | None = None, limit_s: float = 20.0) -> tuple[Source, Sink, Any, Any]:
    """One lane to one sink, until everything (or so much) has come."""
    sink = Sink(THERE, 0, COOKIE, expect(lane.flows, HERE, tcp=lane.tcp))
    source = Source(HERE, COOKIE, [lane], [(THERE, sink.port)])
    source.start(time.monotonic_ns() + HEAD_START_NS)
    wanted = int(lane.flows["bytes"].sum()) if until_bytes is None else until_bytes
    in_time(lambda: sink.bytes >= wanted, limit_s, every_s=0.002)
    return source, sink, source.stop(), sink.stop()


def test_single_datagrams__leave_in_the_order_of_their_plan_and_each_is_timed_at_both_ends() -> None:
    gaps = np.random.default_rng(3).exponential(1 / 2000, 600)
    flows = flow_array(np.cumsum(gaps), datagram_bytes(1514))
    source, sink, sent, counted = carry_out(Lane(flows, datagram_bytes=datagram_bytes(1514)))
    assert sent["datagrams"] == sent["sends"] == counted["packets"] == 600
    assert (sink.arrivals["bytes"] == 1472).all()
    started, arrived = source.sent[0]["started_ns"], sink.arrivals["last_ns"]
    assert (np.diff(started) > 0).all()
    assert (arrived >= started).all()


def test_sends__are_never_before_their_time() -> None:
    flows = flow_array(np.linspace(0, 0.2, 200), 100)
    sink = Sink(THERE, 0, COOKIE, expect(flows, HERE))
    source = Source(HERE, COOKIE, [Lane(flows)], [(THERE, sink.port)])
    origin_ns = time.monotonic_ns() + HEAD_START_NS
    source.start(origin_ns)
    wait_until(lambda: sink.bytes >= 20_000, "all datagrams have come", every_s=0.002)
    statistics = source.stop()
    sink.stop()
    late_ns = source.sent[0]["started_ns"] - origin_ns - flows["start_ns"]
    assert (late_ns >= 0).all()
    assert statistics["late_most_ns"] == late_ns.max()
    assert statistics["late_flows"] == (late_ns > 5_000_000).sum()
    typical = np.quantile(late_ns, 0.99, method="inverted_cdf")
    assert typical <= statistics["late_ns"] <= 1.125 * max(typical, 8) + 1


def test_a_lane__keeps_its_rate_and_sends_one_flow_after_the_other() -> None:
    rate_bps, size = 100e6, 400 * DATAGRAM_BYTES
    flows = flow_array([0.0, 0.001], size)
    source, sink, sent, _ = carry_out(Lane(flows, rate_bps=rate_bps))
    first_s = 400 * (DATAGRAM_BYTES + UDP_OVERHEAD_BYTES) * 8 / rate_bps
    started = source.sent[0]["started_ns"]
    assert (started[1] - started[0]) / 1e9 > first_s - sent["late_most_ns"] / 1e9, "the second waits for the first"
    assert (sink.arrivals["last_ns"][0] - started[0]) / 1e9 > first_s * 0.98 - sent["late_most_ns"] / 1e9
    assert sent["sends"] == 2 * 400 / 4, "half a millisecond of the line holds 4 frames: they leave at once"
    assert sink.arrivals["packets"].tolist() == [400, 400]


def test_lanes__go_on_side_by_side() -> None:
    slow = flow_array([0.0], 100 * DATAGRAM_BYTES)
    quick = flow_array([0.01, 0.02], DATAGRAM_BYTES, number=[1, 2])
    expected = np.concatenate([expect(slow, HERE), expect(quick, HERE)])
    sink = Sink(THERE, 0, COOKIE, expected)
    source = Source(HERE, COOKIE, [Lane(slow, rate_bps=10e6), Lane(quick)], [(THERE, sink.port)])
    source.start(time.monotonic_ns() + HEAD_START_NS)
    wait_until(lambda: sink.bytes >= 102 * DATAGRAM_BYTES, "all datagrams have come", every_s=0.002)
    source.stop()
    sink.stop()
    assert (sink.arrivals["bytes"] == expected["bytes"]).all()
    assert (sink.arrivals["last_ns"][1:] < sink.arrivals["last_ns"][0]).all()


def test_tcp_flows__each_come_whole_over_connections_of_their_own() -> None:
    sizes = np.random.default_rng(5).integers(HEADER_BYTES, 400_000, 60)
    flows = flow_array(np.linspace(0, 0.1, 60), sizes)
    source, sink, sent, counted = carry_out(Lane(flows, tcp=True))
    assert counted["connections"] == sent["started_flows"] == 60
    assert (sink.arrivals["bytes"] == sizes).all()
    assert (sink.arrivals["last_ns"] > source.sent[0]["started_ns"]).all()
    assert sent["failed_flows"] == counted["strangers"] == 0
    assert sent["sent_bytes"] == sent["offered_bytes"] == sent["due_bytes"] == sizes.sum()


def test_ports__are_those_that_were_asked_for() -> None:
    """Two flows of numbers a whole round of ports apart share one, to two sinks; a datagram leaves from its lane's."""
    base = 7_100
    flows = flow_array([0.0, 0.0], 1000, sink=[0, 1], number=[3, TCP_PORTS + 3])
    with socket.socket() as first, socket.socket() as second:
        listeners = {THERE: first, address(2): second}
        for at, listener in listeners.items():
            listener.bind((at, 0))
            listener.listen()
            listener.settimeout(20)
        places = [(at, listener.getsockname()[1]) for at, listener in listeners.items()]
        source = Source(HERE, COOKIE, [Lane(flows, tcp=True, port=base)], places)
        source.start(time.monotonic_ns())
        came = [listener.accept() for listener in listeners.values()]
        assert [who for _, who in came] == [(HERE, base + 3)] * 2
        source.stop()
        for connection, _ in came:
            connection.close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind((THERE, 0))
        sink.settimeout(20)
        source = Source(HERE, COOKIE, [Lane(flow_array([0.0], 100), port=base)], [sink.getsockname()])
        source.start(time.monotonic_ns())
        assert sink.recvfrom(2000)[1] == (HERE, base)
        source.stop()


@pytest.mark.parametrize("tcp", [False, True])
def test_a_source_stopped_early__counts_as_due_only_what_was(tcp: bool) -> None:
    flows = flow_array([0.0, 3600.0], DATAGRAM_BYTES)
    before_s = time.monotonic()
    source, sink, sent, _ = carry_out(Lane(flows, tcp=tcp), until_bytes=DATAGRAM_BYTES)
    assert time.monotonic() - before_s < 10, "a source that waits for its next flow stops at once"
    assert sent["due_bytes"] == sent["offered_bytes"] == DATAGRAM_BYTES
    assert sent["due_flows"] == sent["started_flows"] == 1
    assert sink.arrivals["bytes"].tolist() == [DATAGRAM_BYTES, 0]
    assert source.sent[0]["started_ns"][1] == 0


def test_a_held_up_source__tells_what_it_should_have_sent() -> None:
    """Stopped before it could begin, long after its plan began: all that was due is planned, nothing offered."""
    flows = flow_array(np.arange(1000) / 1e6, DATAGRAM_BYTES)
    source = Source(HERE, COOKIE, [Lane(flows, rate_bps=1e6)], [(THERE, 9)])
    source.start(time.monotonic_ns() - 10**9)
    statistics = source.stop()
    per_second = 1e6 / 8 / (DATAGRAM_BYTES + UDP_OVERHEAD_BYTES)
    assert statistics["due_flows"] >= int(per_second)
    assert statistics["due_bytes"] >= int(per_second) * DATAGRAM_BYTES
    assert statistics["offered_bytes"] <= statistics["due_bytes"]


def test_a_refused_connection__is_a_failed_flow() -> None:
    with socket.socket() as taken:
        taken.bind((THERE, 0))  # nobody listens
        source = Source(HERE, COOKIE, [Lane(flow_array([0.0], 100), tcp=True)], [(THERE, taken.getsockname()[1])])
        source.start(time.monotonic_ns())
        time.sleep(REFUSED_WITHIN_S)
        assert source.stop()["failed_flows"] == 1


def test_a_sink__takes_a_flow_only_from_its_own_source() -> None:
    flows = flow_array([0.0], 1000)
    for tcp in (False, True):
        sink = Sink(THERE, 0, COOKIE, expect(flows, address(4), tcp=tcp))
        source = Source(HERE, COOKIE, [Lane(flows, tcp=tcp)], [(THERE, sink.port)])
        source.start(time.monotonic_ns())
        time.sleep(REFUSED_WITHIN_S)
        source.stop()
        assert sink.stop()["strangers"] == 1
        assert sink.arrivals["bytes"].tolist() == [0]


def test_frames__are_as_large_as_was_asked() -> None:
    assert datagram_bytes(1514) == 1472 == DATAGRAM_MOST
    with pytest.raises(ValueError, match="1515 B"):
        datagram_bytes(1515)
    with pytest.raises(ValueError, match="57 B"):
        datagram_bytes(57)


def test_whole__leaves_room_for_a_header_in_the_last_datagram() -> None:
    sizes = np.arange(1, 5000)
    raised = whole(sizes)
    last = raised % DATAGRAM_BYTES
    assert ((last == 0) | (last >= HEADER_BYTES)).all()
    assert (raised >= np.maximum(sizes, HEADER_BYTES)).all()
    assert (raised - sizes < HEADER_BYTES).all()


@pytest.mark.parametrize("wrong", [{"bytes": 15}, {"sink": 1}, {"bytes": DATAGRAM_BYTES + 3}, {"start_ns": -1}])
def test_a_plan_that_cannot_be_carried_out__is_refused(wrong: dict[str, int]) -> None:
    flows = flow_array([0.0], 1000)
    for field, value in wrong.items():
        flows[field] = value
    with pytest.raises(ValueError, match="not a plan"):
        Source(HERE, COOKIE, [Lane(flows)], [(THERE, 9)])


def test_a_port_in_use__is_an_error_that_names_it() -> None:
    first = Sink(THERE, 0, COOKIE, np.zeros(0, EXPECTED))
    with pytest.raises(OSError, match=str(first.port)):
        Sink(THERE, first.port, COOKIE, np.zeros(0, EXPECTED))
    first.stop()


def test_what_was_stopped__says_so_and_what_was_dropped_is_ended() -> None:
    flows = flow_array([0.0], 1000 * DATAGRAM_BYTES)
    sink = Sink(THERE, 0, COOKIE, expect(flows, HERE))
    source = Source(HERE, COOKIE, [Lane(flows, rate_bps=10e6)], [(THERE, sink.port)])
    source.start(time.monotonic_ns())
    port, threads = sink.port, len(os.listdir("/proc/self/task"))
    del source, sink
    # The kernel forgets a thread a little after it ended. One that went on would write into arrays that are gone.
    wait_until(lambda: len(os.listdir("/proc/self/task")) <= threads - 2, "both threads have ended", every_s=0.002)
    sink = Sink(THERE, port, COOKIE, expect(flows, HERE))
    source = Source(HERE, COOKIE, [Lane(flows)], [(THERE, port)])
    source.stop()
    sink.stop()
    for call in (source.stop, sink.stop, lambda: source.start(0), lambda: sink.bytes):
        with pytest.raises(RuntimeError, match="stopped already"):
            call()


def test_a_rate_beyond_all_clocks__sends_once_and_can_be_stopped() -> None:
    source, _, sent, _ = carry_out(Lane(flow_array([0.0], 10 * DATAGRAM_BYTES), rate_bps=1e-9), DATAGRAM_BYTES)
    assert sent["due_bytes"] == sent["offered_bytes"] == DATAGRAM_BYTES
    assert source.sent[0]["sent_bytes"].tolist() == [DATAGRAM_BYTES]
