"""Waiting for instants of CLOCK_MONOTONIC, and how late the waits end: the agents' own fidelity monitor."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import time
from collections.abc import Sequence

import numpy as np

from dlcp.errors import MachineCannot

_PR_SET_TIMERSLACK = 29
_SWITCH_INTERVAL_S = 1e-4
"""How long one Python thread may keep the interpreter from another; the default of 5 ms is 40 frame times."""

_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
"""The system call's number (asm/unistd.h); Python has no name for it, nor have C libraries before glibc 2.41."""
_SLICE_NS = 500_000
"""How long a process that shares a core may keep it from another. Ten that computed for 0.5 to 12 ms in turn on two
cores woke late by 5 to 7 ms (99th percentile) with the kernel's 1.4 ms, by 2 to 3 ms with this; 0.1 ms is no better."""


class _SchedAttr(ctypes.Structure):
    """struct sched_attr of linux/sched/types.h, its first version."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime_ns", ctypes.c_uint64),
        ("deadline_ns", ctypes.c_uint64),
        ("period_ns", ctypes.c_uint64),
    )


def take_short_turns() -> None:
    """Let the calling thread, and those that it starts, share a core in slices of half a millisecond.

    Emulated hosts share the machine's cores where real ones have their own: the shorter a turn, the nearer that comes
    to each having a slower one. Kernels before 6.12 know no slice of a process's own, and other architectures are left
    as they are: how late agents wake is measured in every run (sched_late_s).
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    wanted = _SchedAttr(
        size=ctypes.sizeof(_SchedAttr),
        policy=os.SCHED_OTHER,
        nice=os.getpriority(os.PRIO_PROCESS, 0),
        runtime_ns=_SLICE_NS,
    )
    if libc.syscall(number, 0, ctypes.byref(wanted), 0) != 0:
        raise OSError(ctypes.get_errno(), "sched_setattr")


def be_punctual() -> None:
    """Ask for exact timers and quick thread switches. Call it before threads start: they inherit the timer slack.

    With the default slack (50 µs) a sleep of 100 µs was measured to end 73 µs late at the median, with 1 ns 20 µs.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_TIMERSLACK)")
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


def go_ahead() -> None:
    """Put the calling thread ahead of the agents', with exact timers; processes that it starts are not. MachineCannot
    as in `put_ahead`."""
    be_punctual()
    put_ahead(0)


def put_ahead(pid: int) -> None:
    """Put a process (0: the calling thread), but not its children, ahead of all that have no real-time priority.

    Raises MachineCannot where the kernel gives none.
    """
    priority = os.sched_param(os.sched_get_priority_min(os.SCHED_RR))
    try:
        os.sched_setscheduler(pid, os.SCHED_RR | os.SCHED_RESET_ON_FORK, priority)
    except PermissionError as error:
        raise MachineCannot(
            "real-time priority",
            f"the kernel refuses it ({error.strerror}), and what shapes and watches a fabric must not wait for a core",
            "in a container: start it with --privileged; with CONFIG_RT_GROUP_SCHED: give its cgroup cpu.rt_runtime_us",
        ) from error


class Deadlines:
    """Waits for absolute instants and remembers how late each wait ended, seconds."""

    def __init__(self) -> None:
        self._late_s: list[float] = []

    def sleep_until(self, instant_s: float) -> None:
        """Return at the instant or, when it has passed, at once. Only waits that slept count as punctual or late."""
        left_s = instant_s - time.monotonic()
        if left_s > 0:
            time.sleep(left_s)  # Python sleeps with clock_nanosleep(TIMER_ABSTIME)
            self._late_s.append(time.monotonic() - instant_s)

    def late_s(self, quantile: float = 0.99) -> float:
        """See `lateness`."""
        return lateness(self._late_s, quantile)

    @property
    def waits(self) -> list[float]:
        """How late each wait that slept ended, seconds."""
        return list(self._late_s)


def lateness(waits_s: Sequence[float], quantile: float = 0.99) -> float:
    """A quantile of how late waits ended, seconds; 0 when nothing was waited for."""
    return float(np.quantile(waits_s, quantile)) if waits_s else 0.0
