"""The values of the emulated switch's maps, field by field as native/switch/switch_maps.h and native/switch/aqm.h lay
them out, and those of a Linux box (native/switch/box_maps.h).

A test compiles those headers and compares every offset; the loader compares the sizes with the object's own.
"""

from __future__ import annotations

import ctypes
from typing import ClassVar

from dlcp.model.qos import PRECEDENCES, QUEUES

HISTOGRAM_BUCKETS = 16
MAX_NEXT_HOPS = 64

CERTAIN_Q32 = 1 << 32
"""Probability 1 as a share of 2^32 (DLCP_AQM_CERTAIN)."""

PROFILE_ACTIVE = 1
PROFILE_MARK = 2
PORT_HOST_FACING = 1
PORT_DOWN = 2
PORT_AVERAGES = 4
PORT_SHARES = 8
FLOW_HASH = 0
PER_PACKET = 1
ROUND_ROBIN = 2
FLOWLET = 3
FLOWLETS = 4096

FILLER_ETHERTYPE = 0x88B5
"""EtherType of frames that fill a queue and count nowhere (DLCP_FILLER_ETHERTYPE)."""

UNLIMITED_BYTES = 2**32 - 1
"""limit_bytes of a queue without a limit (DLCP_AQM_UNLIMITED)."""


class AqmProfile(ctypes.Structure):
    """struct dlcp_aqm_profile"""

    probability_q32: int
    minimum_bytes: int
    maximum_bytes: int
    flags: int
    _fields_: ClassVar = [
        ("probability_q32", ctypes.c_uint64),
        ("minimum_bytes", ctypes.c_uint32),
        ("maximum_bytes", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
    ]


class AqmQueue(ctypes.Structure):
    """struct dlcp_aqm_queue"""

    reserved_bytes: int
    limit_bytes: int
    alpha_q8: int
    averaging: int
    profiles: ctypes.Array[AqmProfile]
    _fields_: ClassVar = [
        ("reserved_bytes", ctypes.c_uint32),
        ("limit_bytes", ctypes.c_uint32),
        ("alpha_q8", ctypes.c_uint32),
        ("averaging", ctypes.c_uint32),
        ("profiles", AqmProfile * PRECEDENCES),
    ]


class AqmPort(ctypes.Structure):
    """struct dlcp_aqm_port"""

    buffer_bytes: int
    common_bytes: int
    queues: ctypes.Array[AqmQueue]
    _fields_: ClassVar = [
        ("buffer_bytes", ctypes.c_uint32),
        ("common_bytes", ctypes.c_uint32),
        ("queues", AqmQueue * QUEUES),
    ]


class AqmAverage(ctypes.Structure):
    """struct dlcp_aqm_average"""

    bytes_q16: int
    idle_since_ns: int
    _fields_: ClassVar = [("bytes_q16", ctypes.c_uint64), ("idle_since_ns", ctypes.c_uint64)]


class SwitchConfig(ctypes.Structure):
    """struct dlcp_switch_config"""

    load_balancing: int
    seed: int
    flowlet_gap_ns: int
    shared_bytes: int
    _fields_: ClassVar = [
        ("load_balancing", ctypes.c_uint32),
        ("seed", ctypes.c_uint32),
        ("flowlet_gap_ns", ctypes.c_uint64),
        ("shared_bytes", ctypes.c_uint64),
    ]


class PortConfig(ctypes.Structure):
    """struct dlcp_port_config"""

    switch_index: int
    flags: int
    epoch: int
    cuts: int
    loss_q32: int
    frame_ns: int
    aqm: AqmPort
    _fields_: ClassVar = [
        ("switch_index", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("epoch", ctypes.c_uint32),
        ("cuts", ctypes.c_uint32),
        ("loss_q32", ctypes.c_uint64),
        ("frame_ns", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
        ("aqm", AqmPort),
    ]


class RouteKey(ctypes.Structure):
    """struct dlcp_route_key; destination as its four bytes stand in the IPv4 header"""

    switch_index: int
    destination: ctypes.Array[ctypes.c_uint8]
    _fields_: ClassVar = [("switch_index", ctypes.c_uint32), ("destination", ctypes.c_uint8 * 4)]


class Route(ctypes.Structure):
    """struct dlcp_route"""

    count: int
    turn: int
    ifindex: ctypes.Array[ctypes.c_uint32]
    _fields_: ClassVar = [
        ("count", ctypes.c_uint32),
        ("turn", ctypes.c_uint32),
        ("ifindex", ctypes.c_uint32 * MAX_NEXT_HOPS),
    ]


class Flowlet(ctypes.Structure):
    """struct dlcp_flowlet"""

    last_ns: int
    draw: int
    _fields_: ClassVar = [("last_ns", ctypes.c_uint64), ("draw", ctypes.c_uint32), ("padding", ctypes.c_uint32)]


class Tally(ctypes.Structure):
    """struct dlcp_tally"""

    packets: int
    bytes: int
    _fields_: ClassVar = [("packets", ctypes.c_uint64), ("bytes", ctypes.c_uint64)]


class PrecedenceCounters(ctypes.Structure):
    """struct dlcp_precedence_counters"""

    enqueued: Tally
    sent: Tally
    severed: Tally
    dropped_wred: Tally
    dropped_tail: Tally
    dropped_shared: Tally
    dropped_loss: Tally
    dropped_down: Tally
    dropped_unrouted: Tally
    marked_ce: Tally
    _fields_: ClassVar = [
        ("enqueued", Tally),
        ("sent", Tally),
        ("severed", Tally),
        ("dropped_wred", Tally),
        ("dropped_tail", Tally),
        ("dropped_shared", Tally),
        ("dropped_loss", Tally),
        ("dropped_down", Tally),
        ("dropped_unrouted", Tally),
        ("marked_ce", Tally),
    ]


class QueueState(ctypes.Structure):
    """struct dlcp_queue_state"""

    peak_bytes: int
    doomed_packets: int
    average: AqmAverage
    precedences: ctypes.Array[PrecedenceCounters]
    histogram: ctypes.Array[ctypes.c_uint64]
    _fields_: ClassVar = [
        ("peak_bytes", ctypes.c_uint64),
        ("doomed_packets", ctypes.c_uint64),
        ("average", AqmAverage),
        ("precedences", PrecedenceCounters * PRECEDENCES),
        ("histogram", ctypes.c_uint64 * HISTOGRAM_BUCKETS),
    ]


class PortState(ctypes.Structure):
    """struct dlcp_port_state"""

    lock: int
    epoch: int
    cuts: int
    beyond_bytes: int
    not_ipv4: Tally
    queues: ctypes.Array[QueueState]
    _fields_: ClassVar = [
        ("lock", ctypes.c_uint32),
        ("epoch", ctypes.c_uint32),
        ("cuts", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
        ("beyond_bytes", ctypes.c_uint64),
        ("not_ipv4", Tally),
        ("queues", QueueState * QUEUES),
    ]


class Backlogs(ctypes.Structure):
    """struct dlcp_backlogs"""

    bytes: ctypes.Array[ctypes.c_uint64]
    _fields_: ClassVar = [("bytes", ctypes.c_uint64 * QUEUES)]


class BoxHop(ctypes.Structure):
    """struct dlcp_box_hop"""

    ifindex: int
    gateway: int
    draw: int
    _fields_: ClassVar = [("ifindex", ctypes.c_uint32), ("gateway", ctypes.c_uint32), ("draw", ctypes.c_uint32)]


class BoxTurns(ctypes.Structure):
    """struct dlcp_box_turns"""

    count: int
    turn: int
    hops: ctypes.Array[BoxHop]
    _fields_: ClassVar = [
        ("count", ctypes.c_uint32),
        ("turn", ctypes.c_uint32),
        ("hops", BoxHop * MAX_NEXT_HOPS),
    ]
