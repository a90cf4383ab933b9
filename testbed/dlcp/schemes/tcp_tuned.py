"""Kernel TCP as a good data-centre operator sets it: the baseline that a gain must be measured against."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from dlcp.model.experiment import Scaling
from dlcp.model.host_settings import HostSettings
from dlcp.model.qos import QosIntent
from dlcp.model.transport.settings import TransportSettings
from dlcp.model.units import Duration
from dlcp.schemes.base import Scheme
from dlcp.schemes.tcp import CONTROL_SYSCTL, LINUX_DEFAULTS


class TcpTuned(Scheme):
    """TCP with a low floor of the retransmission timer.

    What else operators set was measured on the quickstart's fabric (five paired repeats) and left as Linux has it
    because it does not help there: keeping the window over idle times makes the job 5 % slower (all workers' full
    windows meet in the servers' buffers at once), reno 3 %; ECN marking made a push 1.5 times as long.
    """

    title: ClassVar[str] = "TCP, tuned for a data centre"
    paper: ClassVar[str] = "Vasudevan et al., Safe and Effective Fine-grained TCP Retransmissions, SIGCOMM 2009"
    kind: ClassVar[Literal["tcp", "dlcp"]] = "tcp"
    mechanism: ClassVar[str] = (
        "As TCP, but what only a timer can recover waits milliseconds, not 200: the floor of the retransmission "
        "timer is a route attribute."
    )

    congestion_control: Literal["cubic", "reno"] = Field(
        default="cubic",
        description="the kernel's congestion control, set on every host, read back from every socket",
    )
    rto_min_s: Duration = Field(
        default=0.005,
        gt=0,
        description="floor of the retransmission timer in lab time; a route attribute on every host",
    )
    slow_start_after_idle: bool = Field(
        default=True,
        description="shrink the congestion window after an idle time, as Linux does by default; off is slower in an "
        "incast of short messages",
    )

    def intent(self, port_buffer_bytes: int) -> QosIntent:
        return QosIntent(name="tcp-tuned", port_buffer=port_buffer_bytes, load_balancing="flow-hash")

    def transport(self, scaling: Scaling) -> TransportSettings:
        return TransportSettings(kind="tcp", tcp_congestion_control=self.congestion_control)

    def hosts(self, scaling: Scaling) -> HostSettings:
        sysctls = {
            CONTROL_SYSCTL: self.congestion_control,
            "net.ipv4.tcp_slow_start_after_idle": str(int(self.slow_start_after_idle)),
        }
        return HostSettings(sysctls=LINUX_DEFAULTS | sysctls, rto_min_s=self.rto_min_s)


SCHEME = TcpTuned
