"""The kernel's own DCTCP, where it has one: the baseline of a data centre that marks."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from dlcp.model.experiment import Scaling
from dlcp.model.host_settings import HostSettings
from dlcp.model.qos import DropProfile, QosIntent, QueueIntent
from dlcp.model.transport.settings import TransportSettings
from dlcp.model.units import Fraction
from dlcp.schemes.tcp_tuned import TcpTuned

TCP_QUEUE = 0
"""Queue of a kernel's TCP packets, whose DSCP nobody sets."""


class Dctcp(TcpTuned):
    """TCP tuned for a data centre, with ECN and DCTCP as its congestion control.

    Packets of others in that queue that are not ECN-capable are dropped where TCP's are marked, as in a real switch.
    """

    title: ClassVar[str] = "DCTCP of the kernel"
    paper: ClassVar[str] = "Alizadeh et al., Data Center TCP (DCTCP), SIGCOMM 2010; RFC 8257"
    mechanism: ClassVar[str] = (
        "As TCP, tuned, but switches mark ECN beyond a threshold, and a sender's window shrinks by the share of marked "
        "packets. Runs where the kernel has the module tcp_dctcp."
    )

    congestion_control: Literal["dctcp"] = Field(  # type: ignore[assignment]
        default="dctcp",
        description="the kernel's congestion control, set on every host, read back from every socket",
    )
    mark_from: Fraction = Field(
        default=0.25,
        description="the queue's backlog, as share of the port's buffer, from which on packets are marked (K)",
    )

    def intent(self, port_buffer_bytes: int) -> QosIntent:
        """See Scheme."""
        mark_bytes = int(self.mark_from * port_buffer_bytes)
        mark = DropProfile(minimum=mark_bytes, maximum=mark_bytes, mark=True)
        queues = {TCP_QUEUE: QueueIntent(profiles=(mark, mark, mark))}
        return QosIntent(name="dctcp", port_buffer=port_buffer_bytes, queues=queues, load_balancing="flow-hash")

    def transport(self, scaling: Scaling) -> TransportSettings:
        """See Scheme."""
        return super().transport(scaling).model_copy(update={"tcp_ecn": True})

    def hosts(self, scaling: Scaling) -> HostSettings:
        """See Scheme. Both ends ask for ECN."""
        settings = super().hosts(scaling)
        return settings.model_copy(update={"sysctls": settings.sysctls | {"net.ipv4.tcp_ecn": "1"}})


SCHEME = Dctcp
