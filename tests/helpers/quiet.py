"""Whether the machine is quiet and had its CPU: a proof by measured times or rates means nothing otherwise."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import pytest

from dlcp.agents.machine_monitor import MachineMonitor

OTHERS = 0.2
"""Share of all cores that others may use: above it, nothing can be proven of this machine."""
LOOK_S = 2.0
STOLEN = 0.005
"""Share of all cores' time that a hypervisor may give to others while a test measures rates to 1 %."""
ATTEMPTS = 4
"""Tries of a measurement while a hypervisor takes more than that."""


def require_quiet() -> None:
    """Skip the test where others' work takes more than OTHERS, with the measured share."""
    with MachineMonitor() as monitor:
        begun_s = time.monotonic()
        time.sleep(LOOK_S)
        busy = monitor.cpu_busy(begun_s, time.monotonic())
    if busy > OTHERS:
        pytest.skip(f"inconclusive: others use {busy:.0%} of this machine; repeat when it is quiet")


def skip_if_stolen(objections: Iterable[Collection[str]]) -> None:
    """Skip the test if the hypervisor took CPU from each of these runs; objections: of each, its monitors out of
    bounds. Such runs are rightly suspect, and prove nothing. A single one without theft is reason enough to go on."""
    suspect = list(objections)
    if suspect and all("cpu_stolen" in names for names in suspect):
        pytest.skip(f"inconclusive: the hypervisor took CPU from all {len(suspect)} suspect runs; repeat it later")


def stolen_s() -> float:
    """Return the CPU time that the hypervisor has given to others since this machine started: `steal` of proc_stat(5),
    of all cores together."""
    total = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    return int(total.split()[8]) / os.sysconf("SC_CLK_TCK")


def measured(test: Callable[[], object], taken_s: Callable[[], float] = stolen_s) -> None:
    """Run a test that measures, and again where it fails. It fails if it did so twice on a machine that had its CPU,
    and is skipped as inconclusive if it did so ATTEMPTS times, while the hypervisor took more than STOLEN of the cores.
    """
    share, failed = 0.0, 0
    for _ in range(ATTEMPTS):
        begun_s, before_s = time.monotonic(), taken_s()
        try:
            test()
            return
        except (AssertionError, pytest.fail.Exception):
            now = (taken_s() - before_s) / ((time.monotonic() - begun_s) * (os.cpu_count() or 1))
            share, failed = max(share, now), failed + (now <= STOLEN)
            if failed == 2:
                raise
    pytest.skip(f"inconclusive: the hypervisor took {share:.1%} of the CPU while it measured; repeat it later")
