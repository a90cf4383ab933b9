"""The intent that schemes on DLCP's engine ask of a network that treats all data alike: room for control packets."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from dlcp.model.qos import CONTROL_QUEUE, QosIntent, QueueIntent


def control_reserved_knob() -> Any:
    """The knob `control_reserved`, a Fraction."""
    return Field(default=0.1, description="share of the port's buffer kept for control packets")


def plain_intent(name: str, port_buffer_bytes: int, control_reserved: float) -> QosIntent:
    """One plain queue, the same path for all of a flow, and a share of the port's buffer for control packets."""
    control = QueueIntent(reserved=int(control_reserved * port_buffer_bytes))
    return QosIntent(
        name=name, port_buffer=port_buffer_bytes, queues={CONTROL_QUEUE: control}, load_balancing="flow-hash"
    )
