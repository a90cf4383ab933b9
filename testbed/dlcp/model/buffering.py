"""How a switch's packet memory is divided among its queues: one pool a port, or shared memory with dynamic thresholds.

The rule for one packet stands in native/switch/aqm.h; here stand its sizes. Every queue of a commodity switch has a
minimum of its own and may hold, beyond it, alpha times what is free of the memory that all ports share (dynamic
thresholds, Choudhury and Hahne, IEEE/ACM Trans. Networking 6(2), 1998), so that a flood in a low queue leaves room for
a high one.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from dlcp.model.base import Frozen
from dlcp.model.frames import FRAME_BYTES
from dlcp.model.units import Size

DEFAULT_ALPHA = 1.0
"""Between what vendors ship for a lossy egress queue: SONiC's buffers_defaults_*.j2 have 1/2 (Arista
7260CX3, Tomahawk 2; 7050CX3, Trident 3), 1 and 8 (Arista 7060CX, Tomahawk; Dell Z9264f; Mellanox
SN2700). EMULATOR.md has the table. 8 leaves a ninth of the memory free while one queue is congested:
hundreds of packets of a chip's megabytes, three packets of an emulated port's 40 kB."""
DEFAULT_MINIMUM_BYTES = FRAME_BYTES
"""One full frame: SONiC reserves a frame in whole cells, 1518 to 1792 B, for a lossy egress queue of
a Broadcom chip (the same files)."""

BufferKind = Literal["dynamic", "static"]


class Buffering(Frozen):
    """How every switch of an experiment buffers. A kind alone (`static`) may stand for the mapping.

    kind: static = the queues of a port share the port's buffer alone, and the first packets to arrive take it; dynamic
    = the ports of a switch share its memory by dynamic thresholds. alpha: of a queue's threshold. minimum_bytes: what
    each queue has of its own beyond its threshold. Both mean nothing where the kind is static.
    """

    kind: BufferKind = "dynamic"
    alpha: float = Field(default=DEFAULT_ALPHA, gt=0, le=128)
    minimum_bytes: Size = Field(default=DEFAULT_MINIMUM_BYTES, alias="minimum")

    @model_validator(mode="before")
    @classmethod
    def _kind_alone(cls, said: Any) -> Any:
        return {"kind": said} if isinstance(said, str) else said

    @model_validator(mode="after")
    def _static_has_no_thresholds(self) -> Self:
        if not self.dynamic and (self.alpha, self.minimum_bytes) != (DEFAULT_ALPHA, DEFAULT_MINIMUM_BYTES):
            raise ValueError("alpha and minimum are of dynamic thresholds: with kind static leave them out")
        return self

    @property
    def dynamic(self) -> bool:
        """True if queues share by dynamic thresholds."""
        return self.kind == "dynamic"


def shared_bytes(alone_bytes: int, alpha: float) -> int:
    """The shared memory in which a queue that is alone ends at alone_bytes: there it holds alpha times what is free."""
    return round(alone_bytes * (1 + alpha) / alpha)


def alone_bytes(shared_bytes: int, alpha: float) -> int:
    """Return the bytes of a shared memory at which a queue ends that is alone on its switch."""
    return int(shared_bytes * alpha / (1 + alpha))
