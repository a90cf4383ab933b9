"""Interface of a verification to the hosts and switches that it runs on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dlcp.model.frames import FRAME_BYTES

SMALLEST_BYTES = 64
HOST_BURST_BYTES = 4 * FRAME_BYTES
"""Bytes that a host's link may let through at once; beyond it, its packets queue in the host by their own priorities.
"""

Arrivals = npt.NDArray[Any]
"""A structured array in order of arrival: train, number, tos, sent_ns, arrived_ns (kernel's real time)."""
NO_ARRIVALS: Arrivals = np.array(
    [], np.dtype([("train", "<u4"), ("number", "<u4"), ("tos", "u1"), ("sent_ns", "<u8"), ("arrived_ns", "<u8")])
)


@dataclass(frozen=True)
class Send:
    """A train: probes that one host sends to another, at_s after the others' common instant.

    pattern: (TOS byte, frame bytes) of probes, sent `repeat` times. rate_bps: of frames, evenly; 0 = all at once.
    catch_up: a late probe does not put the later ones off.
    flows: source ports, taken in turn after every `burst` probes; a burst leaves at once. train: its name, unique in a
    shot.
    """

    host: str
    to: str
    train: int
    at_s: float
    pattern: tuple[tuple[int, int], ...]
    repeat: int = 1
    rate_bps: float = 0.0
    catch_up: bool = False
    flows: int = 1
    burst: int = 1

    @property
    def size_bytes(self) -> int:
        """All frames."""
        return self.repeat * sum(size for _, size in self.pattern)

    @property
    def count(self) -> int:
        """How many probes."""
        return self.repeat * len(self.pattern)


@dataclass(frozen=True)
class Shot:
    """Arrivals of some trains. starved: why the machine may have spoilt what hangs on time; lost: why probes may be
    missing that no switch dropped. Each is empty when there is no such reason."""

    arrivals: Mapping[str, Arrivals]
    starved: str
    lost: str = ""

    def at(self, host: str) -> Arrivals:
        """Arrivals at a host."""
        return self.arrivals.get(host, NO_ARRIVALS)


@dataclass(frozen=True)
class Reading:
    """Counters of switch ports at an instant: (switch, neighbour) → (queue, precedence) → column of the table
    `ports` → packets or bytes; read at CLOCK_MONOTONIC time_s, in the same order every time. times_s: of ports whose
    switch has a clock of its own, what that showed."""

    time_s: float
    ports: Mapping[tuple[str, str], Mapping[tuple[int, int], Mapping[str, int]]]
    times_s: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def since_s(self, before: Reading, port: tuple[str, str]) -> float:
        """How long after another one a port was read."""
        return self.times_s.get(port, self.time_s) - before.times_s.get(port, before.time_s)


class Counters(Protocol):
    """Counters of switches."""

    def read(self, ports: Iterable[tuple[str, str]]) -> Reading:
        """Packets and bytes since some beginning that stays the same."""


class Prober(Protocol):
    """Hosts that send probes and take them down. counters: None where switches have none; no_counters says why."""

    counters: Counters | None
    no_counters: str

    def shoot(self, sends: Iterable[Send], after_s: float) -> Shot:
        """Send all trains, wait until after_s after the last probe has been sent, and tell what came."""

    def shoot_and_read(
        self, sends: Iterable[Send], after_s: float, ports: Iterable[tuple[str, str]], at_s: Iterable[float]
    ) -> tuple[Shot, list[Reading]]:
        """The same; meanwhile read counters at instants after the trains' common one."""
