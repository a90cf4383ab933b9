"""DLCP's end of a rank: the native engine behind the Endpoint protocol. No Python touches a packet."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from dlcp.model.transport.settings import TransportSettings
from dlcp.transport._native import ffi, lib
from dlcp.transport.contract.endpoint import (
    RELIABLE,
    Bound,
    Completion,
    Counts,
    Deadline,
    Droppable,
    Dtype,
    Leg,
    MessageKey,
    Placement,
    TransportError,
    Values,
)
from dlcp.transport.contract.values import check_placement, held_as, packets

NS = 1_000_000_000
WAIT_SLICE_S = 0.5
"""A wait returns to Python so often, so that a signal (Ctrl-C) is seen."""
COMPLETIONS_AT_ONCE = 64
_PPM = lib.DLCP_PPM
_DTYPES: dict[Dtype, int] = {
    "float32": lib.DLCP_FLOAT32,
    "float16": lib.DLCP_FLOAT16,
    "bfloat16": lib.DLCP_BFLOAT16,
    "uint8": lib.DLCP_UINT8,
}
_PLACEMENTS = {
    Placement.ZERO: lib.DLCP_PLACE_ZERO,
    Placement.KEEP: lib.DLCP_PLACE_KEEP,
    Placement.ADD: lib.DLCP_PLACE_ADD,
}
METRICS = {"mean": lib.DLCP_METRIC_MEAN, "l2": lib.DLCP_METRIC_L2, "max": lib.DLCP_METRIC_MAX}
"""TransportSettings.magnitude_metric → the core's name."""
_SELECTIVE_DROP = {"off": lib.DLCP_DROP_OFF, "wred": lib.DLCP_DROP_WRED, "ect": lib.DLCP_DROP_ECT}


class DlcpEndpoint:
    """One rank's end over DLCP. One thread waits, any may declare, receive and send; the engine's own thread moves the
    packets.

    rank, address, port: this rank, and the IPv4 address and UDP port that it binds (0 = any; see `port`).
    peers: rank → (IPv4 address, port). job_cookie: 32 bits, the same at every rank; packets with another one are
    dropped. link_rate_bps: of this host's link, the pace of everything it sends.
    Under settings.time_dilation the engine's own times, and those given here, are lab seconds, each as many seconds of
    this host; what the methods take and return (deadlines, timeouts, completions, round-trip times) is of this host.
    silence_s: a peer that owes something and says nothing for so long is gone (it is asked before).
    first_contact_s: the same for a peer that was never heard. timer_floor_s: least time before a probe is repeated;
    0: derived from what the two hosts are seen to take. source_ports: bursts of data leave from so many UDP ports in
    turn (1 to 16), for networks that choose a path by ports; peers must be told the others (`source_ports`, add_peer).
    receive_bytes: wanted receive buffer.
    Raises TransportError when the socket cannot be had.
    """

    def __init__(
        self,
        rank: int,
        address: str,
        port: int,
        peers: dict[int, tuple[str, int]],
        settings: TransportSettings,
        *,
        job_cookie: int,
        link_rate_bps: float,
        silence_s: float = 10.0,
        first_contact_s: float = 60.0,
        timer_floor_s: float = 0.0,
        segmentation: bool = True,
        source_ports: int = 1,
        receive_bytes: int = 8 << 20,
    ) -> None:
        self.rank = rank
        self._must_arrive_ppm = round(settings.must_arrive_largest * _PPM)
        self._shapes: dict[int, tuple[int, Dtype]] = {}
        self._held: dict[tuple[bool, int, MessageKey], tuple[Any, ...]] = {}
        self._events = ffi.new("struct dlcp_completion[]", COMPLETIONS_AT_ONCE)
        config = ffi.new("struct dlcp_engine_config *")
        config.address = address.encode()
        config.port = port
        config.segmentation_off = not segmentation
        config.source_ports = source_ports
        config.receive_bytes = receive_bytes
        config.protocol.cookie = job_cookie
        config.protocol.rank = rank
        configure(config.protocol, settings)
        config.protocol.link_bps = link_rate_bps
        config.time_dilation = settings.time_dilation
        config.protocol.timer_floor_ns = round(timer_floor_s * NS)
        config.protocol.silence_ns = round(silence_s * NS)
        config.protocol.first_contact_ns = round(first_contact_s * NS)
        error = ffi.new("char[]", lib.DLCP_ERROR_BYTES)
        self._engine = lib.dlcp_engine_new(config, error, lib.DLCP_ERROR_BYTES)
        if self._engine == ffi.NULL:
            raise TransportError(f"rank {rank}: {ffi.string(error).decode()}")
        self._peers: list[int] = []
        for peer, (peer_address, peer_port) in sorted(peers.items()):
            self.add_peer(peer, peer_address, peer_port)

    @property
    def port(self) -> int:
        """The UDP port that is bound."""
        return int(lib.dlcp_engine_port(self._open()))

    @property
    def source_ports(self) -> tuple[int, ...]:
        """The UDP ports that data leave from besides `port`; for every peer's add_peer."""
        ports = ffi.new("uint16_t[]", lib.DLCP_SOURCE_PORTS_MOST)
        return tuple(ports[0 : lib.dlcp_engine_source_ports(self._open(), ports)])

    def add_peer(self, rank: int, address: str, port: int, source_ports: Sequence[int] = ()) -> None:
        """Learn where a rank is: its address, `port` and `source_ports`. TransportError when the address is none, the
        rank is known, or the path to it carries only packets of less than 1500 bytes."""
        ports = ffi.new("uint16_t[]", list(source_ports))
        code = lib.dlcp_engine_add_peer(self._open(), rank, address.encode(), port, ports, len(ports))
        self._check(code)
        self._peers.append(rank)

    def declare(
        self,
        tensor: int,
        elements: int,
        *,
        queue: int,
        droppable: Droppable = Droppable.NONE,
        must_arrive: bool = False,
        push_bound: Bound = RELIABLE,
        pull_bound: Bound = RELIABLE,
        dtype: Dtype = "float32",
        variable: bool = False,
    ) -> None:
        """See Endpoint. TransportError when something is out of range, or was declared otherwise before."""
        if dtype == "uint8" and droppable:
            raise ValueError(f"tensor {tensor}: uint8 has no magnitude by which its packets could be droppable")
        shape = ffi.new("struct dlcp_tensor *")
        shape.elements = elements
        shape.bound = [_native_bound(push_bound), _native_bound(pull_bound)]
        shape.dtype = _DTYPES[dtype]
        shape.queue = queue
        shape.droppable = int(droppable)
        shape.must_arrive = must_arrive or variable
        shape.variable = variable
        shape.must_arrive_ppm = 0 if dtype == "uint8" else self._must_arrive_ppm
        self._check(lib.dlcp_engine_declare(self._open(), tensor, shape))
        self._shapes[tensor] = elements, dtype

    def receive(
        self,
        peer: int,
        key: MessageKey,
        buffer: Values,
        *,
        placement: Placement = Placement.ZERO,
        bound: Bound | None = None,
        deadline: Deadline | tuple[Deadline, ...] | None = None,
        contributors: Counts | None = None,
    ) -> None:
        """See Endpoint. ValueError unless the arrays are contiguous, writeable and of the tensor's dtype and sizes."""
        check_placement(key, self._shape(key)[1], placement)
        to = ffi.new("struct dlcp_destination *")
        to.buffer = self._pointer(key, buffer, writeable=True)
        to.elements = buffer.size
        to.placement = _PLACEMENTS[placement]
        to.bound = kept = ffi.NULL if bound is None else ffi.new("struct dlcp_bound *", _native_bound(bound))
        to.deadlines = until = _native_deadlines(deadline)
        to.deadline_count = len(until)
        to.contributors = self._counts_pointer(key, contributors, writeable=True)
        with self._holding((True, peer, key), (buffer, contributors, kept, until)):
            self._check(lib.dlcp_engine_receive(self._open(), peer, _native_key(key), to))

    def send(
        self,
        peer: int,
        key: MessageKey,
        data: Values,
        *,
        bound: Bound | None = None,
        contributors: Counts | None = None,
    ) -> None:
        """See Endpoint. ValueError unless the arrays are contiguous and of the tensor's dtype and sizes."""
        source = ffi.new("struct dlcp_source *")
        source.data = self._pointer(key, data)
        source.elements = data.size
        source.bound = kept = ffi.NULL if bound is None else ffi.new("struct dlcp_bound *", _native_bound(bound))
        source.contributors = self._counts_pointer(key, contributors)
        with self._holding((False, peer, key), (data, kept)):
            self._check(lib.dlcp_engine_send(self._open(), peer, _native_key(key), source))

    def wait(self, timeout_s: float) -> list[Completion]:
        """See Endpoint. TransportError names the rank that is gone and what it owed."""
        left_ns = round(max(timeout_s, 0.0) * NS)
        while True:
            slice_ns = min(left_ns, round(WAIT_SLICE_S * NS))
            count = lib.dlcp_engine_wait(self._open(), slice_ns, self._events, COMPLETIONS_AT_ONCE)
            left_ns -= slice_ns
            if count < 0:
                self._check(count)
            if count or left_ns <= 0:
                return [self._completion(self._events[i]) for i in range(count)]

    def pending(self) -> str:
        """What is under way, peer by peer, in words: for the error of whoever waited too long."""
        text = ffi.new("char[]", 4096)
        lib.dlcp_engine_describe(self._open(), text, 4096)
        return str(ffi.string(text).decode())

    def statistics(self) -> dict[str, Any]:
        """Counters since the start (engine.h and protocol.h name them); "peers": rank → round-trip times, window."""
        native = ffi.new("struct dlcp_engine_statistics *")
        lib.dlcp_engine_statistics(self._open(), native)
        found = _as_dict(native[0])
        found.update(found.pop("protocol"))
        found["peers"] = {}
        one = ffi.new("struct dlcp_peer_statistics *")
        for rank in sorted(self._peers):
            self._check(lib.dlcp_engine_peer_statistics(self._engine, rank, one))
            found["peers"][rank] = _as_dict(one[0])
        below = lib.DLCP_FRAME_OVERHEAD_BYTES - lib.DLCP_HEADER_BYTES  # what the kernel puts before a datagram
        found["wire"] = {
            "sent_packets": found["packets_sent"],
            "sent_bytes": found["bytes_sent"] + below * found["packets_sent"],
            "received_packets": found["packets_received"],
            "received_bytes": found["bytes_received"] + below * found["packets_received"],
            "resent_packets": found["packets_resent"],
            "resent_bytes": found["bytes_resent"],
        }
        return found

    def close(self, *, linger: bool = True) -> None:
        """See Endpoint. Answers what peers still ask, then ends: takes about 0.1 s, up to 1 s while something is not
        over. linger: False when the job has failed and no answer matters any more."""
        engine, self._engine = self._engine, ffi.NULL
        (lib.dlcp_engine_close if linger else lib.dlcp_engine_abort)(engine)
        self._held.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> Any:
        if self._engine == ffi.NULL:
            raise TransportError(f"rank {self.rank}: this endpoint is closed")
        return self._engine

    def _check(self, code: int) -> None:
        if code < 0:
            raise TransportError(f"rank {self.rank}: {ffi.string(lib.dlcp_engine_error()).decode()}")

    @contextlib.contextmanager
    def _holding(self, name: tuple[bool, int, MessageKey], arrays: tuple[Any, ...]) -> Iterator[None]:
        """Keep a message's arrays alive until its completion, which may come before the submission returns."""
        before = self._held.get(name)
        self._held[name] = arrays
        try:
            yield
        except BaseException:
            if before is None:
                del self._held[name]
            else:
                self._held[name] = before
            raise

    def _shape(self, key: MessageKey) -> tuple[int, Dtype]:
        if key.tensor not in self._shapes:
            raise TransportError(f"rank {self.rank}: tensor {key.tensor} was not declared")
        return self._shapes[key.tensor]

    def _pointer(self, key: MessageKey, array: Values, *, writeable: bool = False) -> Any:
        dtype = self._shape(key)[1]
        if array.dtype != held_as(dtype) or array.ndim != 1 or not array.flags.c_contiguous:
            held = dtype if dtype != "bfloat16" else "bfloat16 (held as uint16)"
            what = f"{array.dtype} {array.shape}"
            raise ValueError(f"tensor {key.tensor}: a 1-D contiguous {held} array is needed, not {what}")
        if writeable and not array.flags.writeable:
            raise ValueError(f"the buffer for tensor {key.tensor} is read-only")
        return ffi.cast("void *", array.ctypes.data)

    def _counts_pointer(self, key: MessageKey, counts: Counts | None, *, writeable: bool = False) -> Any:
        if counts is None:
            return ffi.NULL
        elements, dtype = self._shape(key)
        wanted = packets(elements, dtype)
        if counts.dtype != np.uint16 or counts.shape != (wanted,) or not counts.flags.c_contiguous:
            what = f"{counts.dtype} {counts.shape}"
            raise ValueError(f"tensor {key.tensor} has {wanted} packets: as many contiguous uint16, not {what}")
        if writeable and not counts.flags.writeable:
            raise ValueError(f"the contributors of tensor {key.tensor} are read-only")
        return ffi.cast("uint16_t *", counts.ctypes.data)

    def _completion(self, native: Any) -> Completion:
        key = MessageKey(native.key.iteration, native.key.tensor, Leg(native.key.leg), native.key.step)
        received = bool(native.received)
        self._held.pop((received, native.peer, key), None)
        return Completion(
            peer=native.peer,
            key=key,
            received=received,
            bytes=native.bytes,
            delivered_bytes=native.delivered_bytes,
            lost_bytes=native.lost_bytes,
            resent_bytes=native.resent_bytes,
            probes=native.probes,
            start_s=native.start_ns / NS,
            end_s=native.end_ns / NS,
            lost_energy_share=native.lost_energy_share,
            first_s=native.first_ns / NS,
        )


def configure(native: Any, settings: TransportSettings) -> None:
    """Fill in what a scheme says of a struct dlcp_config, whose times are of the lab as the scheme's are."""
    native.selective_drop = _SELECTIVE_DROP[settings.selective_drop]
    native.magnitude_metric = METRICS[settings.magnitude_metric]
    native.eager_stop = settings.stop == "eager"
    native.t_low_ns = round(settings.t_low_s * NS)
    native.t_high_ns = round(settings.t_high_s * NS)
    native.fixed_window = settings.fixed_window
    native.tag_all = settings.tag_all
    native.resend_last = settings.resend_last
    native.demote_after_bytes = list(settings.demote_after_bytes)
    native.congestion_control = settings.congestion_control.encode()


def _native_bound(bound: Bound) -> list[int]:
    """Parts per million, never more than the share; a millionth part of that is forgiven to its rounding."""
    return [int(share * _PPM + 1e-6) for share in (bound.bytes_share, bound.energy_share)]


def _native_deadlines(deadline: Deadline | tuple[Deadline, ...] | None) -> Any:
    given = () if deadline is None else (deadline,) if isinstance(deadline, Deadline) else deadline
    return ffi.new(
        "struct dlcp_deadline[]",
        [(_instant(one.at_s), _instant(one.after_first_s), math.ceil(one.share * _PPM - 1e-6)) for one in given],
    )


def _instant(at_s: float) -> int:
    """Nanoseconds; 0 for never."""
    return 0 if at_s == math.inf else max(1, round(at_s * NS))


def _native_key(key: MessageKey) -> Any:
    native = ffi.new("struct dlcp_key *")
    native.iteration = key.iteration
    native.tensor = key.tensor
    native.leg = key.leg
    native.step = key.step
    return native


def _as_dict(struct: Any) -> dict[str, Any]:
    """A native struct's fields; nested structs as nested dicts."""
    found: dict[str, Any] = {}
    for name, field in ffi.typeof(struct).fields:
        value = getattr(struct, name)
        found[name] = _as_dict(value) if field.type.kind == "struct" else value
    return found
