"""`dlcp bench switch`: what the emulated switch costs, carries and adds, and how long a fabric takes to come and go."""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from dlcp.bench.channel import Channel
from dlcp.bench.in_namespaces import Say
from dlcp.bench.machine_noise import Watch
from dlcp.bench.statistics import Figure, Report, percentile_figure, pooled_percentile, quantile, ratio_figure
from dlcp.bench.switch.paths import BOX_WAYS
from dlcp.bench.switch.paths import WAYS as _WAYS
from dlcp.errors import MachineCannot, Problem, Problems
from dlcp.isolation.private_namespaces import start_private
from dlcp.model.frames import UDP_OVERHEAD_BYTES
from dlcp.model.sample_size import too_few_for

Part = Literal["cost", "rate", "delay", "size", "box"]
PARTS: tuple[Part, ...] = get_args(Part)
PAYLOAD_BYTES = 1400
WARM_PACKETS = 2_000
FABRICS = ((4, 2, 10), (8, 4, 64), (16, 4, 128))
"""(leaves, spines, hosts)."""
SLOWEST_UP_S = {10: 1.0, 64: 6.0, 128: 12.0}
SLOWEST_DOWN_S = {10: 0.5, 64: 3.0, 128: 6.0}
DEAREST_RATIO = 1.05
FEWEST_PER_S = 150_000
_ANSWER_WITHIN_S = 120.0
WAYS = tuple(_WAYS)
_MISSING_SHARE = 1e-3
"""More than so many packets sent that did not arrive: the figure is not of a path that works."""


@dataclass(frozen=True)
class SwitchOptions:
    """One switch bench.

    only: the parts to run, all if empty. packets: that one round sends on each path. rounds: of the cost part in each
    repeat, of which the quickest counts: an interrupt is no cost of a switch; the rate part sends as many at once.
    seconds: of the light flow, with and without the flood. rate_bps: of the port that is flooded. hosts: of
    the fabrics that are built.
    """

    only: tuple[Part, ...] = ()
    packets: int = 5_000
    rounds: int = 8
    seconds: float = 3.0
    rate_bps: float = 100e6
    hosts: tuple[int, ...] = tuple(hosts for _, _, hosts in FABRICS)
    repeats: int = 5

    def check(self) -> None:
        """Raises Problems with everything that is wrong."""
        known = [hosts for _, _, hosts in FABRICS]
        found = [
            Problem(where, what, hint)
            for wrong, where, what, hint in (
                (not set(self.only) <= set(PARTS), "--only", f"{', '.join(self.only)} is not known", ", ".join(PARTS)),
                (self.packets < 1, "--packets", f"{self.packets} packets", "1 or more; 5000 for a figure to quote"),
                (self.rounds < 1, "--rounds", f"{self.rounds} rounds", "1 or more; 8 for a figure to quote"),
                (self.seconds <= 0, "--seconds", f"{self.seconds} s", "more than 0"),
                (
                    self.rate_bps <= 0 or self.rate_bps > 500e6,
                    "--rate",
                    "a flood of it needs 0 to 500 Mbit/s",
                    "such as --rate 100Mbit/s",
                ),
                (not set(self.hosts) <= set(known), "--hosts", f"fabrics are of {known} hosts", "name some of them"),
                (self.repeats < 1, "--repeats", f"{self.repeats} repeats", "1 or more; 5 for a figure to quote"),
            )
            if wrong
        ]
        if found:
            raise Problems(found)


def bench(options: SwitchOptions, say: Say) -> dict[str, Any]:
    """Every part that is asked for, its variants in turn. Returns Report.data().

    Raises MachineCannot without root, Problem when packets are missing from the account.
    """
    options.check()
    parts: dict[Part, Callable[[SwitchOptions, Say, Report], None]] = {
        "cost": _cost,
        "rate": _rate,
        "delay": _delay,
        "size": _size,
        "box": _box,
    }
    report = Report("switch", "private namespaces", asdict(options))
    with Watch() as watch:
        for part in options.only or PARTS:
            parts[part](options, say, report)
    report.machine = watch.found()
    return report.data()


class Bed:
    """A test bed in a private world of its own. up_s: from the command to its first answer."""

    def __init__(self, kind: str, **options: Any) -> None:
        begun_s = time.monotonic()
        ours, theirs = socket.socketpair()
        with theirs:
            order = [str(theirs.fileno()), json.dumps([kind, options])]
            self._process = start_private("dlcp.bench.switch.testbed:main", order, pass_fds=(theirs.fileno(),))
        self._channel = Channel(ours, f"the {kind} bed")
        self.ready = False
        self._begun_s = begun_s
        self.up_s = 0.0

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """A command's answer. Problem with the bed's own words when it fails."""
        self._channel.send({"do": do, **arguments})
        answer = self._channel.receive(_ANSWER_WITHIN_S)
        if not self.ready:
            self.ready, self.up_s = True, time.monotonic() - self._begun_s
        if "error" in answer:
            raise Problem("dlcp bench switch", answer["error"], "this is a defect; please report it")
        return answer

    def end(self) -> float:
        """Seconds from the order to end until its last process has gone."""
        begun_s = time.monotonic()
        self._channel.close()
        self._process.wait()
        return time.monotonic() - begun_s

    def kill(self) -> None:
        """Whatever it does."""
        self._process.stop()


@contextmanager
def beds(kinds: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[list[Bed]]:
    """Beds that end with the block."""
    made: list[Bed] = []
    try:
        for kind, options in kinds:
            made.append(Bed(kind, **options))
        yield made
    finally:
        for bed in made:
            bed.kill()


def _cost(options: SwitchOptions, say: Say, report: Report) -> None:
    """CPU time of one sender by path."""
    found = _costs("cost", WAYS, options, say, report)
    figures = {way: Figure(f"cost a packet, {way}", "µs", "lower", tuple(values)) for way, values in found.items()}
    per_hop = tuple((three - one) / 2 for three, one in zip(found["3 switches"], found["1 switch"], strict=True))
    ratio = ratio_figure("3 switches ÷ 3 routers", figures["3 switches"], figures["3 routers"], better="lower")
    ratio = Figure(ratio.name, ratio.unit, ratio.better, ratio.values, f"{DEAREST_RATIO}: at most, to be reached")
    report.figures += [*figures.values(), Figure("cost a packet and further hop", "µs", "lower", per_hop), ratio]
    report.notes.append(
        f"cost: CPU time of the thread that sends {PAYLOAD_BYTES} B datagrams, which does the work of every hop up "
        "to the receiver's socket, the quickest round of a repeat; switches have HTB, WRED and all counters, "
        "routers the same HTB tree on every port"
    )


def _costs(part: Part, ways: Sequence[str], options: SwitchOptions, say: Say, report: Report) -> dict[str, list[float]]:
    """Way → CPU time of one sender a packet, in µs, the quickest round of each repeat; the ways in turn."""
    found: dict[str, list[float]] = {way: [] for way in ways}
    with beds([("path", {"way": way}) for way in ways]) as made:
        by_way = dict(zip(ways, made, strict=True))
        for bed in made:
            _blast(bed, WARM_PACKETS, flows=1, read=False)
        for repeat in range(options.repeats):
            say(f"{part}, repeat {repeat + 1} of {options.repeats}")
            quickest = dict.fromkeys(ways, math.inf)
            for turn in range(options.rounds):
                for way in ways if turn % 2 == 0 else ways[::-1]:
                    run = _blast(by_way[way], options.packets, flows=1, read=False)
                    quickest[way] = min(quickest[way], run["cpu_s"] / run["sent"] * 1e6)
                    report.runs.append({"part": part, "variant": way, "repeat": repeat, "round": turn} | run)
            for way in ways:
                found[way].append(quickest[way])
    return found


def _box(options: SwitchOptions, say: Say, report: Report) -> None:
    """What a hop over a Linux box as a switch costs, beside the emulated switch's and plain IP forwarding's."""
    found = _costs("box", tuple(BOX_WAYS), options, say, report)
    hops = {
        name: Figure(
            f"cost a packet and further hop, {name}",
            "µs",
            "lower",
            tuple((three - one) / 2 for three, one in zip(found[more], found[first], strict=True)),
        )
        for name, first, more in (
            ("box", "1 box", "3 boxes"),
            ("emulated switch", "1 switch", "3 switches"),
            ("plain router", "1 plain router", "3 plain routers"),
        )
    }
    report.figures += [
        *hops.values(),
        ratio_figure("hop of a box ÷ of an emulated switch", hops["box"], hops["emulated switch"], better="lower"),
        ratio_figure("hop of a box ÷ of a plain router", hops["box"], hops["plain router"], better="lower"),
    ]
    report.notes.append(
        "box: CPU time as in the cost part; a box routes, then has HTB, WRED and all counters behind an inner veth; a "
        "plain router has no queue at all"
    )


def _rate(options: SwitchOptions, say: Say, report: Report) -> None:
    """Packets a second that two flows bring through three hops, receivers reading."""
    ways = ("3 switches", "3 routers")
    found: dict[str, list[float]] = {way: [] for way in ways}
    with beds([("path", {"way": way}) for way in ways]) as made:
        by_way = dict(zip(ways, made, strict=True))
        for bed in made:
            _blast(bed, WARM_PACKETS, flows=2, read=True)
        for repeat in range(options.repeats):
            for way in ways if repeat % 2 == 0 else ways[::-1]:
                say(f"rate, repeat {repeat + 1} of {options.repeats}: {way}")
                run = _blast(by_way[way], options.packets * options.rounds, flows=2, read=True)
                found[way].append(run["arrived"] / run["seconds"] / 1e3)
                report.runs.append({"part": "rate", "variant": way, "repeat": repeat} | run)
    limit = f"{FEWEST_PER_S // 1000}: at least, to be reached"
    ours = Figure("packets a second, 3 switches", "k/s", "higher", tuple(found["3 switches"]), limit)
    theirs = Figure("packets a second, 3 routers", "k/s", "higher", tuple(found["3 routers"]))
    report.figures += [ours, theirs, ratio_figure("3 switches ÷ 3 routers, rate", ours, theirs, better="higher")]
    report.notes.append(f"rate: two flows of {PAYLOAD_BYTES} B datagrams over four links, two readers")


def _delay(options: SwitchOptions, say: Say, report: Report) -> None:
    """What a low-priority flood adds to a light high-priority flow."""
    quiet: list[list[float]] = []
    loaded: list[list[float]] = []
    flooded = []
    with beds([("light", {"rate_bps": options.rate_bps})]) as (bed,):
        for repeat in range(options.repeats):
            order = ((False, quiet), (True, loaded))
            for flood, runs in order if repeat % 2 == 0 else order[::-1]:
                say(f"delay, repeat {repeat + 1} of {options.repeats}: {'flood' if flood else 'alone'}")
                run = bed.ask("measure", flood=flood, seconds=options.seconds, seed=repeat)
                _require_account(run)
                runs.append(run["delays_s"])
                if flood:
                    flooded.append(run["flooded"])
                report.runs.append({"part": "delay", "variant": "flood" if flood else "alone", "repeat": repeat} | run)
    frame_us = (PAYLOAD_BYTES + UDP_OVERHEAD_BYTES) * 8 / options.rate_bps * 1e6
    for name, runs in (("alone", quiet), ("under the flood", loaded)):
        report.figures.append(percentile_figure(f"light flow p50, {name}", 0.5, runs, scale=1e6, unit="µs"))
        report.figures.append(pooled_percentile(f"light flow p99 of all repeats, {name}", 0.99, runs, 1e6, "µs"))
    why = too_few_for(0.5, min(map(len, [*quiet, *loaded])))
    added = (
        () if why else tuple((quantile(b, 0.5) - quantile(a, 0.5)) * 1e6 for a, b in zip(quiet, loaded, strict=True))
    )
    limit = f"{frame_us:.4g}: one frame time, at most"
    report.figures.append(Figure("light flow p50, added by the flood", "µs", "lower", added, limit, why))
    report.notes.append(
        f"delay: from before the system call to the kernel's time stamp at the receiver; the flood offered "
        f"{min(flooded):.0%} to {max(flooded):.0%} of the port's rate"
    )


def _size(options: SwitchOptions, say: Say, report: Report) -> None:
    """From the command to a fabric that stands, and from the order to end until all of it has gone."""
    for leaves, spines, hosts in FABRICS:
        if hosts not in options.hosts:
            continue
        up, down = [], []
        for repeat in range(options.repeats):
            say(f"size, repeat {repeat + 1} of {options.repeats}: {hosts} hosts")
            with beds([("fabric", {"leaves": leaves, "spines": spines, "hosts": hosts})]) as (bed,):
                ports = bed.ask("ports")["ports"]
                up.append(bed.up_s)
                down.append(bed.end())
            report.runs.append({"part": "size", "hosts": hosts, "repeat": repeat, "up_s": up[-1], "down_s": down[-1]})
        limits = (f"{SLOWEST_UP_S[hosts]:g}: at most", f"{SLOWEST_DOWN_S[hosts]:g}: at most")
        report.figures += [
            Figure(f"bring-up of {hosts} hosts", "s", "lower", tuple(up), limits[0]),
            Figure(f"tear-down of {hosts} hosts", "s", "lower", tuple(down), limits[1]),
        ]
        report.notes.append(
            f"{hosts} hosts: {leaves} leaves, {spines} spines, {ports} link ends; with the start of Python; what the "
            "kernel frees after the last process, in the background, is not in tear-down"
        )


def _blast(bed: Bed, packets: int, *, flows: int, read: bool) -> dict[str, Any]:
    run = bed.ask("blast", packets=packets, payload_bytes=PAYLOAD_BYTES, flows=flows, read=read)
    _require_account(run)
    if run["sent"] - run["arrived"] > _MISSING_SHARE * run["sent"]:
        what = f"{run['sent'] - run['arrived']} of {run['sent']} packets did not arrive"
        raise MachineCannot(
            "dlcp bench switch", what, "the machine drops packets for want of CPU: repeat when it is quiet"
        )
    return run


def _require_account(run: dict[str, Any]) -> None:
    if run["unaccounted"]:
        raise Problem("dlcp bench switch", "; ".join(run["unaccounted"]), "packets are missing: please report it")
