"""A registered receive over TCP: where the bytes of a message go, and what becomes of them when all are there."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dlcp.transport.contract.endpoint import Counts, Dtype, Placement, Values
from dlcp.transport.contract.values import add_into, packets


@dataclass
class Posting:
    """Everything arrives over TCP, so there are no holes: ZERO and KEEP both mean overwritten.

    contributors: as in Endpoint.receive. start_s: when it was registered. size_bytes: of the message that came for it,
    which may be shorter than the buffer (Endpoint.declare).
    """

    buffer: Values
    dtype: Dtype
    placement: Placement
    contributors: Counts | None
    start_s: float
    size_bytes: int = field(default=0, init=False)
    _arriving: Values | None = field(default=None, init=False)
    _counted: Counts | None = field(default=None, init=False)

    def targets(self, counted: bool, size_bytes: int) -> list[memoryview]:
        """Where to read a message of so many bytes into, in order: its contributors if it carries them, then its
        elements."""
        self.size_bytes = size_bytes
        found = []
        if counted:
            self._counted = np.empty(packets(self.buffer.size, self.dtype), np.uint16)
            found.append(self._counted.data.cast("B"))
        if self.placement is Placement.ADD:
            self._arriving = np.empty_like(self.buffer)
        arriving = self.buffer if self._arriving is None else self._arriving
        return [*found, arriving.view(np.uint8).data[:size_bytes]]

    def settle(self) -> None:
        """All bytes are there: add what is to be added."""
        came = self.size_bytes // self.buffer.itemsize
        if self.contributors is not None:
            there = packets(came, self.dtype)
            if self.placement is not Placement.ADD:
                self.contributors[:] = 0
            self.contributors[:there] += 1 if self._counted is None else self._counted[:there]
        if self._arriving is not None:
            add_into(self.buffer[:came], self._arriving[:came], self.dtype)
            self._arriving = None
