"""DCTCP over DLCP's own engine: the same data path, so that only the idea differs."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from dlcp.model.experiment import Scaling
from dlcp.model.host_settings import HostSettings
from dlcp.model.qos import CONTROL_QUEUE, DropProfile, QosIntent, QueueIntent
from dlcp.model.transport.settings import TransportSettings
from dlcp.model.units import Fraction
from dlcp.schemes._plain_intent import control_reserved_knob
from dlcp.schemes.base import Scheme
from dlcp.transport.contract.tensors import data_queues


class DctcpUdp(Scheme):
    """Everything is delivered, in one queue, on the path that the flow's hash names; switches mark at a threshold.

    It differs from DCTCP in a kernel as the engine does: messages instead of a byte stream, losses found by evidence, a
    window below one packet by pacing (native/congestion/congestion_dctcp.c).
    """

    title: ClassVar[str] = "DCTCP over UDP"
    paper: ClassVar[str] = "Alizadeh et al., Data Center TCP (DCTCP), SIGCOMM 2010; RFC 8257"
    mechanism: ClassVar[str] = (
        "DLCP's engine without DLCP's ideas: all is delivered, one queue, one path a flow; switches mark ECN beyond a "
        "threshold, and the sender slows down by the share of marked packets."
    )
    kind: ClassVar[Literal["tcp", "dlcp"]] = "dlcp"

    mark_from: Fraction = Field(
        default=0.5,
        description="a queue's backlog, as share of the port's buffer, from which on packets are marked (K). Of 0.25, "
        "0.5 and 0.75 it was the best, or within 2 % of it, for five models in the incast of eight workers "
        "(testbed/experiments/tuned/headline.yaml); 0.25 took up to a fifth longer",
    )
    control_reserved: Fraction = control_reserved_knob()

    def queues(self) -> list[int]:
        """The switch queues that data travel in."""
        return data_queues(1)

    def intent(self, port_buffer_bytes: int) -> QosIntent:
        """One drop profile for all of a port's queues, which marks; control packets have room of their own."""
        mark_bytes = int(self.mark_from * port_buffer_bytes)
        mark = DropProfile(minimum=mark_bytes, maximum=mark_bytes, mark=True)
        queues = {queue: QueueIntent(profiles=(mark, mark, mark)) for queue in self.queues()}
        queues[CONTROL_QUEUE] = QueueIntent(reserved=int(self.control_reserved * port_buffer_bytes))
        return QosIntent(name="dctcp-udp", port_buffer=port_buffer_bytes, queues=queues, load_balancing="flow-hash")

    def transport(self, scaling: Scaling) -> TransportSettings:
        """Bound 0 for every message, no class of packets before another."""
        return TransportSettings(kind="dlcp", congestion_control="dctcp", selective_drop="off", droppable_front=())

    def hosts(self, scaling: Scaling) -> HostSettings:
        """The engine needs nothing of the hosts' stacks."""
        return HostSettings()


SCHEME = DctcpUdp
