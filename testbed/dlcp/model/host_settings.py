"""Settings of a host's network stack."""

from __future__ import annotations

from pydantic import Field

from dlcp.model.base import Frozen
from dlcp.model.units import Duration

LINUX_RTO_MIN_S = 0.2
"""TCP_RTO_MIN of Linux (include/net/tcp.h): HZ/5."""
LINUX_TIME_SYSCTLS_NS = {"net.ipv4.tcp_comp_sack_delay_ns": 1_000_000, "net.ipv4.tcp_comp_sack_slack_ns": 100_000}
"""Durations of Linux's TCP that every network namespace may set, with Linux's own values (ip-sysctl.rst)."""


class HostSettings(Frozen):
    """Settings of a scheme in a host's network stack: sysctls, and the floor of TCP's retransmission timer, in lab time
    until it is `dilated`."""

    sysctls: dict[str, str] = Field(default_factory=dict)
    rto_min_s: Duration | None = None

    def dilated(self, time_dilation: float) -> HostSettings:
        """The same in emulated time: with dilation, what Linux lets be set of TCP's times is set, whether the scheme
        asks for it or not, since a background over TCP has timers, too. Its other times stay: see EMULATOR.md."""
        if time_dilation == 1:
            return self
        floor_s = LINUX_RTO_MIN_S if self.rto_min_s is None else self.rto_min_s
        times = {name: str(round(value * time_dilation)) for name, value in LINUX_TIME_SYSCTLS_NS.items()}
        return HostSettings(sysctls=times | self.sysctls, rto_min_s=floor_s * time_dilation)
