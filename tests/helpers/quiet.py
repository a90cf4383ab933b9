"""Whether the machine is quiet, measured while nothing of a test runs: a proof of it means nothing otherwise."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

import pytest

from dlcp.agents.machine_monitor import MachineMonitor

OTHERS = 0.2
"""Share of all cores that others may use: above it, nothing can be proven of this machine."""
LOOK_S = 2.0


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
