"""A lab: which device stands for which node of the topology, how to reach it, and what may be touched on it.

An inventory is an Ansible inventory in YAML whose own words begin with `dlcp_`; Ansible reads the same file. Only the
groups `dlcp_switches` and `dlcp_hosts` are looked at. Words of other people, and secrets in group_vars, are left alone.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from dlcp.errors import Problem
from dlcp.model.base import Frozen
from dlcp.model.lab.device import Device
from dlcp.model.loading.document import Document, Loc
from dlcp.model.topology import Graph
from dlcp.model.units import Size

SWITCHES, HOSTS = "dlcp_switches", "dlcp_hosts"
"""The groups of an inventory."""
SSH_PORT = 22
AGENT_SOCKET = "/run/dlcp/agent.sock"
"""Where the agent's unit listens (playbooks/plugins/module_utils/dlcp_agent_units.py)."""
AgentWay = Literal["ssh", "unit"]
"""How runs get an agent on a host: the SSH user's own process, or one that systemd starts at a connection."""
FILL_IN = "FILL IN"
"""Prefix of a value, or a port's name, that a person must still fill in."""
_SECRET = re.compile(r"(password|passwd|_pass|secret|token)$")


def _network(text: str) -> str:
    return str(ipaddress.ip_network(text))


def _address(text: str) -> str:
    return str(ipaddress.ip_address(text))


Network = Annotated[str, AfterValidator(_network)]
Address = Annotated[str, AfterValidator(_address)]


class Login(Frozen):
    """How to reach a device: always by key, always with a host key that `known_hosts` holds.

    key: the private key's file. known_hosts: of the lab. Both absolute.
    """

    address: Address
    port: int
    user: str
    key: Path
    known_hosts: Path


class SwitchWords(Frozen):
    """Variables of a switch in an inventory. Sizes as in Device. ports: port → the node at its other end.

    dlcp_python, dlcp_state: of a system that runs dlcp itself (linux): a Python that has it, and the folder that it
    keeps its state in (None = the usual one). A word that begins with dlcp_<system>_ is for that system's role alone.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    ansible_host: Address
    ansible_port: int = Field(default=SSH_PORT, ge=1, le=65535)
    ansible_user: str
    ansible_ssh_private_key_file: str
    dlcp_system: str
    dlcp_chip: str
    dlcp_ports: dict[str, str] = Field(min_length=1)
    dlcp_management: tuple[str, ...] = Field(min_length=1)
    dlcp_buffer: Size = Field(gt=0)
    dlcp_port_buffer: Size = Field(gt=0)
    dlcp_queue: Size = Field(gt=0)
    dlcp_cell: int = Field(default=1, ge=1)
    dlcp_python: str = "/opt/dlcp/bin/python"
    dlcp_state: str | None = None


class HostWords(Frozen):
    """Variables of a host in an inventory. dlcp_address: of dlcp_interface, on the fabric. dlcp_python: as of a switch.
    dlcp_agent: unit where playbooks/hosts.yml is to install the agent's unit, and runs are to use it."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    ansible_host: Address
    ansible_port: int = Field(default=SSH_PORT, ge=1, le=65535)
    ansible_user: str
    ansible_ssh_private_key_file: str
    dlcp_interface: str
    dlcp_address: Address
    dlcp_agent: AgentWay = "ssh"
    dlcp_python: str = "/opt/dlcp/bin/python"


@dataclass(frozen=True)
class LabSwitch:
    """A switch. wiring: port → the node at its other end. python, state: of a system that runs dlcp itself (linux), as
    in SwitchWords.

    where: the file:line:col of its entry in the inventory.
    """

    device: Device
    login: Login
    wiring: dict[str, str]
    python: str
    where: str = ""
    state: str | None = None

    def port_to(self, node: str) -> str:
        """The port that leads to a neighbour; KeyError when there is none."""
        return {other: port for port, other in self.wiring.items()}[node]


@dataclass(frozen=True)
class LabHost:
    """A host. address: IPv4, of `interface`, on the fabric, where experiments send."""

    name: str
    login: Login
    interface: str
    address: str
    python: str
    agent: AgentWay = "ssh"


@dataclass(frozen=True)
class Lab:
    """A whole lab, by node names of its topology.

    networks: management addresses outside of them are refused. path: the inventory.
    """

    name: str
    path: Path
    graph: Graph
    networks: tuple[str, ...]
    switches: dict[str, LabSwitch]
    hosts: dict[str, LabHost]


class LabWords(Frozen):
    """Variables of the whole lab in an inventory. dlcp_topology: a name in testbed/topologies, or a topology.

    dlcp_known_hosts, and the key files of devices: relative to the inventory.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    dlcp_lab: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    dlcp_topology: Any
    dlcp_networks: tuple[Network, ...] = Field(min_length=1)
    dlcp_known_hosts: str = "known_hosts"


def secret_words(document: Document) -> list[Problem]:
    """Secrets that stand in a file as they are. A reference to a word of a vault, "{{ … }}", is none."""
    hint = 'log in by key; for an API: ansible-vault in group_vars, and here "{{ vault_word }}"'
    return [
        Problem(document.where(loc, key=True), f"`{loc[-1]}` holds a secret in plain text", hint)
        for loc, value in _scalars(document.data, ())
        if isinstance(loc[-1], str) and _SECRET.search(loc[-1].lower()) and "{{" not in str(value)
    ]


def _scalars(data: Any, loc: Loc) -> Iterator[tuple[Loc, Any]]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _scalars(value, (*loc, key))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from _scalars(value, (*loc, number))
    elif loc:
        yield loc, data
