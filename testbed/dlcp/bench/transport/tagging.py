"""`dlcp bench tagging`: what it costs to measure, classify and sort the packets of gradients before they leave.

The C core is driven as the engine drives it, without a socket: a message is handed to the protocol, which tags it, and
a STOP ends it. The references do the same with numpy and with torch.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dlcp.bench.in_namespaces import Say
from dlcp.bench.machine_noise import Watch
from dlcp.bench.statistics import Figure, Report, ratio_figure
from dlcp.bench.transport.endpoint_process import gradients
from dlcp.errors import Problem, Problems
from dlcp.model import units
from dlcp.transport._native import ffi, lib
from dlcp.transport.contract.endpoint import Floats
from dlcp.transport.dlcp_endpoint import METRICS

Packets = npt.NDArray[np.uint8]
Metric = str
_PACKET = int(lib.DLCP_PACKET_ELEMENTS)
_BOUND_PPM = 100_000
_PEER = 1
_COOKIE = 7
_MOST_BYTES = 2_000_000_000
_PROTECTED, _DROPPABLE = 1, 2
_DEPARTED_WITHIN_NS = 1_000_000_000
_COMPARED_PACKETS = 500
_WINDOW_PACKETS = 1000
"""More than are compared: nobody acknowledges them."""
_NUMPY_BLOCK = 64
"""Packets that numpy handles at a time: their values stay in the cache between its passes."""
_LIBC = ctypes.CDLL(None)
_LIBC.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_COPY = "memcpy of the same bytes"


@dataclass(frozen=True)
class TaggingOptions:
    """One tagging bench.

    size_bytes: of the float32 gradients, one tensor. metric: what makes a packet small: mean |g|, L2, or max. rounds:
    timed in each repeat, of which the quickest counts: a page fault or an interrupt is no tagging.
    """

    size_bytes: int = 100_000_000
    metric: Metric = "mean"
    rounds: int = 5
    repeats: int = 5
    seed: int = 1

    def check(self) -> None:
        """Raises Problems with everything that is wrong."""
        found = [
            Problem(where, what, hint)
            for wrong, where, what, hint in (
                (
                    self.size_bytes < 4 * _PACKET or self.size_bytes % 4,
                    "--size",
                    "a tensor is a whole number of float32, and has a packet or more",
                    "such as --size 100MB",
                ),
                (self.size_bytes > _MOST_BYTES, "--size", "more than 2 GB", "make it smaller"),
                (self.repeats < 1, "--repeats", f"{self.repeats} repeats", "1 or more; 5 for a figure to quote"),
                (self.metric not in METRICS, "--metric", f"{self.metric} is not known", ", ".join(METRICS)),
            )
            if wrong
        ]
        if found:
            raise Problems(found)


def bench(options: TaggingOptions, say: Say) -> dict[str, Any]:
    """All variants in turn, one thread each. Returns Report.data(). Problem when the variants disagree."""
    options.check()
    data = gradients(options.seed, 0, options.size_bytes // 4)
    copy = np.empty_like(data)
    with Watch() as watch, Core(data, options.metric) as core:
        variants: dict[str, Callable[[], object]] = {
            "C core": core.tag,
            "numpy": lambda: tag_with_numpy(data, options.metric),
        }
        torch_tag = _with_torch(data, options.metric)
        if torch_tag:
            variants["torch"] = torch_tag
        _require_agreement(data, options.metric)
        variants["one read pass"] = lambda: _read(data)
        variants[_COPY] = lambda: np.copyto(copy, data)
        times: dict[str, list[float]] = {name: [] for name in variants}
        for repeat in range(options.repeats):
            say(f"repeat {repeat + 1} of {options.repeats}")
            for name, run in variants.items():
                times[name].append(min(_timed_s(run) for _ in range(options.rounds)))
    report = Report("tagging", "one thread", asdict(options), machine=watch.found())
    report.runs = [{"variant": name, "seconds": found} for name, found in times.items()]
    report.figures = _figures(times)
    packets = -(-len(data) // _PACKET)
    core_us = min(times["C core"]) / packets * 1e6
    report.notes = [
        f"{units.show_size(options.size_bytes)}, {packets} packets, CPU time: magnitude code, energy, running median, "
        f"class, counting sort; {core_us:.3g} µs a packet",
        "a repeat counts its quickest round; the C core and numpy were compared: same classes, same order of them",
    ]
    if not torch_tag:
        report.notes.append("torch is not installed: left out")
    return report.data()


class Core:
    """The C protocol with one tensor and one peer that never answers but for STOP. No socket, no clock, no thread."""

    def __init__(self, data: Floats, metric: Metric) -> None:
        self._data = data
        config = ffi.new("struct dlcp_config *")
        config.cookie = _COOKIE
        config.selective_drop = lib.DLCP_DROP_WRED
        config.magnitude_metric = METRICS[metric]
        config.link_bps = 1e11
        config.congestion_control = b"fixed"
        config.fixed_window = _WINDOW_PACKETS
        error = ffi.new("char[]", lib.DLCP_ERROR_BYTES)
        self._protocol = lib.dlcp_protocol_new(config, error, lib.DLCP_ERROR_BYTES)
        if self._protocol == ffi.NULL:
            raise Problem("the C core", ffi.string(error).decode())
        self._iteration = 0
        shape = ffi.new("struct dlcp_tensor *")
        shape.elements = len(data)
        shape.queue = 3
        shape.droppable = lib.DLCP_DROPPABLE_SMALL
        for bound in shape.bound:
            bound.bytes_ppm = _BOUND_PPM
            bound.energy_ppm = lib.DLCP_PPM
        self._check(lib.dlcp_protocol_declare(self._protocol, 0, shape))
        self._check(lib.dlcp_protocol_add_peer(self._protocol, _PEER, 0))
        self._source = ffi.new("struct dlcp_source *")
        self._source.data = ffi.cast("void *", data.ctypes.data)
        self._source.elements = len(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        lib.dlcp_protocol_free(self._protocol)

    def tag(self) -> None:
        """Hand the tensor over as one more iteration's push, and end it."""
        key = ffi.new("struct dlcp_key *")
        key.iteration = self._iteration
        key.leg = lib.DLCP_PUSH
        self._check(lib.dlcp_protocol_send(self._protocol, _PEER, key, self._source, 0))
        self._stop()
        self._iteration += 1

    def departures(self) -> list[tuple[int, int]]:
        """(number, class) of each packet of one push, in the order in which they leave."""
        key = ffi.new("struct dlcp_key *")
        key.leg = lib.DLCP_PUSH
        self._check(lib.dlcp_protocol_send(self._protocol, _PEER, key, self._source, 0))
        burst, header = ffi.new("struct dlcp_burst *"), ffi.new("struct dlcp_header *")
        found: list[tuple[int, int]] = []
        packets, now_ns = -(-len(self._data) // _PACKET), 1
        while len(found) < packets:
            if not lib.dlcp_protocol_poll_transmit(self._protocol, now_ns, burst):
                later_ns = lib.dlcp_protocol_next_timer(self._protocol, now_ns)
                if later_ns > now_ns + _DEPARTED_WITHIN_NS:
                    raise Problem("the C core", f"sent {len(found)} of {packets} packets", "please report it")
                now_ns = max(later_ns, now_ns + 1)
                continue
            for i in range(burst.packets):
                lib.dlcp_header_decode(header, burst.head[i], burst.head_bytes + burst.payload_bytes[i])
                if header.type == lib.DLCP_DATA:
                    found.append((header.offset // _PACKET, burst.tos >> 3 & 3))
                elif header.type == lib.DLCP_PROBE:  # the greeting: nothing leaves before its answer
                    self._acknowledge(header.sequence, now_ns)
        return found

    def _acknowledge(self, sequence: int, now_ns: int) -> None:
        ack = ffi.new("struct dlcp_ack *")
        ack.source = _PEER
        ack.cookie = _COOKIE
        ack.largest = sequence
        ack.received = 1
        ack.bitmap[0] = 1
        packet = ffi.new("uint8_t[]", lib.DLCP_ACK_BYTES)
        lib.dlcp_ack_encode(ack, packet)
        lib.dlcp_protocol_input(self._protocol, packet, lib.DLCP_ACK_BYTES, 0, now_ns + 1000, now_ns + 1000, 0)

    def _stop(self) -> None:
        """The receiver's STOP for the message, as it would come from the wire."""
        header = ffi.new("struct dlcp_header *")
        header.type = lib.DLCP_STOP
        header.source = _PEER
        header.cookie = _COOKIE
        header.iteration = self._iteration
        packet = ffi.new("uint8_t[]", lib.DLCP_STOP_BYTES)
        lib.dlcp_header_encode(header, packet)
        lib.dlcp_protocol_input(self._protocol, packet, lib.DLCP_STOP_BYTES, 0, 0, 0, 0)
        completion = ffi.new("struct dlcp_completion *")
        if lib.dlcp_protocol_poll_completion(self._protocol, completion) != 1:
            raise Problem("the C core", "did not end a message at its STOP", "this is a defect; please report it")

    def _check(self, code: int) -> None:
        if code < 0:
            raise Problem("the C core", ffi.string(lib.dlcp_protocol_error(self._protocol)).decode())


def tag_with_numpy(data: Floats, metric: Metric) -> tuple[Packets, npt.NDArray[np.intp]]:
    """Class of each packet, and the order in which they leave: what the core does, as fast as numpy can."""
    whole = len(data) // _PACKET
    rows = data[: whole * _PACKET].reshape(whole, _PACKET)
    found = np.empty(-(-len(data) // _PACKET), np.float32)
    energy = np.empty_like(found)
    scratch, ones = np.empty((_NUMPY_BLOCK, _PACKET), np.float32), np.full(_PACKET, 1 / _PACKET, np.float32)
    for start in range(0, whole, _NUMPY_BLOCK):
        block = rows[start : start + _NUMPY_BLOCK]
        size = np.abs(block, out=scratch[: len(block)])
        energy[start : start + len(block)] = np.einsum("ij,ij->i", block, block)
        found[start : start + len(block)] = size.max(1) if metric == "max" else size @ ones
    if whole < len(found):
        rest = data[whole * _PACKET :]
        energy[whole] = rest @ rest
        found[whole] = np.abs(rest).max() if metric == "max" else np.abs(rest).mean()
    if metric == "l2":
        found = np.sqrt(energy / _PACKET)
    return _classify(found, energy)


def _classify(found: Floats, energy: Floats) -> tuple[Packets, npt.NDArray[np.intp]]:
    limit = np.partition(found, len(found) // 2)[len(found) // 2]
    classes = np.where(found < limit, np.uint8(_DROPPABLE), np.uint8(_PROTECTED))
    np.log2(np.maximum(energy, np.float32(1e-30)))  # the code in the header
    return classes, np.argsort(classes, kind="stable")


def _with_torch(data: Floats, metric: Metric) -> Callable[[], object] | None:
    """The same with torch, on one thread; None where it is not installed."""
    try:
        import torch
    except ModuleNotFoundError:
        return None
    torch.set_num_threads(1)
    whole = len(data) // _PACKET
    rows = torch.from_numpy(data[: whole * _PACKET]).view(whole, _PACKET)
    order = {"mean": 1, "l2": 2, "max": float("inf")}[metric]

    def tag() -> object:
        found = torch.linalg.vector_norm(rows, order, dim=1)
        energy = torch.linalg.vector_norm(rows, 2, dim=1)
        classes = torch.where(found < found.median(), _DROPPABLE, _PROTECTED).to(torch.uint8)
        energy.log2()
        return classes.argsort(stable=True)

    return tag


def _require_agreement(data: Floats, metric: Metric) -> None:
    """What is compared must do the same: core and numpy find the same classes, and sort by them."""
    part = data[: _COMPARED_PACKETS * _PACKET]
    with Core(part, metric) as core:
        left = core.departures()
    classes, _ = tag_with_numpy(part, metric)
    differ = sum(1 for number, one in left if classes[number] != one)
    packets = -(-len(part) // _PACKET)
    ordered = [one for _, one in left] == sorted(one for _, one in left)
    if differ > packets // 100 or not ordered or sorted(number for number, _ in left) != list(range(packets)):
        what = f"the C core and numpy put {differ} of {packets} packets into different classes (sorted: {ordered})"
        raise Problem("dlcp bench tagging", what, "this is a defect; please report it")


def _read(data: Floats) -> None:
    """Every byte once, at the memory's pace: libc's memcmp of the data with themselves."""
    if _LIBC.memcmp(data.ctypes.data, data.ctypes.data, data.nbytes):
        raise AssertionError("memory differs from itself")


def _timed_s(run: Callable[[], object]) -> float:
    """CPU time of this thread, which does all of it: others' work on the machine only shows through the caches."""
    begun_s = time.thread_time()
    run()
    return time.thread_time() - begun_s


def _figures(times: dict[str, list[float]]) -> list[Figure]:
    found = {name: Figure(name, "ms", "lower", tuple(1e3 * one for one in values)) for name, values in times.items()}
    core = found["C core"]
    figures = [Figure("C core", "ms", "lower", core.values, f"{found['one read pass'].best:.3g}: one read pass")]
    for name, one in found.items():
        if name != "C core":
            figures += [one, ratio_figure(f"C core ÷ {name}", core, one, better="lower")]
    return figures
