"""All ports' states at one moment, as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dlcp.switches.bpf.map_structs import PortState

_STATE = np.dtype(PortState)

Counts = npt.NDArray[np.int64]


class Snapshot:
    """States by ifindex; a link's two ends, ifindex and ifindex ^ 1, are both in it."""

    def __init__(self, states: Mapping[int, PortState]) -> None:
        self._row = {ifindex: row for row, ifindex in enumerate(states)}
        self._states: Any = np.frombuffer(b"".join(map(bytes, states.values())), dtype=_STATE)

    def rows(self, ifindexes: Iterable[int]) -> list[int]:
        """Where ports stand in the arrays."""
        return [self._row[ifindex] for ifindex in ifindexes]

    def tally(self, name: str) -> Counts:
        """A counter of PrecedenceCounters: [port, queue, precedence, (packets, bytes)]."""
        counters = self._states["queues"]["precedences"][name]
        return np.stack([counters["packets"], counters["bytes"]], axis=-1).astype(np.int64)

    def not_ipv4(self) -> Counts:
        """Packets by port."""
        return np.asarray(self._states["not_ipv4"]["packets"], np.int64)

    def histograms(self) -> Counts:
        """[port, queue, bucket]"""
        return np.asarray(self._states["queues"]["histogram"], np.int64)

    def peaks(self, epoch: int) -> Counts:
        """[port, queue] in bytes since the epoch began; the backlog where nothing has come since."""
        backlog = (self.tally("enqueued") - self.tally("sent"))[..., 1].sum(axis=-1)
        fresh = (self._states["epoch"] == epoch)[:, None]
        peak_bytes: Counts = np.where(fresh, self._states["queues"]["peak_bytes"].astype(np.int64), backlog)
        return peak_bytes
