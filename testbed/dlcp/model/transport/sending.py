"""Settings of the engine's senders: how much they send, when, and from where."""

from __future__ import annotations

from pydantic import Field

from dlcp.model.base import Frozen

MOST_SOURCE_PORTS = 16
"""DLCP_SOURCE_PORTS_MOST of engine.h."""
MOST_WINDOW_PACKETS = 4096
"""Packets that a sender remembers: RECORDS_MOST of native/protocol/state.h."""


class SendingSettings(Frozen):
    """Settings that kind "dlcp" uses. Times are lab seconds."""

    congestion_control: str = "timely"
    """A controller of native/congestion/."""
    t_low_s: float = Field(default=0.0, ge=0)
    """TIMELY's lower threshold of the round trip; 0: from what is measured."""
    t_high_s: float = Field(default=0.0, ge=0)
    """TIMELY's upper threshold; 0: from what is measured."""
    fixed_window: float = Field(default=0.0, ge=0, le=MOST_WINDOW_PACKETS)
    """Packets, with congestion_control fixed."""
    source_ports: int = Field(default=1, ge=1, le=MOST_SOURCE_PORTS)
    """Bursts leave from so many UDP ports in turn."""
    resend_last: bool = False
    """Packets that are sent again wait for the end of their message's first pass."""
