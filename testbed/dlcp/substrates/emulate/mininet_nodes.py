"""Mininet's hosts, switches and links as this fabric uses them: Mininet keeps the shells, the fabric does the wiring.

Stock Mininet configures one interface at a time through each node's shell, prints errors and goes on. Here the fabric
makes, addresses and shapes links in batches and reads everything back; Mininet's objects only know of them, so that its
command line and its node.cmd() work as its users expect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mininet.link import Intf, Link
from mininet.net import Mininet
from mininet.node import Host, Switch

from dlcp.substrates.emulate.wiring_plan import FIRST_ADDRESS, NETWORK_BITS

_NODES_AT_A_TIME = 4


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


def empty_network(hosts: Mapping[str, str], switches: Iterable[str]) -> Any:
    """A Mininet of hosts (name → address and prefix length) and switches, without links.

    It must not touch the machine's sysctls and limits, which its set-up would raise. Nodes start some at a time: a node
    is a shell that has to come up.
    """
    Mininet.inited = True
    net = Mininet(
        topo=None,
        switch=FabricSwitch,
        host=FabricHost,
        link=FabricLink,
        intf=FabricInterface,
        controller=None,
        build=False,
        ipBase=f"{FIRST_ADDRESS}/{NETWORK_BITS}",
    )
    with ThreadPoolExecutor(_NODES_AT_A_TIME) as pool:
        made_hosts = list(pool.map(lambda name: FabricHost(name, ip=hosts[name]), hosts))
        made_switches = list(pool.map(lambda name: FabricSwitch(name, inNamespace=False), switches))
    for host in made_hosts:
        net.addHost(host.name, cls=_the(host), ip=hosts[host.name])
    for switch in made_switches:
        net.addSwitch(switch.name, cls=_the(switch))
    return net


def _the(node: Any) -> Any:
    """A constructor, as Mininet wants one, that gives a node made before."""
    return lambda *_, **__: node
