"""An inventory file → a checked lab, with every problem at its line."""

from __future__ import annotations

import ipaddress
from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from dlcp.errors import Problem, Problems
from dlcp.model.lab.device import Device
from dlcp.model.lab.inventory import (
    FILL_IN,
    HOSTS,
    SWITCHES,
    HostWords,
    Lab,
    LabHost,
    LabSwitch,
    LabWords,
    Login,
    SwitchWords,
    secret_words,
)
from dlcp.model.lab.inventory_scaffold import gaps
from dlcp.model.lab.ssh_words import EXTRA_ARGS, is_connection_word, refused_ssh_options, ssh_path
from dlcp.model.loading.check_topology import check_topology
from dlcp.model.loading.document import Document, Loc, read_document
from dlcp.model.loading.experiment_files import in_order, load_topology
from dlcp.model.loading.explain import did_you_mean, explain
from dlcp.model.loading.notes import Notes
from dlcp.model.topology import Graph, Topology, TopologyKind
from dlcp.model.units import WRITTEN
from dlcp.paths import SWITCH_CONFIGS

OURS = "dlcp_"
"""Prefix of the variables of dlcp: an unknown variable with it is a mistake."""


def load_inventory(path: Path) -> Lab:
    """An inventory, checked. Raises Problems: all of them, by file:line:col; nothing is reached or touched."""
    document = read_document(path)
    if document.data is None:
        raise Problems(document.problems)
    reader = _Reader(document)
    lab = reader.lab()
    if problems := [*document.problems, *reader.notes.problems]:
        raise Problems(in_order(problems))
    assert lab is not None
    return lab


class _Reader:
    """Reads one document; what is wrong goes into notes."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.notes = Notes(document)
        self.folder = document.path.resolve().parent

    def lab(self) -> Lab | None:
        """The lab, or None when anything is wrong."""
        self.notes.problems += secret_words(self.document)
        self._refuse_connection_words(("all", "vars"))
        for group in (SWITCHES, HOSTS):
            self._refuse_connection_words(("all", "children", group))
        for loc, gap in gaps(self.document.data):
            self.notes.wrong(loc, f"still to be filled in: {gap}", key=str(loc[-1]).startswith(FILL_IN))
        if self.notes.problems:
            return None
        words: LabWords | None = self._words(("all", "vars"), {}, LabWords)
        graph = self._graph(words.dlcp_topology) if words else None
        switches = self._members(SWITCHES, SwitchWords)
        hosts = self._members(HOSTS, HostWords)
        if words is None or graph is None:
            return None
        self._complete(SWITCHES, switches, graph.switches)
        self._complete(HOSTS, hosts, graph.hosts)
        self._unique(switches, hosts, words)
        read = Lab(
            name=words.dlcp_lab,
            path=self.document.path,
            graph=graph,
            networks=words.dlcp_networks,
            switches=self._switches(switches, graph, words),
            hosts={
                name: LabHost(
                    name,
                    self._login(entry, words),
                    entry.dlcp_interface,
                    entry.dlcp_address,
                    entry.dlcp_python,
                    entry.dlcp_agent,
                )
                for name, entry in hosts.items()
                if entry is not None
            },
        )
        return None if self.notes.problems else read

    def _refuse_connection_words(self, loc: Loc) -> None:
        """Note every word at `loc` and below that would change how devices are reached."""
        data = self.document.get(loc)
        for word in data if isinstance(data, dict) else ():
            if isinstance(word, str) and is_connection_word(word):
                hint = "remove it; more options of ssh go into ansible_ssh_extra_args"
                self.notes.wrong((*loc, word), f"`{word}` is the playbooks' to say, not an inventory's", hint, key=True)
            if word == EXTRA_ARGS and "{{" not in str(data[word]):  # a template is Ansible's: dlcp_plan reads its value
                for option in refused_ssh_options(str(data[word])):
                    problem = f"`{option}` in `{word}` would change which device is reached, or whose host key counts"
                    self.notes.wrong((*loc, word), problem, "remove it; a jump host is `-J jump`")
            self._refuse_connection_words((*loc, word))

    def _check_path(self, loc: Loc, path: Path) -> Path:
        """Return a path that ssh is given, noted when ssh cannot be given it."""
        try:
            ssh_path(str(path))
        except ValueError as error:
            self.notes.wrong(loc, str(error), "rename the folder or the file")
        return path

    def _members(self, group: str, kind: Any) -> dict[str, Any]:
        """Each member's words, None where they are wrong."""
        loc: Loc = ("all", "children", group)
        members = self.document.get((*loc, "hosts"))
        if not isinstance(members, dict) or not members:
            self.notes.wrong(loc, f"the group `{group}` has no hosts", "dlcp switch inventory writes one")
            return {}
        shared = {**self._vars(("all", "vars")), **self._vars((*loc, "vars"))}
        return {name: self._words((*loc, "hosts", name), shared, kind) for name in members}

    def _vars(self, loc: Loc) -> dict[str, Any]:
        entry = self.document.get(loc)
        return entry if isinstance(entry, dict) else {}

    def _words(self, loc: Loc, shared: dict[str, Any], kind: Any) -> Any:
        entry = self._vars(loc)
        lab_words = set(LabWords.model_fields) if kind is not LabWords else set()
        for word in entry:
            if isinstance(word, str) and word.startswith(OURS) and word not in kind.model_fields and not _of_role(word):
                elsewhere = {*LabWords.model_fields, *SwitchWords.model_fields, *HostWords.model_fields}
                if word not in elsewhere or word in lab_words:
                    known = [name for name in kind.model_fields if name.startswith(OURS)]
                    self.notes.wrong((*loc, word), f"unknown word `{word}`", did_you_mean(word, known), key=True)
        try:
            return TypeAdapter(kind).validate_python({**shared, **entry}, context=WRITTEN)
        except ValidationError as error:
            self.notes.problems += explain(self.document, error, kind, loc)
            return None

    def _graph(self, said: object) -> Graph | None:
        if isinstance(said, str):
            topology, problems = load_topology(said)
            if problems:
                self.notes.wrong(("all", "vars", "dlcp_topology"), f"the topology {said!r} is not usable")
                self.notes.problems += problems
            return topology.graph if topology else None
        loc: Loc = ("all", "vars", "dlcp_topology")
        try:
            kind: TopologyKind = TypeAdapter(Topology).validate_python(said, context=WRITTEN)
        except ValidationError as error:
            self.notes.problems += explain(self.document, error, Topology, loc)
            return None
        around = Document(self.document.path, self.document.shown_path, {"topology": said})
        notes = Notes(around)
        check_topology(notes, kind)
        self.notes.problems += notes.problems
        return None if notes.problems else kind.graph

    def _complete(self, group: str, members: dict[str, Any], nodes: tuple[str, ...]) -> None:
        loc: Loc = ("all", "children", group, "hosts")
        for node in nodes:
            if node not in members:
                self.notes.wrong(loc, f"{node} of the topology is missing", f"add it to `{group}`")
        for name in members:
            if name not in nodes:
                self.notes.wrong(
                    (*loc, name), f"{name} is no node of the topology", did_you_mean(name, nodes), key=True
                )

    def _unique(self, switches: dict[str, Any], hosts: dict[str, Any], words: LabWords) -> None:
        """Two devices at one address would be configured twice; one outside of the lab, by mistake."""
        members = [(SWITCHES, name, switch) for name, switch in switches.items()]
        members += [(HOSTS, name, host) for name, host in hosts.items()]
        logins = Counter((member.ansible_host, member.ansible_port) for _, _, member in members if member)
        on_fabric = Counter(host.dlcp_address for host in hosts.values() if host)
        networks = [ipaddress.ip_network(network) for network in words.dlcp_networks]
        for group, name, member in members:
            if member is None:
                continue
            loc: Loc = ("all", "children", group, "hosts", name)
            if not any(ipaddress.ip_address(member.ansible_host) in network for network in networks):
                problem = f"{member.ansible_host} is in none of the lab's networks ({', '.join(words.dlcp_networks)})"
                self.notes.wrong((*loc, "ansible_host"), problem, "correct it, or add its network to `dlcp_networks`")
            if logins[(member.ansible_host, member.ansible_port)] > 1:
                self.notes.wrong(
                    (*loc, "ansible_host"), f"another device has {member.ansible_host} port {member.ansible_port} too"
                )
            if group == HOSTS and on_fabric[member.dlcp_address] > 1:
                self.notes.wrong((*loc, "dlcp_address"), f"another host has {member.dlcp_address} too")

    def _system_known(self, name: str, system: str) -> bool:
        known = _systems()
        if system not in known:
            own_loc: Loc = ("all", "children", SWITCHES, "hosts", name, "dlcp_system")
            shared: Loc = ("all", "children", SWITCHES, "vars", "dlcp_system")
            loc = own_loc if own_loc in self.document.values or shared not in self.document.values else shared
            self.notes.wrong(loc, f"no such switch system: {system!r}", did_you_mean(system, known))
        return system in known

    def _switches(self, said: dict[str, Any], graph: Graph, words: LabWords) -> dict[str, LabSwitch]:
        lab_switches = {}
        for name, entry in said.items():
            if entry is None or name not in graph.switches:
                continue
            if not all((self._system_known(name, entry.dlcp_system), self._wired(name, entry, graph))):
                continue
            rates = {port: graph.link_rate_bps(name, other) for port, other in entry.dlcp_ports.items()}
            loc: Loc = ("all", "children", SWITCHES, "hosts", name)
            try:
                device = Device(
                    name=name,
                    system=entry.dlcp_system,
                    chip=entry.dlcp_chip,
                    ports=rates,
                    management=entry.dlcp_management,
                    buffer=entry.dlcp_buffer,
                    port_buffer=entry.dlcp_port_buffer,
                    queue=entry.dlcp_queue,
                    cell=entry.dlcp_cell,
                )
            except ValidationError as error:
                self.notes.problems += [
                    Problem(
                        self.document.where(loc, key=True), f"{name}: {one_error['msg'].removeprefix('Value error, ')}"
                    )
                    for one_error in error.errors()
                ]
                continue
            where = self.document.where(loc, key=True)
            lab_switches[name] = LabSwitch(
                device,
                self._login(entry, words),
                dict(entry.dlcp_ports),
                entry.dlcp_python,
                where,
                entry.dlcp_state,
            )
        return lab_switches

    def _wired(self, name: str, one: SwitchWords, graph: Graph) -> bool:
        """Return true if every link of the topology has its port, and every port its link."""
        loc: Loc = ("all", "children", SWITCHES, "hosts", name, "dlcp_ports")
        before = len(self.notes.problems)
        ends = Counter(one.dlcp_ports.values())
        for other in graph.neighbours[name]:
            if not ends[other]:
                self.notes.wrong(loc, f"{name} has no port to {other}", f"add `PORT: {other}`", key=True)
        for port, other in one.dlcp_ports.items():
            if other not in graph.neighbours[name]:
                known = did_you_mean(other, graph.neighbours[name])
                self.notes.wrong((*loc, port), f"the topology has no link from {name} to {other}", known)
            elif ends[other] > 1:
                self.notes.wrong(
                    (*loc, port), f"two ports of {name} lead to {other}", "a link has one port at each end"
                )
        return len(self.notes.problems) == before

    def _login(self, said: SwitchWords | HostWords, words: LabWords) -> Login:
        key = self.folder / Path(said.ansible_ssh_private_key_file).expanduser()
        known_hosts = self.folder / Path(words.dlcp_known_hosts).expanduser()
        loc: Loc = ("all", "vars")
        return Login(
            address=said.ansible_host,
            port=said.ansible_port,
            user=said.ansible_user,
            key=self._check_path((*loc, "ansible_ssh_private_key_file"), key),
            known_hosts=self._check_path((*loc, "dlcp_known_hosts"), known_hosts),
        )


def _systems() -> list[str]:
    """A system is a folder of switch_configs."""
    return sorted(file.parent.name for file in SWITCH_CONFIGS.glob("*/capabilities.yaml"))


def _of_role(word: str) -> bool:
    """Return true if a variable is for one system's role alone."""
    return any(word.startswith(f"{OURS}{system}_") for system in _systems())
