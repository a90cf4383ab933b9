"""Settings of kernel TCP."""

from __future__ import annotations

from dlcp.model.base import Frozen


class TcpSettings(Frozen):
    """Settings that kind "tcp" uses."""

    tcp_congestion_control: str = "cubic"
    """Linux's name of it."""
    tcp_ecn: bool = False
    """Connections without ECN are refused."""
    tcp_low_water_bytes: int = 0
    """The kernel takes so much beyond what may leave at once; 0: as much as it likes."""
    tcp_priority: bool = False
    """Front layers leave first."""
    tcp_credit_bytes: int = 0
    """Gradients under way, to all peers together; 0: no limit."""
