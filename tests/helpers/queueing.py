"""Queues in theory and in the emulated switch: Poisson sources with achieved send times, and what should come of them.

Times are seconds. A frame's waiting time is what it spent in the switch behind others: its arrival by the receiving
kernel's time stamp, less the moment before it was sent, less the transit of a frame that met nobody.
"""

from __future__ import annotations

import heapq
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from traffic import tos, udp

from dlcp.agents.machine_monitor import SAMPLE_INTERVAL_S, MachineMonitor
from dlcp.model.frames import UDP_OVERHEAD_BYTES
from dlcp.substrates.emulate.fabric import Fabric

Times = npt.NDArray[np.float64]

FRAME_BYTES = 1500
PAYLOAD_BYTES = FRAME_BYTES - UDP_OVERHEAD_BYTES
MOST_STOLEN = 0.02
MOST_BUSY = 0.85
"""Mean share of all cores: above it a deviation may be the machine's."""
MOST_SOFTIRQ_WAIT = 0.02
"""Shapers run in softirqs; what these put off to ksoftirqd waits there behind every process."""

LATEST_S = 0.001
"""A machine whose wake-ups ahead of all processes come so late is late with its shapers too."""
LONGEST_STALL_S = 0.005
"""A core that stood still for so long, once, may have moved a mean: a stall of X s at load ρ delays the frames of the
next X / (1 - ρ) s by up to X, all of it in the lowest class."""
STALL_PROBE = """
import os, select, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
longest_s, due_s = 0.0, time.monotonic()
print(flush=True)
while not select.select([0], [], [], 0)[0]:
    due_s = max(due_s + 0.002, time.monotonic() - 1)
    time.sleep(max(0.0, due_s - time.monotonic()))
    longest_s = max(longest_s, time.monotonic() - due_s)
print(longest_s)
"""
"""A process of one core ahead of all others, which wakes every 2 ms until its input ends: how late it was at most."""
_PORT = 9000
_SO_TIMESTAMPNS = 35
_SETTLE_S = 0.05
_NUMBER = struct.Struct("=I")


@dataclass(frozen=True)
class Journey:
    """One run of a plan. In order of sending: queue, when it left and arrived (NaN = lost)."""

    queue: npt.NDArray[np.int64]
    left_s: Times
    arrived_s: Times
    machine: dict[str, float] = field(default_factory=dict)


@contextmanager
def ahead_of_others() -> Iterator[None]:
    """The calling thread goes before every ordinary process: a source that comes late is another source."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def poisson(
    loads: dict[int, float], service_s: float, seconds: float, seed: int
) -> tuple[Times, npt.NDArray[np.int64]]:
    """Arrivals of independent Poisson classes (queue → load): times from 0, and each one's queue."""
    random = np.random.default_rng(seed)
    times, queues = [], []
    for queue, load in loads.items():
        count = random.poisson(load / service_s * seconds)
        times.append(np.sort(random.uniform(0, seconds, count)))
        queues.append(np.full(count, queue))
    all_times, all_queues = np.concatenate(times), np.concatenate(queues)
    order = np.argsort(all_times, kind="stable")
    return all_times[order], all_queues[order]


class Bench:
    """Senders, one for each queue and each at a host of its own (host h1 for the first), and a receiver at the last."""

    def __init__(self, fabric: Fabric, hosts: Sequence[str], queues: Sequence[int]) -> None:
        self._senders = {q: udp(fabric, host, tos_byte=tos(q)) for q, host in zip(queues, hosts[:-1], strict=True)}
        self._receiver = udp(fabric, hosts[-1], port=_PORT)
        self._receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._receiver.setblocking(False)
        self._to = (fabric.address(hosts[-1]), _PORT)

    def transit_s(self, frames: int = 100) -> float:
        """What a frame that meets nobody takes: the median, after one that warms the path."""
        queue = next(iter(self._senders))
        journey = self.send(np.arange(frames + 1) * 0.004, np.full(frames + 1, queue))
        return float(np.median((journey.arrived_s - journey.left_s)[1:]))

    def send(self, planned_s: Times, queue: npt.NDArray[np.int64], drain_s: float = _SETTLE_S) -> Journey:
        """Send by plan and wait until the last frame is in; drain_s: how long the fullest queue may take."""
        left_s = np.empty(len(planned_s))
        rest = bytes(PAYLOAD_BYTES - _NUMBER.size)
        frames = [_NUMBER.pack(number) + rest for number in range(len(planned_s))]
        senders = [self._senders[int(q)] for q in queue]
        with Watch() as watch, ahead_of_others():
            begun_s = time.monotonic() + _SETTLE_S
            for number, due in enumerate((planned_s + begun_s).tolist()):
                wait_s = due - time.monotonic()
                if wait_s > 0:
                    time.sleep(wait_s)
                    watch.late_s.append(time.monotonic() - due)
                left_s[number] = time.time()
                senders[number].sendto(frames[number], self._to)
            time.sleep(drain_s)
        return Journey(queue, left_s, self._arrivals(len(planned_s)), watch.found)

    def _arrivals(self, count: int) -> Times:
        arrived = np.full(count, np.nan)
        while True:
            try:
                data, control, _, _ = self._receiver.recvmsg(2048, 128)
            except BlockingIOError:
                return arrived
            seconds, nanoseconds = struct.unpack("@ll", control[0][2])
            arrived[_NUMBER.unpack_from(data)[0]] = seconds + nanoseconds / 1e9


def served(left_s: Times, queue: npt.NDArray[np.int64], service_s: float, slack_s: float = 0.0) -> Times:
    """Waiting times in a strict-priority server, higher queues first, first come first served within, nobody
    interrupted: what each frame of a sample path spends before its service begins.

    slack_s: what a token bucket saves up while it has nothing to do: it serves that much work at once.
    """
    waiting = np.zeros(len(left_s))
    ready: list[tuple[int, int]] = []  # (-queue, number)
    free_s = -np.inf  # when the bucket's debt is paid
    upcoming = 0
    while upcoming < len(left_s) or ready:
        if not ready:
            free_s = max(free_s, left_s[upcoming] - slack_s)
        start_s = free_s
        if not ready:
            start_s = max(start_s, left_s[upcoming])
        while upcoming < len(left_s) and left_s[upcoming] <= start_s:
            heapq.heappush(ready, (-int(queue[upcoming]), upcoming))
            upcoming += 1
        _, number = heapq.heappop(ready)
        begin_s = max(start_s, left_s[number])
        waiting[number] = begin_s - left_s[number]
        free_s = max(free_s, begin_s - slack_s) + service_s
    return waiting


def judged(
    measure: Callable[[int], dict[str, Any]], complaint: Callable[[dict[str, Any]], str], attempts: int = 3
) -> None:
    """Measure (seed → what was seen, with `machine`) until the switch has shown what theory says.

    A measurement that was disturbed says nothing, and one that deviates on a busy machine does not either: when there
    was no other, the test is skipped as inconclusive. One on a quiet machine that deviates fails the test, unless
    another one does not: what disturbs the machine without the monitors' notice does not do so each time, and what is
    wrong with the switch does.
    """
    unclear, wrong = [], []
    for seed in range(1, attempts + 1):
        begun_s, waited_s = time.monotonic(), softirq_wait_s()
        seen = measure(seed)
        seen["machine"]["softirq_wait"] = (softirq_wait_s() - waited_s) / (time.monotonic() - begun_s)
        found = complaint(seen)
        print(f"seed {seed}: {found or 'as theory says'}: {seen}")
        if disturbed := disturbances(seen["machine"]):
            unclear.append(disturbed)
        elif not found:
            return
        elif load := business(seen["machine"]):
            unclear.append(f"{found}, while {load}")
        else:
            wrong.append(f"seed {seed}: {found}")
    if wrong:
        pytest.fail("; ".join(wrong))
    pytest.skip(f"inconclusive, the machine is too busy ({'; '.join(unclear)}); run it on a quiet one")


def disturbances(machine: dict[str, float]) -> str:
    """What kept the machine from doing the switch's work, so that a measurement says nothing; empty if nothing did."""
    told = []
    if machine["stolen"] > MOST_STOLEN:
        told.append(f"{machine['stolen']:.1%} of the CPU stolen by the hypervisor")
    if machine["softnet_dropped"]:
        told.append(f"{machine['softnet_dropped']:.0f} packets dropped for want of CPU")
    if machine["late_p99_s"] > LATEST_S:
        told.append(f"1 % of the wake-ups {machine['late_p99_s'] * 1e3:.1f} ms late")
    return ", ".join(told)


def business(machine: dict[str, float]) -> str:
    """What may have made the switch's work late, so that a deviation says nothing; empty if nothing may.

    What conforms all the same does conform: mostly, timers and what they start go before every process.
    """
    told = []
    if machine["cpu_busy"] > MOST_BUSY:
        told.append(f"{machine['cpu_busy']:.0%} of the CPU was busy")
    if machine["softirq_wait"] > MOST_SOFTIRQ_WAIT:
        told.append(f"the kernel's network work waited for a core for {machine['softirq_wait']:.1%} of the time")
    if machine["stall_s"] > LONGEST_STALL_S:
        told.append(f"a core stood still for {machine['stall_s'] * 1e3:.0f} ms")
    return " and ".join(told)


def softirq_wait_s() -> float:
    """How long ksoftirqd, of all cores, has waited for its core since boot. Outside of the private world: its processes
    are not seen inside. 0 where the kernel does not count it."""
    waited_ns = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text(encoding="utf-8").startswith("ksoftirqd/"):
                waited_ns += int((process / "schedstat").read_text(encoding="ascii").split()[1])
        except OSError:
            continue  # it has ended meanwhile, or there is no such file
    return waited_ns / 1e9


class StallProbes:
    """A STALL_PROBE on each core while the block runs."""

    def __enter__(self) -> StallProbes:
        self._probes = [
            subprocess.Popen(
                [sys.executable, "-ISc", STALL_PROBE, str(core)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            for core in sorted(os.sched_getaffinity(0))
        ]
        for probe in self._probes:
            assert probe.stdout is not None
            probe.stdout.readline()
        return self

    def __exit__(self, *_: object) -> None:
        self.longest_s = max(float(probe.communicate()[0]) for probe in self._probes)


class Watch:
    """What disturbs a measurement while the block runs. late_s: to be filled with how late the measurer woke."""

    def __enter__(self) -> Watch:
        self._stalls = StallProbes().__enter__()
        self._monitor = MachineMonitor()
        self._monitor.__enter__()
        self._ticks = _ticks()
        self._begun_s = time.monotonic()
        self.late_s: list[float] = []
        return self

    def __exit__(self, *_: object) -> None:
        ended_s = time.monotonic()
        time.sleep(SAMPLE_INTERVAL_S)
        self._monitor.__exit__()
        self._stalls.__exit__()
        stolen, total = (now - was for now, was in zip(_ticks(), self._ticks, strict=True))
        self.found = {
            "cpu_busy": self._monitor.cpu_busy(self._begun_s, ended_s + SAMPLE_INTERVAL_S),
            "softnet_dropped": self._monitor.softnet_dropped(),
            "stolen": stolen / max(1, total),
            "stall_s": self._stalls.longest_s,
            "late_p99_s": float(np.quantile(self.late_s, 0.99)) if self.late_s else 0.0,
        }


def _ticks() -> tuple[int, int]:
    """(stolen, all) clock ticks of all cores since boot."""
    fields = [int(x) for x in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    return fields[7], sum(fields)


def cobham(loads: dict[int, float], service_s: float) -> dict[int, float]:
    """Mean waiting by queue: Poisson arrivals, one service time for all, nobody interrupted (Cobham 1954)."""
    residual_s = sum(loads.values()) * service_s / 2
    found = {}
    above = 0.0
    for queue in sorted(loads, reverse=True):
        found[queue] = residual_s / ((1 - above) * (1 - above - loads[queue]))
        above += loads[queue]
    return found


def mean_spread_s(loads: dict[int, float], service_s: float, seconds: float, paths: int = 60) -> dict[int, float]:
    """By queue: the standard deviation of the mean waiting time over so many seconds, from simulated paths."""
    means: dict[int, list[float]] = {queue: [] for queue in loads}
    for seed in range(paths):
        times, queue = poisson(loads, service_s, seconds, 1000 + seed)
        waiting = served(times, queue, service_s)
        for number in loads:
            means[number].append(float(waiting[queue == number].mean()))
    return {queue: float(np.std(found)) for queue, found in means.items()}
