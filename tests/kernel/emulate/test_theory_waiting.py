"""What frames wait for, against queueing theory: Pollaczek and Khinchine's M/D/1, Cobham's strict priorities.

At 10 Mbit/s, where a frame of 1500 B takes 1.2 ms: long against what timers are late by. Every waiting time is judged
twice: against the very sample path (the send times that were achieved, served in theory: no statistical error), and
against the formula (whose error over so many seconds is known from simulated paths).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from queueing import FRAME_BYTES, Bench, StallProbes, business, cobham, judged, mean_spread_s, poisson, served
from traffic import plain, star

from dlcp.switches.tc import burst_bytes

pytestmark = pytest.mark.measures

RATE_MBIT = 10
SERVICE_S = FRAME_BYTES * 8 / (RATE_MBIT * 1e6)
BURST_S = burst_bytes(RATE_MBIT * 1e6) * 8 / (RATE_MBIT * 1e6)
"""What the shaper saves up while idle (50 µs): so much less does a frame wait."""

TIMER_S = 40e-6
"""How late a shaper's timer, and with it a frame, is on an otherwise idle machine."""

SHARE = 0.04
"""What is allowed besides, of the theoretical mean: late timers while a queue is long add to one another."""

SPREADS = 4
"""Standard deviations that a mean may be off the formula: a false alarm in 16 000 for each class."""


def waits(loads: dict[str, float], seconds: float, seed: int, at_host: bool = False) -> dict[str, Any]:
    """Poisson classes (queue → load) into one port: of the switch, from a host each, or of the one host that sends all.

    By queue: mean waiting as measured, and of the sample path, in s.
    """
    by_queue = {int(queue): load for queue, load in loads.items()}
    senders = [f"h{1 if at_host else i + 1}" for i in range(len(by_queue))]
    rates = [RATE_MBIT, 1000] if at_host else [1000] * len(senders) + [RATE_MBIT]
    with star(rates, plain(4_000_000)) as fabric:
        bench = Bench(fabric, [*senders, f"h{len(rates)}"], list(by_queue))
        transit_s = bench.transit_s()
        times, queue = poisson(by_queue, SERVICE_S, seconds, seed)
        journey = bench.send(times, queue, drain_s=0.5)
        violations = fabric.conservation()
    waited = journey.arrived_s - journey.left_s - transit_s
    path = served(journey.left_s, journey.queue, SERVICE_S)
    return {
        "measured_s": {q: float(waited[queue == q].mean()) for q in by_queue},
        "path_s": {q: float(path[queue == q].mean()) for q in by_queue},
        "lost": int(np.isnan(journey.arrived_s).sum()),
        "violations": violations,
        "machine": journey.machine,
    }


def complaint(seen: dict[str, Any], loads: dict[int, float], spread_s: dict[int, float]) -> str:
    """What is not as theory says; empty when all is."""
    told = [*seen["violations"], *([f"{seen['lost']} frames lost"] if seen["lost"] else [])]
    for queue, theory_s in cobham(loads, SERVICE_S).items():
        measured_s, path_s = seen["measured_s"][str(queue)], seen["path_s"][str(queue)]
        low_s, high_s = BURST_S + TIMER_S / 3 + SHARE * theory_s, TIMER_S + SHARE * theory_s
        name = f"queue {queue}: mean wait {measured_s * 1e6:.0f} µs"
        if not -low_s <= measured_s - path_s <= high_s:
            told.append(f"{name}, its sample path {path_s * 1e6:.0f}")
        statistical_s = SPREADS * spread_s[queue]
        if not -low_s - statistical_s <= measured_s - theory_s <= high_s + statistical_s:
            told.append(f"{name}, theory {theory_s * 1e6:.0f} ± {statistical_s * 1e6:.0f}")
    return "; ".join(told)


def judge(
    inside: Callable[..., Any], loads: dict[int, float], seconds: float, attempts: int = 3, at_host: bool = False
) -> None:
    spread_s = mean_spread_s(loads, SERVICE_S, seconds)
    measure = partial(inside, waits, within_s=seconds + 30, loads=loads, seconds=seconds, at_host=at_host)
    judged(lambda seed: measure(seed=seed), lambda seen: complaint(seen, loads, spread_s), attempts)


MIXES = {
    "two classes, load 0.5": {6: 0.25, 2: 0.25},
    "two classes, load 0.8": {6: 0.3, 2: 0.5},
    "three classes, load 0.5": {6: 0.1, 4: 0.2, 1: 0.2},
    "three classes, load 0.8": {6: 0.2, 4: 0.3, 1: 0.3},
}


def test_strict_priority_waits_as_cobham_says__short(inside: Callable[..., Any]) -> None:
    judge(inside, MIXES["three classes, load 0.8"], 3.0, attempts=2)


@pytest.mark.long
@pytest.mark.parametrize("mix", MIXES)
def test_strict_priority_waits_as_cobham_says(inside: Callable[..., Any], mix: str) -> None:
    judge(inside, MIXES[mix], 20.0)


@pytest.mark.long
def test_a_hosts_own_queues_wait_as_cobham_says(inside: Callable[..., Any]) -> None:
    judge(inside, MIXES["two classes, load 0.8"], 15.0, at_host=True)


@pytest.mark.long
@pytest.mark.parametrize("load", [0.3, 0.5, 0.7, 0.85])
def test_one_queue_waits_as_m_d_1(inside: Callable[..., Any], load: float) -> None:
    judge(inside, {0: load}, 15.0)


def test_a_core_that_stands_still_once_is_seen() -> None:
    """A process that keeps a core for 30 ms ahead of all others, as a hypervisor may: a deviation then says nothing."""
    core = min(os.sched_getaffinity(0))
    spin = (
        f"import os, time; os.sched_setaffinity(0, {{{core}}}); os.sched_setscheduler(0, os.SCHED_FIFO,"
        "os.sched_param(50))\nuntil = time.monotonic() + 0.03\nwhile time.monotonic() < until: pass"
    )
    with StallProbes() as stalls:
        subprocess.run([sys.executable, "-ISc", spin], check=True)
    assert 0.02 < stalls.longest_s < 1.0
    quiet = {"cpu_busy": 0.1, "softirq_wait": 0.0, "stall_s": 0.0}
    assert business(quiet) == ""
    assert "a core stood still for 30 ms" in business(quiet | {"stall_s": 0.03})
