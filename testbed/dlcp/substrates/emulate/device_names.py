"""The network devices of a namespace."""

from __future__ import annotations

from dlcp.isolation.netns import Namespace
from dlcp.switches import devices


class Devices(devices.Devices):
    """The devices of a namespace; a context manager."""

    def __init__(self, namespace: Namespace) -> None:
        with namespace.entered():
            super().__init__(namespace.name)
