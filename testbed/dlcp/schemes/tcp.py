"""Kernel TCP as Linux ships it: the baseline that a cluster runs when nobody has touched anything."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from dlcp.model.experiment import Scaling
from dlcp.model.host_settings import HostSettings
from dlcp.model.qos import QosIntent
from dlcp.model.transport.settings import TransportSettings
from dlcp.schemes.base import Scheme

CONTROL_SYSCTL = "net.ipv4.tcp_congestion_control"
LINUX_DEFAULTS = {
    "net.ipv4.tcp_ecn": "2",
    "net.ipv4.tcp_sack": "1",
    "net.ipv4.tcp_recovery": "1",
    "net.ipv4.tcp_early_retrans": "3",
    "net.ipv4.tcp_slow_start_after_idle": "1",
}
"""Linux's own values (Documentation/networking/ip-sysctl.rst), set because the machine underneath may have others."""


class Tcp(Scheme):
    """One connection per worker and server, kept open; plain drop-tail queues; flow-hash ECMP."""

    title: ClassVar[str] = "TCP as Linux ships it"
    paper: ClassVar[str] = "CUBIC: RFC 9438; loss recovery: RFC 6298, RFC 8985 (RACK-TLP)"
    kind: ClassVar[Literal["tcp", "dlcp"]] = "tcp"
    mechanism: ClassVar[str] = (
        "A byte stream per pair of hosts: everything is delivered, in order; a lost packet that nothing follows "
        "waits for the retransmission timer, whose floor is 200 ms."
    )

    congestion_control: Literal["cubic", "reno"] = Field(
        default="cubic",
        description="the kernel's congestion control, set on every host, read back from every socket",
    )

    def intent(self, port_buffer_bytes: int) -> QosIntent:
        return QosIntent(name="tcp", port_buffer=port_buffer_bytes, load_balancing="flow-hash")

    def transport(self, scaling: Scaling) -> TransportSettings:
        return TransportSettings(kind="tcp", tcp_congestion_control=self.congestion_control)

    def hosts(self, scaling: Scaling) -> HostSettings:
        return HostSettings(sysctls=LINUX_DEFAULTS | {CONTROL_SYSCTL: self.congestion_control})


SCHEME = Tcp
