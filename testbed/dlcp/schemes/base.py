"""What a scheme must say of itself: transport, tagging, QoS intent, load balancing, host settings."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from dlcp.model.base import Frozen
from dlcp.model.experiment import Scaling
from dlcp.model.qos import QosIntent
from dlcp.model.workload import HostSettings, TransportSettings


class Scheme(Frozen):
    """One way to move gradients. Its fields are its knobs, each with a description; all have defaults.

    A subclass stands alone in its file as `SCHEME`.
    """

    title: ClassVar[str]
    paper: ClassVar[str]
    mechanism: ClassVar[str]
    substrates: ClassVar[tuple[str, ...]] = ("emulate",)

    @abstractmethod
    def intent(self, port_buffer_bytes: int) -> QosIntent:
        """What every switch port should do; sizes follow from the port's buffer."""

    @abstractmethod
    def transport(self, scaling: Scaling) -> TransportSettings:
        """What the agents open; timers in emulated seconds (lab seconds × time_dilation)."""

    @abstractmethod
    def hosts(self, scaling: Scaling) -> HostSettings:
        """What is set in every host's network stack."""
