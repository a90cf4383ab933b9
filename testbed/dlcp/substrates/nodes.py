"""Mininet's hosts, switches and links as this fabric uses them: Mininet keeps the shells, the fabric does the wiring.

Stock Mininet configures one interface at a time through each node's shell, prints errors and goes on. Here the fabric
makes, addresses and shapes links in batches and reads everything back; Mininet's objects only know of them, so that its
command line and its node.cmd() work as its users expect.
"""

from __future__ import annotations

from typing import Any

from mininet.link import Intf, Link
from mininet.net import Mininet
from mininet.node import Host, Switch


class FabricHost(Host):  # type: ignore[misc]
    """A shell in a network namespace of its own."""

    @classmethod
    def setup(cls) -> None:
        """Nothing to prepare: `dlcp doctor` checks the machine."""


class FabricSwitch(Switch):  # type: ignore[misc]
    """A shell in the fabric's own namespace, where all switch ports are; forwarding is eBPF at those ports."""

    @classmethod
    def setup(cls) -> None:
        """Nothing to prepare: `dlcp doctor` checks the machine."""

    def __init__(self, name: str, **parameters: Any) -> None:
        super().__init__(name, dpid="1", **parameters)  # OpenFlow's; it would be guessed from digits in the name

    def start(self, controllers: list[Any]) -> None:
        """The fabric has set its ports up already."""


class FabricInterface(Intf):  # type: ignore[misc]
    """An interface that exists and is configured already."""

    def config(self, **parameters: Any) -> dict[str, Any]:
        """The fabric configures it."""
        return {}

    def updateIP(self) -> str | None:  # noqa: N802 - Mininet's name
        """Its address; the fabric's never change."""
        address: str | None = self.ip
        return address


class FabricLink(Link):  # type: ignore[misc]
    """A veth pair that exists already."""

    @classmethod
    def makeIntfPair(cls, *arguments: Any, **options: Any) -> None:  # noqa: N802 - Mininet's name
        """The fabric makes all pairs at once."""


def empty_network() -> Any:
    """A Mininet without nodes. It must not touch the machine's sysctls and limits, which its set-up would raise."""
    Mininet.inited = True
    return Mininet(
        topo=None,
        switch=FabricSwitch,
        host=FabricHost,
        link=FabricLink,
        intf=FabricInterface,
        controller=None,
        build=False,
        ipBase="198.18.0.0/15",
    )
