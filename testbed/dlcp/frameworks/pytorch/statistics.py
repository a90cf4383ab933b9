"""What a group carried over DLCP and what went elsewhere: nothing is lost from sight."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from dlcp.frameworks.pytorch.address import Link


@dataclass
class Carried:
    """calls of one collective at this rank, and the bytes of the tensors that it was given."""

    calls: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Statistics:
    """One rank's traffic since its group was made.

    dlcp, gloo: collective → what went over each. lost_bytes: what never arrived here, summed over hops.
    lost_energy_share: of Σ g², the mean over all hops by bytes. resent_bytes: what this rank sent again.
    link_rate_bps, link_rate_from: what it paces to, and who said so. engine: the counters of its endpoints, by number
    (engine.h and protocol.h name them).
    """

    dlcp: dict[str, Carried]
    gloo: dict[str, Carried]
    lost_bytes: int
    lost_energy_share: float
    resent_bytes: int
    link_rate_bps: float
    link_rate_from: str
    engine: dict[int, dict[str, Any]]

    def __str__(self) -> str:
        """For people, on a line."""
        over = [_said(name, carried, "DLCP") for name, carried in self.dlcp.items()]
        over += [_said(name, carried, "gloo") for name, carried in self.gloo.items()]
        lost = (
            f"lost {self.lost_bytes} B ({self.lost_energy_share:.2%} of the energy), sent {self.resent_bytes} B again"
        )
        return "; ".join([*over, lost])


@dataclass
class Counter:
    """Counts by collective; any thread may."""

    carried: dict[str, Carried] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, collective: str, tensors: object) -> bool:
        """Count a call with these tensors, however nested; whether it is the first of its kind."""
        return self.add(collective, sum(tensor.numel() * tensor.element_size() for tensor in flattened(tensors)))

    def add(self, collective: str, size_bytes: int) -> bool:
        """Count a call with so many bytes; whether it is the first of its kind."""
        with self._lock:
            is_first = collective not in self.carried
            found = self.carried.setdefault(collective, Carried())
            found.calls += 1
            found.bytes += size_bytes
        return is_first

    def copy(self) -> dict[str, Carried]:
        """As of this moment."""
        with self._lock:
            return {name: Carried(found.calls, found.bytes) for name, found in self.carried.items()}


@dataclass
class Losses:
    """What did not arrive here and what was sent again from here; any thread may count.

    lost_energy_share: of Σ g², the mean by bytes of all that was to arrive.
    """

    lost_bytes: int = 0
    resent_bytes: int = 0
    lost_energy_share: float = 0.0
    _bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, size_bytes: int, lost_bytes: int, lost_energy_share: float, resent_bytes: int) -> None:
        """Count what is over: of size_bytes that were to arrive here (0: none were), this was lost."""
        with self._lock:
            self.lost_bytes += lost_bytes
            self.resent_bytes += resent_bytes
            self._bytes += size_bytes
            if size_bytes:
                self.lost_energy_share += (lost_energy_share - self.lost_energy_share) * size_bytes / self._bytes


def statistics_of(
    dlcp: Counter, gloo: Counter, losses: Losses, link: Link, engine: dict[int, dict[str, Any]]
) -> Statistics:
    """All that was counted, as of this moment."""
    return Statistics(
        dlcp=dlcp.copy(),
        gloo=gloo.copy(),
        lost_bytes=losses.lost_bytes,
        lost_energy_share=losses.lost_energy_share,
        resent_bytes=losses.resent_bytes,
        link_rate_bps=link.rate_bps,
        link_rate_from=link.rate_from,
        engine=engine,
    )


def flattened(tensors: object) -> Iterator[torch.Tensor]:
    """All tensors of a nested list."""
    if isinstance(tensors, torch.Tensor):
        yield tensors
    elif isinstance(tensors, (list, tuple)):
        for one in tensors:
            yield from flattened(one)


def _said(name: str, carried: Carried, over: str) -> str:
    return f"{carried.calls} {name} ({carried.bytes / 1e6:.3f} MB) over {over}"
