"""A topology + what people know of their lab → an inventory, with every gap named for a person to fill. Pure.

What people know is said in the form of an inventory, whole or in part: a former inventory serves as well, so that a
topology that has grown keeps what was filled in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import yaml

from dlcp.errors import Problem, Problems
from dlcp.model.lab.inventory import FILL_IN, HOSTS, SWITCHES, secret_words
from dlcp.model.loading.document import Document
from dlcp.model.loading.explain import did_you_mean
from dlcp.model.topology import Graph

_OF_ALL = {
    "dlcp_networks": [f"{FILL_IN}: the network of the management addresses, such as 10.1.0.0/24: all that is reached"],
    "dlcp_known_hosts": "known_hosts",
    "ansible_user": f"{FILL_IN}: the user on the devices",
    "ansible_ssh_private_key_file": f"{FILL_IN}: the private key's file, from this file's folder on",
}
_OF_SWITCHES = {
    "dlcp_system": f"{FILL_IN}: a system of `dlcp show switches`",
    "dlcp_chip": f"{FILL_IN}: a chip of `dlcp show switches SYSTEM`",
    "dlcp_management": [f"{FILL_IN}: the management interface, which is never touched"],
    "dlcp_buffer": f"{FILL_IN}: the chip's whole packet memory, such as 16 MB",
    "dlcp_port_buffer": f"{FILL_IN}: the most of it that one port can take",
    "dlcp_queue": f"{FILL_IN}: the most that one queue can hold",
}
_OF_HOSTS = {"dlcp_interface": f"{FILL_IN}: the interface on the fabric", "dlcp_agent": "ssh"}
_HEAD = """\
# The lab {name}, for Ansible and for dlcp. Every value that begins with FILL IN is for a person to know{count}.
# No password belongs here: people log in by key, and what an API wants is a reference to a vault's word.
"""


def new_inventory(name: str, topology: str | Mapping[str, Any], graph: Graph, known: Document | None) -> dict[str, Any]:
    """The inventory as data. topology: as the inventory is to name it. known: an inventory, whole or in part.

    Raises Problems when `known` names nodes that the topology has not, or holds a secret.
    """
    given: dict[str, Any] = (deepcopy(known.data) if known is not None else None) or {}
    if known is not None:
        _check(known, graph)
    shared = _vars(given, "all", "vars")
    groups: dict[str, Any] = {}
    for group, nodes, gaps in ((SWITCHES, graph.switches, _OF_SWITCHES), (HOSTS, graph.hosts, _OF_HOSTS)):
        group_vars = _vars(given, "all", "children", group, "vars")
        node_vars = {node: _vars(given, "all", "children", group, "hosts", node) for node in nodes}
        open_gaps = {
            word: gap
            for word, gap in gaps.items()
            if word not in shared and not all(word in node_vars[node] for node in nodes)
        }
        hosts = {node: _node(group, node, graph, node_vars[node]) for node in nodes}
        groups[group] = {**({"vars": {**open_gaps, **group_vars}} if open_gaps or group_vars else {}), "hosts": hosts}
    first = {"dlcp_lab": shared.get("dlcp_lab", _lab_name(name)), "dlcp_topology": topology}
    return {"all": {"vars": {**first, **_OF_ALL, **shared, "dlcp_topology": topology}, "children": groups}}


def gaps(data: Any, loc: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Where something is still to be filled in, and what. Keys count too: a port whose name is not known."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            if isinstance(key, str) and key.startswith(FILL_IN):
                yield (*loc, key), key.removeprefix(f"{FILL_IN}: ")
            yield from gaps(value, (*loc, key))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from gaps(value, (*loc, number))
    elif isinstance(data, str) and data.startswith(FILL_IN):
        yield loc, data.removeprefix(f"{FILL_IN}: ")


def inventory_text(inventory: Mapping[str, Any]) -> str:
    """As a file: in the order of the topology, the same for the same input."""
    many = sum(1 for _ in gaps(inventory))
    head = _HEAD.format(
        name=inventory["all"]["vars"]["dlcp_lab"], count=f" ({many} left)" if many else ": none is left"
    )
    return head + yaml.dump(inventory, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=120)


class _Plain(yaml.SafeDumper):
    """No anchors: a person reads and edits it."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Lists stand below their key, as yamllint wants them."""
        super().increase_indent(flow, False)


def _node(group: str, node: str, graph: Graph, said: Mapping[str, Any]) -> dict[str, Any]:
    address = {"ansible_host": f"{FILL_IN}: the management address of {node}"}
    if group == HOSTS:
        return {**address, "dlcp_address": f"{FILL_IN}: the address of {node} on the fabric", **said}
    ports = dict(said.get("dlcp_ports") or {})
    ports = {port: other for port, other in ports.items() if other in graph.neighbours[node]}
    for other in graph.neighbours[node]:
        if other not in ports.values():
            ports[f"{FILL_IN}: the port to {other}"] = other
    return {**address, **said, "dlcp_ports": ports}


def _check(known: Document, graph: Graph) -> None:
    problems = list(known.problems)
    for group, nodes in ((SWITCHES, graph.switches), (HOSTS, graph.hosts)):
        loc = ("all", "children", group, "hosts")
        for node in _vars(known.data, *loc):
            if node not in nodes:
                where = known.where((*loc, node), key=True)
                problems.append(Problem(where, f"{node} is none of the topology's {group}", did_you_mean(node, nodes)))
    problems += secret_words(known)
    if problems:
        raise Problems(problems)


def _vars(data: Any, *loc: str) -> dict[str, Any]:
    for step in loc:
        data = data.get(step) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def _lab_name(name: str) -> str:
    """A name that an inventory takes, made of a topology's."""
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-").lstrip("0123456789-") or "lab"
