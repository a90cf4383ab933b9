"""All settings with which an agent opens its end of a transport."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from dlcp.model.base import Frozen
from dlcp.model.transport.loss import LossSettings
from dlcp.model.transport.masks import MaskSettings
from dlcp.model.transport.queues import QueueSettings
from dlcp.model.transport.sending import SendingSettings
from dlcp.model.transport.stages import StageSettings
from dlcp.model.transport.tcp import TcpSettings


class Compression(Frozen):
    """How gradients are coded on their way. method: a file in transport/compression/. knobs: its settings, plain data.
    step_share: of the job's learning rate, what workers apply to what they decode; None = what the method's file says.
    """

    method: str
    step_share: float | None = Field(default=None, gt=0)
    knobs: dict[str, JsonValue] = Field(default_factory=dict)


class TransportSettings(TcpSettings, SendingSettings, LossSettings, QueueSettings, StageSettings):
    """Settings of a scheme's transport: those of its parts, and what is of no part alone.

    Pure data; sent to the agent as JSON, and flat, as run ids are computed from it. Each part is used by the kind that
    knows it. A function that needs one part takes that part's class.
    """

    kind: Literal["tcp", "dlcp", "masked"]
    """masked: nothing is sent, and `mask` says what of the gradients is lost."""
    mask: MaskSettings | None = None
    partition_bytes: int = 0
    """In place of the job's bucket; 0: that."""
    compression: Compression | None = None
    """The code in which gradients travel, and what comes of them."""
    time_dilation: float = Field(default=1.0, ge=1)
    """Seconds of the host that a lab second takes: endpoints apply it to these times and to their own constants.
    Schemes leave it at 1; schemes/base.py fills it in."""
