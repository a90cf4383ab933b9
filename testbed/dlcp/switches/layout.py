"""The values of the emulated switch's maps, field by field as native/switch_maps.h and native/aqm.h lay them out.

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
FLOW_HASH = 0
PER_PACKET = 1


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
    profiles: ctypes.Array[AqmProfile]
    _fields_: ClassVar = [
        ("reserved_bytes", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
        ("profiles", AqmProfile * PRECEDENCES),
    ]


class AqmPort(ctypes.Structure):
    """struct dlcp_aqm_port"""

    buffer_bytes: int
    queues: ctypes.Array[AqmQueue]
    _fields_: ClassVar = [
        ("buffer_bytes", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
        ("queues", AqmQueue * QUEUES),
    ]


class SwitchConfig(ctypes.Structure):
    """struct dlcp_switch_config"""

    load_balancing: int
    seed: int
    _fields_: ClassVar = [("load_balancing", ctypes.c_uint32), ("seed", ctypes.c_uint32)]


class PortConfig(ctypes.Structure):
    """struct dlcp_port_config"""

    switch_index: int
    flags: int
    epoch: int
    loss_q32: int
    aqm: AqmPort
    _fields_: ClassVar = [
        ("switch_index", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("epoch", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
        ("loss_q32", ctypes.c_uint64),
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
    ifindex: ctypes.Array[ctypes.c_uint32]
    _fields_: ClassVar = [("count", ctypes.c_uint32), ("ifindex", ctypes.c_uint32 * MAX_NEXT_HOPS)]


class Tally(ctypes.Structure):
    """struct dlcp_tally"""

    packets: int
    bytes: int
    _fields_: ClassVar = [("packets", ctypes.c_uint64), ("bytes", ctypes.c_uint64)]


class PrecedenceCounters(ctypes.Structure):
    """struct dlcp_precedence_counters"""

    enqueued: Tally
    dropped_wred: Tally
    dropped_tail: Tally
    dropped_loss: Tally
    marked_ce: Tally
    _fields_: ClassVar = [
        ("enqueued", Tally),
        ("dropped_wred", Tally),
        ("dropped_tail", Tally),
        ("dropped_loss", Tally),
        ("marked_ce", Tally),
    ]


class QueueState(ctypes.Structure):
    """struct dlcp_queue_state"""

    enqueued: Tally
    dequeued: Tally
    peak_bytes: int
    histogram: ctypes.Array[ctypes.c_uint64]
    precedences: ctypes.Array[PrecedenceCounters]
    _fields_: ClassVar = [
        ("enqueued", Tally),
        ("dequeued", Tally),
        ("peak_bytes", ctypes.c_uint64),
        ("histogram", ctypes.c_uint64 * HISTOGRAM_BUCKETS),
        ("precedences", PrecedenceCounters * PRECEDENCES),
    ]


class PortState(ctypes.Structure):
    """struct dlcp_port_state"""

    lock: int
    epoch: int
    not_ipv4: Tally
    unrouted: Tally
    peak_bytes: int
    queues: ctypes.Array[QueueState]
    _fields_: ClassVar = [
        ("lock", ctypes.c_uint32),
        ("epoch", ctypes.c_uint32),
        ("not_ipv4", Tally),
        ("unrouted", Tally),
        ("peak_bytes", ctypes.c_uint64),
        ("queues", QueueState * QUEUES),
    ]
