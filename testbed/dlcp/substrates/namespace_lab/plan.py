"""The plan of a namespace lab: interfaces, addresses, routes and the inventory of every node. Pure; touches nothing.

Addresses: management 10.200.0.0/24, the controller first; host N has 198.18.N.2/24 and its leaf 198.18.N.1; the link
between two switches is a /31 of 198.19.0.0/16. 198.18.0.0/15 is set aside for benchmarks (RFC 2544).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path
from typing import Any

from dlcp.errors import Problem
from dlcp.model.lab.inventory import HOSTS, SSH_PORT, SWITCHES
from dlcp.model.lab.ssh_words import ssh_path
from dlcp.model.topology import Graph

MANAGEMENT = IPv4Network("10.200.0.0/24")
CONTROLLER = IPv4Interface(f"{MANAGEMENT[1]}/{MANAGEMENT.prefixlen}")
MANAGEMENT_DEVICE = "mgmt0"
FABRIC = IPv4Network("198.18.0.0/15")
USER = "root"

_FIRST_NODE = 2
"""The controller has the first address."""
_UPLINKS = IPv4Network("198.19.0.0/16")
_HASH_ADDRESSES_AND_PORTS = "1"
"""Of fib_multipath_hash_policy (Documentation/networking/ip-sysctl.rst)."""

_SWITCH_SYSCTLS = {
    "net.ipv4.ip_forward": "1",
    "net.ipv4.fib_multipath_hash_policy": _HASH_ADDRESSES_AND_PORTS,
    "net.ipv4.conf.all.rp_filter": "0",
    "net.ipv4.conf.default.rp_filter": "0",
    "net.ipv4.conf.all.send_redirects": "0",
    "net.ipv4.conf.default.send_redirects": "0",
}
_QUIET = {"net.ipv6.conf.all.disable_ipv6": "1", "net.ipv6.conf.default.disable_ipv6": "1"}
"""Neighbour discovery would put frames into the switches' counters that no account knows."""


@dataclass(frozen=True)
class Interface:
    """One end of a cable: eth1, eth2, … of a node. address: on the fabric. rate_bps: the link's."""

    node: str
    device: str
    neighbour: str
    address: IPv4Interface
    rate_bps: float


@dataclass(frozen=True)
class LabPlan:
    """Everything that a namespace lab is made of. Raises Problem where namespaces cannot stand for the topology."""

    graph: Graph

    def __post_init__(self) -> None:
        if len(self.nodes) > MANAGEMENT.num_addresses - 1 - _FIRST_NODE:
            raise Problem("namespace lab", f"{len(self.nodes)} nodes do not fit {MANAGEMENT}", "use fewer hosts")
        for link in self.graph.links:
            if link.delay_s:
                what = f"the link {link.a} – {link.b} has a delay, and a cable between namespaces has none"
                raise Problem("namespace lab", what, "leave `delay` out of the topology")
        for host in self.graph.hosts:
            if (count := len(self.graph.neighbours[host])) != 1:
                raise Problem("namespace lab", f"{host} has {count} links; a host has one")

    @property
    def nodes(self) -> tuple[str, ...]:
        """Switches, then hosts."""
        return (*self.graph.switches, *self.graph.hosts)

    def management_address(self, node: str) -> IPv4Interface:
        """Of mgmt0."""
        return IPv4Interface(f"{MANAGEMENT[_FIRST_NODE + self.nodes.index(node)]}/{MANAGEMENT.prefixlen}")

    @cached_property
    def cables(self) -> tuple[tuple[Interface, Interface], ...]:
        """Both ends of every link, in the graph's order."""
        uplinks = _UPLINKS.subnets(new_prefix=31)
        used = dict.fromkeys(self.nodes, 0)
        found = []
        for link in self.graph.links:
            host = next((end for end in (link.a, link.b) if end in self.graph.hosts), None)
            if host is None:
                low, high = next(uplinks)
                addresses = {link.a: IPv4Interface(f"{low}/31"), link.b: IPv4Interface(f"{high}/31")}
            else:
                other = link.b if host == link.a else link.a
                addresses = {host: self._in_rack(host, 2), other: self._in_rack(host, 1)}
            ends = []
            for node, neighbour in ((link.a, link.b), (link.b, link.a)):
                used[node] += 1
                ends.append(Interface(node, f"eth{used[node]}", neighbour, addresses[node], link.rate_bps))
            found.append((ends[0], ends[1]))
        return tuple(found)

    def interfaces(self, node: str) -> tuple[Interface, ...]:
        """A node's, eth1 first."""
        return tuple(end for cable in self.cables for end in cable if end.node == node)

    def host_address(self, host: str) -> str:
        """A host's own on the fabric."""
        return str(self._in_rack(host, 2).ip)

    def routes(self, node: str) -> list[str]:
        """A node's routes, as `ip route add` takes them: equal-cost ones with all their next hops."""
        if node in self.graph.hosts:
            return [f"{FABRIC} via {self._in_rack(node, 1).ip} dev eth1"]
        ends = {end.neighbour: end for end in self.interfaces(node)}
        far = {end.node: end for cable in self.cables for end in cable if end.neighbour == node}
        found = []
        for host in self.graph.hosts:
            hops = self.graph.next_hops(node, host)
            if host not in hops and hops:
                words = " ".join(f"nexthop via {far[hop].address.ip} dev {ends[hop].device}" for hop in hops)
                found.append(f"{self._in_rack(host, 0).network} {words}")
        return found

    def sysctls(self, node: str) -> dict[str, str]:
        """What a node's kernel is told, before its links are up."""
        return _QUIET | (_SWITCH_SYSCTLS if node in self.graph.switches else {})

    def inventory(self, name: str, topology: str | Mapping[str, Any], folder: Path, python: str) -> dict[str, Any]:
        """What lab.yaml says. topology: as the inventory names it. folder: of keys. python: the nodes', with dlcp."""
        shared = {
            "dlcp_lab": name,
            "dlcp_topology": topology,
            "dlcp_networks": [str(MANAGEMENT)],
            "dlcp_known_hosts": "known_hosts",
            "ansible_user": USER,
            "ansible_ssh_private_key_file": str(folder / "id_ed25519"),
            "ansible_ssh_extra_args": shlex.join(ssh_options(folder)),  # for `ansible` in a lab's shell
            "ansible_python_interpreter": python,
            "dlcp_python": python,
        }
        switches = {
            switch: {
                **self._reached(switch),
                "dlcp_ports": {end.device: end.neighbour for end in self.interfaces(switch)},
            }
            for switch in self.graph.switches
        }
        chip = {
            "dlcp_system": "linux",
            "dlcp_chip": "veth",
            "dlcp_management": [MANAGEMENT_DEVICE],
            "dlcp_buffer": "32 MB",
            "dlcp_port_buffer": "32 MB",  # no limit of a port but the thresholds of its queues, which isolate them
            "dlcp_queue": "16 MB",
        }
        hosts = {
            host: {**self._reached(host), "dlcp_interface": "eth1", "dlcp_address": self.host_address(host)}
            for host in self.graph.hosts
        }
        groups = {SWITCHES: {"vars": chip, "hosts": switches}, HOSTS: {"hosts": hosts}}
        return {"all": {"vars": shared, "children": groups}}

    def _reached(self, node: str) -> dict[str, Any]:
        return {"ansible_host": str(self.management_address(node).ip), "ansible_port": SSH_PORT}

    def _in_rack(self, host: str, last: int) -> IPv4Interface:
        """198.18.N.last/24 of the N-th host."""
        return IPv4Interface(f"198.18.{(self.graph.hosts.index(host) + 1) % 256}.{last}/24")


def ssh_options(folder: Path) -> list[str]:
    """Words for ssh: the lab's own known hosts and no others, no question asked, no password tried."""
    options = {
        "UserKnownHostsFile": ssh_path(str(folder / "known_hosts")),
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "IdentitiesOnly": "yes",
        "PasswordAuthentication": "no",
    }
    return [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
