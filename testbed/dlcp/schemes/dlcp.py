"""DLCP: bounded loss, layers in strict-priority queues, small gradients dropped first, packets sprayed."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from dlcp.model.experiment import Scaling
from dlcp.model.qos import DropProfile, LoadBalancing, QosIntent, QueueIntent
from dlcp.model.units import Fraction
from dlcp.model.workload import HostSettings, TransportSettings
from dlcp.schemes.base import Scheme
from dlcp.transport.tagging import data_queues

CONTROL_QUEUE = 7

Profiles = tuple[DropProfile | None, DropProfile | None, DropProfile | None]


class Dlcp(Scheme):
    """The transport that this project exists for.

    Drop precedence 0: must arrive, and the pull leg; 1: protected; 2: droppable (small gradients of front layers).
    """

    title: ClassVar[str] = "DLCP"
    paper: ClassVar[str] = (
        "Wang et al., Domain-specific Communication Optimization for Distributed DNN Training, arXiv 2008.08445; "
        "successor MLT: Towards Domain-Specific Network Transport for Distributed DNN Training, NSDI 2024"
    )
    mechanism: ClassVar[str] = (
        "A receiver is satisfied with 1 - p of a gradient; front layers travel in higher queues; a switch drops small "
        "gradients before large ones; any packet may take any path."
    )

    loss_bound: Fraction = Field(
        default=0.1,
        description="share of a gradient tensor's bytes that may stay lost (push leg); 10 % is the papers' "
        "evaluation, a strict profile is 0.6 to 3.5 % by model (2.4 % for ResNet-50), 0 delivers everything",
    )
    stop: Literal["lazy", "eager"] = Field(
        default="lazy",
        description="lazy: a satisfied receiver waits for the end of the sender's first pass, so loss is what the "
        "network did; eager: it stops the sender at once, so about p is lost every time",
    )
    congestion_control: Literal["timely", "fixed"] = Field(
        default="timely", description="the sender's rate control: timely by delay, fixed none"
    )
    priority_queues: int = Field(
        default=3, ge=1, le=6, description="strict-priority queues that layers are spread over, front layers highest"
    )
    layer_map: Literal["equal-bytes", "equal-count"] = Field(
        default="equal-bytes", description="what a queue's share of the model is measured in: bytes or buckets"
    )
    selective_drop: Literal["wred", "ect", "off"] = Field(
        default="wred",
        description="how a switch tells droppable packets: by drop precedence and WRED, by Not-ECT under an ECN "
        "threshold, or not at all",
    )
    protected_tail_share: Fraction = Field(
        default=0.2, description="share of the layers, output side, whose packets are never droppable"
    )
    must_arrive_below_packets: int = Field(
        default=8, ge=0, description="tensors with fewer packets than this lose nothing: the bound is below one packet"
    )
    droppable_from: Fraction = Field(
        default=0.15,
        description="a queue's backlog, as share of the port's buffer, where droppable packets start to go",
    )
    droppable_until: Fraction = Field(
        default=0.4, description="backlog, as share of the port's buffer, beyond which every droppable packet goes"
    )
    control_reserved: Fraction = Field(default=0.1, description="share of the port's buffer kept for control packets")
    load_balancing: LoadBalancing = Field(
        default="per-packet", description="how a switch chooses among equal paths: for each packet, or by flow hash"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.droppable_from > self.droppable_until:
            raise ValueError(f"droppable_from {self.droppable_from} is above droppable_until {self.droppable_until}")
        return self

    def intent(self, port_buffer_bytes: int) -> QosIntent:
        profiles = self._profiles(port_buffer_bytes)
        queues = {queue: QueueIntent(profiles=profiles) for queue in data_queues(self.priority_queues)}
        queues[CONTROL_QUEUE] = QueueIntent(reserved=int(self.control_reserved * port_buffer_bytes))
        return QosIntent(name="dlcp", port_buffer=port_buffer_bytes, queues=queues, load_balancing=self.load_balancing)

    def transport(self, scaling: Scaling) -> TransportSettings:
        return TransportSettings(
            kind="dlcp",
            congestion_control=self.congestion_control,
            loss_bound=self.loss_bound,
            stop=self.stop,
            selective_drop=self.selective_drop,
            priority_queues=self.priority_queues,
            layer_map=self.layer_map,
            protected_tail_share=self.protected_tail_share,
            must_arrive_below_packets=self.must_arrive_below_packets,
        )

    def hosts(self, scaling: Scaling) -> HostSettings:
        return HostSettings()

    def _profiles(self, port_buffer_bytes: int) -> Profiles:
        minimum, maximum = (int(share * port_buffer_bytes) for share in (self.droppable_from, self.droppable_until))
        if self.selective_drop == "wred":
            return None, None, DropProfile(minimum=minimum, maximum=maximum)
        if self.selective_drop == "ect":  # one step: beyond it, ECN-capable packets are marked, all others dropped
            return DropProfile(minimum=minimum, maximum=minimum, mark=True), None, None
        return None, None, None


SCHEME = Dlcp
