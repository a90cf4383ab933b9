"""The queues of a port, as batch lines for tc, and what tc says of them afterwards.

A switch port is HTB: a class 1:1 at the link's rate, below it one leaf class 1:1q for each queue q, served in strict
priority, queue 7 first; the weighted queues share the lowest priority, by deficit round robin in bytes. A host's port
is the same tree behind a token bucket that never waits: it only cuts the super-packets of TCP and UDP segmentation
offload into packets as they enter, so that the tree interleaves packets. A bucket that shaped would take each packet
out of the tree before its time, and one of a higher queue that comes meanwhile would wait behind it.
All limits are far above what the eBPF program lets in: tc drops nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlcp.errors import Problem
from dlcp.model.frames import FRAME_BYTES
from dlcp.model.qos import QUEUES

_SHORTEST_BYTES = 60
"""Of an Ethernet frame without its check sum: what is shorter is padded."""

_REFERENCE_BPS = 100e6
_BURST_FRAMES = 4
"""Frames that a shaper at 100 Mbit/s may send at once to make up for a late timer. Measured: with 2, late timers cost
up to 2.4 % of the rate on a machine that other work kept half busy; with 4 nothing, and at most 1.2 % with every core
busy. Below that rate it falls with the square: the same lateness is a smaller part of a longer frame time, and what a
shaper has saved up while idle it lets through at once: 4 frames at 10 Mbit/s would take away nearly all queueing. Above
that rate it grows with it, so that it stays the same time."""

_MOST_BURST_FRAMES = 10

_BURST_S = 50e-6
"""The least, and what counts above about 2.4 Gbit/s: a timer is late by some 10 us even on an idle machine."""

_FROZEN_FRAME_BYTES = 60_000
"""What each frame of a frozen queue is charged for: the rate of one in a second is then exact to 1/7500 of it."""

_LEAF_LIMIT_BYTES = 1 << 28
_CUTTER_BPS = 20e9
_CUTTER_BURST_BYTES = 2600
"""A host's token bucket: what is longer than the burst is cut. tc keeps 1 us of its rate: 2500 B, above a frame, below
two."""

_CUTTER = f"tbf rate {_CUTTER_BPS:.0f}bit burst {_CUTTER_BURST_BYTES} limit {_LEAF_LIMIT_BYTES}"

_BURST_UNIT_S = 1e-6
"""tc cuts a burst down to whole microseconds of line time, once on its way in and once on its way out."""

_SHOWN_DIFFERENCES = 5

_UNITS = {"bit": 1, "Kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9, "Tbit": 10**12}


@dataclass(frozen=True)
class Filter:
    """A pinned eBPF program at a clsact hook ("ingress" or "egress"); program_id: the kernel's name for it."""

    hook: str
    pin: Path
    program_id: int


@dataclass(frozen=True)
class Ceiling:
    """What a queue may send at most; charged_bytes: what every frame counts for, however short (0 = its size)."""

    rate_bps: float
    charged_bytes: int = 0


def frozen(stop_s: float) -> Ceiling:
    """After each frame the queue stops for so long, to 0.1 %.

    HTB counts what a class has sent too much in time, and no change of the class forgives it: a frame that costs stop_s
    of a low rate stops the queue for stop_s, whatever its ceiling is when that time is over.
    """
    return Ceiling(_FROZEN_FRAME_BYTES * 8 / stop_s, _FROZEN_FRAME_BYTES)


@dataclass(frozen=True)
class Port:
    """A device to configure. cuts: it cuts super-packets up (a host's port).

    weights: queue → its weight among the weighted queues, which are the lowest ones; the others are strict.
    ceilings: queue → what it may send, where that is not all of the link's rate.
    overhead_bytes: what a frame takes on the line beside its bytes; 0 = the rate is of frame bytes alone.
    """

    device: str
    rate_bps: float
    cuts: bool
    filters: tuple[Filter, ...]
    weights: Mapping[int, int] = field(default_factory=dict)
    ceilings: Mapping[int, Ceiling] = field(default_factory=dict)
    overhead_bytes: int = 0


def port_lines(port: Port) -> list[str]:
    """Lines for `tc -batch` that set up a device that has no qdisc yet."""
    device = port.device
    if port.cuts:
        lines = [f"qdisc add dev {device} root handle 2: {_CUTTER}"]
        lines.append(f"qdisc add dev {device} parent 2:1 handle 1: htb default 10")
    else:
        lines = [f"qdisc add dev {device} root handle 1: htb default 10"]
    lines.append(_line_class(port, "add"))
    for queue in range(QUEUES):
        lines.append(queue_line(port, queue, "add"))
        lines.append(f"qdisc add dev {device} parent 1:1{queue} handle 1{queue}: bfifo limit {_LEAF_LIMIT_BYTES}")
    lines.append(f"qdisc add dev {device} clsact")
    lines += [f"filter add dev {device} {hook.hook} bpf da pinned {hook.pin}" for hook in port.filters]
    return lines


def class_id(queue: int) -> int:
    """As a socket's SO_PRIORITY names a queue's class."""
    return 0x10010 + queue


def rate_lines(port: Port) -> list[str]:
    """Lines that bring a port, set up at another rate, to its rate in place: nothing that waits is lost."""
    return [_line_class(port, "change"), *(queue_line(port, queue, "change") for queue in range(QUEUES))]


def queue_line(port: Port, queue: int, verb: str = "change") -> str:
    """The line that makes ("add") or changes a queue's class."""
    burst = burst_bytes(port.rate_bps)
    ceiling = port.ceilings.get(queue, Ceiling(port.rate_bps))
    shape = f"prio {_htb_priority(port, queue)} burst {FRAME_BYTES} quantum {quantum_bytes(port, queue)}"
    if ceiling.charged_bytes:
        # Linux before 5.17 does not look at mpu: there a short frame is charged up to 2.4 % less
        shape += f" mpu {ceiling.charged_bytes} overhead {ceiling.charged_bytes - FRAME_BYTES} cburst 1"
    else:
        shape += f" cburst {burst}{_overhead(port)}"
    rates = f"rate 8bit ceil {ceiling.rate_bps:.0f}bit"
    return f"class {verb} dev {port.device} parent 1:1 classid 1:1{queue} htb {rates} {shape}"


def quantum_bytes(port: Port, queue: int) -> int:
    """What a queue may send in its turn among those of its priority: a frame times its weight over the smallest."""
    if queue not in port.weights:
        return FRAME_BYTES
    return round(FRAME_BYTES * port.weights[queue] / min(port.weights.values()))


def _line_class(port: Port, verb: str) -> str:
    rate, burst = f"{port.rate_bps:.0f}bit", burst_bytes(port.rate_bps)
    shape = f"burst {burst} cburst {burst} quantum {FRAME_BYTES}{_overhead(port)}"
    return f"class {verb} dev {port.device} parent 1: classid 1:1 htb rate {rate} ceil {rate} {shape}"


def _overhead(port: Port) -> str:
    """The words that charge a class for the line's overhead, also of the shortest frame."""
    return f" mpu {_SHORTEST_BYTES + port.overhead_bytes} overhead {port.overhead_bytes}" if port.overhead_bytes else ""


def burst_bytes(rate_bps: float) -> int:
    """What a shaper of that rate may send at once beyond the frame that is due."""
    relative = rate_bps / _REFERENCE_BPS
    frames = min(_MOST_BURST_FRAMES, _BURST_FRAMES * relative * min(1.0, relative))
    return max(1, int(frames * FRAME_BYTES), int(rate_bps / 8 * _BURST_S))


def show_lines(port: Port) -> list[str]:
    """Lines for `tc -details -batch` whose output `differences` reads, beside the qdiscs."""
    return [f"class show dev {port.device}", *(f"filter show dev {port.device} {hook.hook}" for hook in port.filters)]


def shares(weights: Mapping[int, int]) -> dict[str, float]:
    """Queue → its weight in units of the smallest, to what a quantum in bytes can say."""
    smallest = min(weights.values(), default=1)
    return {str(queue): round(FRAME_BYTES * weight / smallest) / FRAME_BYTES for queue, weight in weights.items()}


def live_shares(shown: str) -> dict[str, float]:
    """The same of a port as tc prints its classes; empty when every queue has a priority of its own."""
    found = re.findall(r"class htb 1:1(\d) .*?prio (\d+) .*?quantum (\d+)", shown)
    lowest = {queue: int(quantum) for queue, priority, quantum in found if int(priority) == QUEUES - 1}
    return {queue: quantum / FRAME_BYTES for queue, quantum in sorted(lowest.items())} if len(lowest) > 1 else {}


def by_device(qdiscs_json: str) -> dict[str, list[dict[str, Any]]]:
    """Device → its qdiscs, of what `tc -json qdisc show` prints."""
    found: dict[str, list[dict[str, Any]]] = {}
    for qdisc in json.loads(qdiscs_json):
        found.setdefault(qdisc.get("dev", ""), []).append(qdisc)
    return found


def differences(port: Port, qdiscs: Sequence[Mapping[str, Any]], shown: str) -> list[str]:
    """How the live state of a port differs from `port_lines`; empty when it does not.

    qdiscs: the device's of `by_device`. shown: what tc prints for `show_lines`.
    """
    return [*_qdisc_differences(port, qdiscs), *_class_differences(port, shown), *_filter_differences(port, shown)]


def require_no_difference(where: str, found: Sequence[str]) -> None:
    """Raises Problem that names what differs."""
    if not found:
        return
    rest = len(found) - _SHOWN_DIFFERENCES
    told = "; ".join(found[:_SHOWN_DIFFERENCES]) + (f"; and {rest} more" if rest > 0 else "")
    raise Problem(where, f"is not configured as intended: {told}", "this is a defect; please report it")


def _htb_priority(port: Port, queue: int) -> int:
    """HTB serves priority 0 first."""
    return QUEUES - 1 if queue in port.weights else QUEUES - 1 - queue


def _qdisc_differences(port: Port, found: Sequence[Mapping[str, Any]]) -> list[str]:
    tree = {"2:": ("tbf", "root"), "1:": ("htb", "2:1")} if port.cuts else {"1:": ("htb", "root")}
    wanted = tree | {f"1{queue}:": ("bfifo", f"1:1{queue}") for queue in range(QUEUES)} | {"ffff:": ("clsact", None)}
    live = {q["handle"]: (q["kind"], "root" if q.get("root") else q.get("parent")) for q in found}
    live["ffff:"] = (live.get("ffff:", (None,))[0], None)
    told = [f"qdisc {h} is {live.get(h)}, not {w}" for h, w in wanted.items() if live.get(h) != w]
    told += [f"qdisc {handle} {what} is not ours" for handle, what in live.items() if handle not in wanted]
    for qdisc in found:
        options = qdisc.get("options", {})
        if qdisc["kind"] == "bfifo" and options.get("limit") != _LEAF_LIMIT_BYTES:
            told.append(f"qdisc {qdisc['handle']} holds {options.get('limit')} B, not {_LEAF_LIMIT_BYTES}")
        if qdisc["kind"] == "tbf":
            told += _off("tbf rate (B/s)", options.get("rate"), _CUTTER_BPS / 8, 1)
            if not FRAME_BYTES <= options.get("burst", 0) < 2 * FRAME_BYTES:
                told.append(f"tbf burst is {options.get('burst')} B: it does not cut packets of a frame")
    return told


def _class_differences(port: Port, shown: str) -> list[str]:
    """Classes as tc prints them; tc 6.1 has no JSON for HTB's."""
    live = {}
    for line in shown.splitlines():
        if match := re.match(r"class htb (\S+) (.*)", line):
            words = match[2].replace("root", "parent root", 1).split()
            live[match[1]] = dict(zip(words[::2], words[1::2], strict=False))
    wanted = {"1:1", *(f"1:1{queue}" for queue in range(QUEUES))}
    if set(live) != wanted:
        return [f"HTB classes are {sorted(live)}, not {sorted(wanted)}"]
    line_bps = port.rate_bps
    told = [*_rate_off("1:1", "rate", live, line_bps), *_rate_off("1:1", "ceil", live, line_bps)]
    charged = dict.fromkeys(live, port.overhead_bytes)
    charged |= {f"1:1{q}": c.charged_bytes - FRAME_BYTES for q, c in port.ceilings.items() if c.charged_bytes}
    for name, overhead_bytes in charged.items():
        told += _off(f"class {name} overhead (B)", int(live[name].get("overhead", "0")), overhead_bytes, 0)
    for queue in range(QUEUES):
        name = f"1:1{queue}"
        ceiling = port.ceilings.get(queue, Ceiling(line_bps))
        told += [*_rate_off(name, "rate", live, 8), *_rate_off(name, "ceil", live, ceiling.rate_bps)]
        if not ceiling.charged_bytes:
            live_bytes = _bytes(live[name].get("cburst", "0b"))
            told += _off(f"class {name} cburst (B)", live_bytes, burst_bytes(line_bps), _rounding_bytes(line_bps))
        told += _off(
            f"class {name} quantum (B)", _bytes(live[name].get("quantum", "0b")), quantum_bytes(port, queue), 0
        )
        for key, value in (("prio", str(_htb_priority(port, queue))), ("parent", "1:1"), ("leaf", f"1{queue}:")):
            if live[name].get(key) != value:
                told.append(f"class {name} has {key} {live[name].get(key)}, not {value}")
    return told


def _filter_differences(port: Port, shown: str) -> list[str]:
    ids = [int(number) for number in re.findall(r"direct-action .*?id (\d+)", shown)]
    wanted = [hook.program_id for hook in port.filters]
    return [] if ids == wanted else [f"eBPF programs at its hooks have the ids {ids}, not {wanted}"]


def _rate_off(name: str, key: str, live: Mapping[str, Mapping[str, str]], wanted_bps: float) -> list[str]:
    """tc prints a rate cut off to the unit that it names."""
    match = re.fullmatch(r"(\d+)([KMGT]?bit)", live[name].get(key, ""))
    if match is None:
        return [f"class {name} has {key} {live[name].get(key)}"]
    unit_bps = _UNITS[match[2]]
    return _off(f"class {name} {key} (bit/s)", int(match[1]) * unit_bps, wanted_bps, unit_bps if unit_bps > 1 else 0)


def _bytes(shown: str) -> int:
    """tc prints "6037b", and with details "6037b/1" (a cell size that means nothing here)."""
    return int(shown.split("/")[0].removesuffix("b"))


def _off(what: str, live: float | None, wanted: float, tolerance: float) -> list[str]:
    if live is not None and abs(live - wanted) <= tolerance:
        return []
    return [f"{what} is {live}, not {wanted:.0f}"]


def _rounding_bytes(rate_bps: float) -> float:
    return 1 + 2 * rate_bps / 8 * _BURST_UNIT_S
