"""Plain traffic from the C core: a source that carries out planned flows, and a sink that says when each arrived.

Every instant is of CLOCK_MONOTONIC (time.monotonic_ns), the same in all network namespaces of a machine. An array of
single datagrams at exponential gaps, as a queueing theorist wants them:

    gaps = numpy.random.default_rng(1).exponential(1 / 4000, 40_000)          # a Poisson process of 4000 a second
    flows = flow_array(numpy.cumsum(gaps), datagram_bytes(1514))              # each a frame of 1514 B
    with sink_namespace: sink = Sink(there, 5700, cookie, expect(flows, here))
    with source_namespace: source = Source(here, cookie, [Lane(flows, datagram_bytes=datagram_bytes(1514), tos=tos)],
                                           [(there, sink.port)])
    source.start(time.monotonic_ns() + 10_000_000); …; totals = source.stop(); counted = sink.stop()
    delay_ns = sink.arrivals["last_ns"] - source.sent[0]["started_ns"]     # of each that came: arrivals["bytes"] > 0

Sockets are made in the network namespace that the calling thread is in, those of TCP flows in that of the thread that
calls start(). `started_ns` is read just before the datagram is handed to the kernel, `last_ns` is the kernel's own
stamp of its arrival at the host. The source's thread has the scheduling policy of the thread that starts it: where
microseconds count, let that be SCHED_FIFO.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dlcp.model.frames import UDP_OVERHEAD_BYTES
from dlcp.transport._native import ffi, lib

HEADER_BYTES = int(lib.DLCP_TRAFFIC_HEADER_BYTES)
"""The least a flow can be: what says whose it is."""
DATAGRAM_BYTES = int(lib.DLCP_TRAFFIC_DATAGRAM_BYTES)
DATAGRAM_MOST = int(lib.DLCP_TRAFFIC_DATAGRAM_MOST)
TCP_PORTS = int(lib.DLCP_TRAFFIC_PORTS)
LATE_S = int(lib.DLCP_TRAFFIC_LATE_NS) / 1e9
"""A flow that starts so late, in lab time, no longer meets the same traffic: 40 frame times at 100 Mbit/s."""

FLOW = np.dtype([("start_ns", "i8"), ("bytes", "u8"), ("sink", "u4"), ("number", "u4")])
SENT = np.dtype([("started_ns", "i8"), ("sent_bytes", "u8")])
EXPECTED = np.dtype([("bytes", "u8"), ("source", "u1", 4), ("tcp", "u1"), ("tos", "u1"), ("zero", "u2")])
ARRIVAL = np.dtype([("bytes", "u8"), ("packets", "u4"), ("claimed", "u4"), ("last_ns", "i8")])
"""The structs of traffic.h, field by field."""

Array = npt.NDArray[Any]


def group_datagrams(rate_bps: float, time_dilation: float = 1.0) -> int:
    """How many full datagrams of a lane of that rate leave at once: about half a millisecond of it, in lab time."""
    return int(lib.dlcp_traffic_group(rate_bps, DATAGRAM_BYTES, time_dilation))


def datagram_bytes(frame_bytes: int) -> int:
    """The UDP payload of an Ethernet frame (without FCS) of so many bytes; ValueError when none fits."""
    size = frame_bytes - UDP_OVERHEAD_BYTES
    if not HEADER_BYTES <= size <= DATAGRAM_MOST:
        smallest, largest = HEADER_BYTES + UDP_OVERHEAD_BYTES, DATAGRAM_MOST + UDP_OVERHEAD_BYTES
        raise ValueError(f"a frame of {frame_bytes} B: from {smallest} to {largest} B carry a datagram of ours")
    return size


def address_bytes(address: str) -> list[int]:
    """ "198.18.0.1" → [198, 18, 0, 1]."""
    return list(socket.inet_aton(address))


def whole(size_bytes: Array, full_bytes: int = DATAGRAM_BYTES) -> Array:
    """Flow sizes raised so that the header fits into every datagram, the last one too."""
    size = np.maximum(size_bytes, HEADER_BYTES)
    last = size % full_bytes
    return size + np.where((last > 0) & (last < HEADER_BYTES), HEADER_BYTES - last, 0)


def flow_array(start_s: npt.ArrayLike, size_bytes: npt.ArrayLike, sink: npt.ArrayLike = 0, number: Any = None) -> Array:
    """Flows for a Lane, in the order of their starts. sink: index of its place; number: at its sink (default: 0, 1, …,
    right when there is one sink and one lane)."""
    start = np.round(np.asarray(start_s, np.float64) * 1e9).astype(np.int64)
    flows = np.zeros(len(start), FLOW)
    flows["start_ns"], flows["bytes"], flows["sink"] = start, size_bytes, sink
    flows["number"] = np.arange(len(start)) if number is None else number
    return flows


def expect(flows: Array, source: str, *, tcp: bool = False, tos: int = 0) -> Array:
    """What the one sink of one lane expects of it. tos: of its answers, over TCP."""
    expected = np.zeros(len(flows), EXPECTED)
    expected["bytes"], expected["tcp"], expected["tos"] = flows["bytes"], tcp, tos
    expected["source"] = address_bytes(source)
    return expected


@dataclass(frozen=True)
class Lane:
    """Flows (FLOW, ascending starts) that share a way of sending.

    Over UDP one after the other, each paced at rate_bps of frame bytes, in datagrams of datagram_bytes; 0 = each leaves
    at once at its instant. Over TCP each on a connection of its own from its instant on. port: where they come from
    (0 = any); over TCP the first of TCP_PORTS that flows use by their numbers. time_dilation: so many seconds here are
    one of the lab; starts and rates are of here, groups and what counts as late are the same in lab time.
    """

    flows: Array
    tos: int = 0
    rate_bps: float = 0.0
    datagram_bytes: int = DATAGRAM_BYTES
    tcp: bool = False
    port: int = 0
    time_dilation: float = 1.0


class Source:
    """Sends the flows of some lanes from one address; one thread. sent: a SENT array for each lane, final after stop().

    sinks: (address, port) by the flows' sink index. cookie: 32 bits that the sinks know too. ValueError for a plan that
    cannot be carried out, OSError from the sockets. One that nobody refers to any more is ended.
    """

    _source: Any = ffi.NULL

    def __init__(self, address: str, cookie: int, lanes: Sequence[Lane], sinks: Sequence[tuple[str, int]]) -> None:
        self.sent = [np.zeros(len(lane.flows), SENT) for lane in lanes]
        self._flows = [np.ascontiguousarray(lane.flows, FLOW) for lane in lanes]
        table = ffi.new("struct dlcp_lane[]", len(lanes))
        for row, lane, flows, sent in zip(table, lanes, self._flows, self.sent, strict=True):
            row.flows, row.sent, row.count = _pointer("flow", flows), _pointer("flow_sent", sent), len(flows)
            row.datagram_bytes, row.tos, row.tcp = lane.datagram_bytes, lane.tos, lane.tcp
            row.rate_bps, row.port, row.time_dilation = lane.rate_bps, lane.port, lane.time_dilation
        places = [(address_bytes(at), port) for at, port in sinks]
        self._source = lib.dlcp_source_new(address.encode(), cookie, table, len(lanes), places, len(places))
        if self._source == ffi.NULL:
            raise _failure(f"source at {address}")

    def start(self, origin_ns: int) -> None:
        """Begin; the flows' starts count from origin_ns. Once; RuntimeError after stop()."""
        _require(self._source)
        if error := lib.dlcp_source_start(self._source, origin_ns):
            raise OSError(-error, os.strerror(-error))

    def stop(self) -> dict[str, int]:
        """End, cutting off what is under way; the fields of struct dlcp_source_statistics. Closes it: once."""
        _require(self._source)
        statistics = ffi.new("struct dlcp_source_statistics *")
        lib.dlcp_source_stop(self._source, statistics)
        lib.dlcp_source_close(self._source)
        self._source = ffi.NULL
        return _fields(statistics)

    def __del__(self) -> None:  # the thread reads and writes these arrays
        lib.dlcp_source_close(self._source)


class Sink:
    """Counts what arrives of `expected` (EXPECTED, by the flows' numbers) at an address and port, from now on.

    port: 0 = any free one. arrivals: an ARRIVAL array by the same numbers, final after stop(). time_dilation: the
    thread's rests between batches are the same in lab time. OSError from the sockets. One that nobody refers to any
    more is ended.
    """

    _sink: Any = ffi.NULL

    def __init__(self, address: str, port: int, cookie: int, expected: Array, *, time_dilation: float = 1.0) -> None:
        self.arrivals = np.zeros(len(expected), ARRIVAL)
        self._expected = np.ascontiguousarray(expected, EXPECTED)
        self._sink = lib.dlcp_sink_new(
            address.encode(),
            port,
            cookie,
            _pointer("expected", self._expected),
            _pointer("arrival", self.arrivals),
            len(expected),
            time_dilation,
        )
        if self._sink == ffi.NULL:
            raise _failure(f"sink at {address}:{port}")
        self.port = int(lib.dlcp_sink_port(self._sink))

    @property
    def bytes(self) -> int:
        """What has come so far of all flows. RuntimeError after stop()."""
        _require(self._sink)
        return int(lib.dlcp_sink_bytes(self._sink))

    def stop(self) -> dict[str, int]:
        """End; the fields of struct dlcp_sink_statistics. Closes it: once."""
        _require(self._sink)
        statistics = ffi.new("struct dlcp_sink_statistics *")
        lib.dlcp_sink_stop(self._sink, statistics)
        lib.dlcp_sink_close(self._sink)
        self._sink = ffi.NULL
        return _fields(statistics)

    def __del__(self) -> None:  # the thread writes these arrays
        lib.dlcp_sink_close(self._sink)


def _require(handle: Any) -> None:
    if handle == ffi.NULL:
        raise RuntimeError("this source or sink was stopped already")


def _pointer(kind: str, array: Array) -> Any:
    return ffi.cast(f"struct dlcp_{kind} *", array.ctypes.data)


def _fields(struct: Any) -> dict[str, int]:
    return {name: int(getattr(struct, name)) for name, _ in ffi.typeof(struct[0]).fields}


def _failure(what: str) -> Exception:
    if ffi.errno == errno.EINVAL:
        return ValueError(f"{what}: not a plan: an address, a size, a sink or the order of flows is wrong")
    return OSError(ffi.errno, f"{what}: {os.strerror(ffi.errno)}")
