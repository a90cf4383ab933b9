"""The namespace lab: a topology of nodes that are machines in all but the kernel, reached over SSH as a rack is.

It lives in private namespaces (isolation/private_namespaces.py), where this process is the controller: a kill -9 leaves
nothing, and several labs do not see each other. Switches forward by the kernel's routes; nothing is shaped there until
a QoS intent is deployed. A host's interface sends at its link's rate, as its NIC would.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from dlcp import paths
from dlcp.errors import MachineCannot, Problem, Problems
from dlcp.isolation.netns import Namespace
from dlcp.isolation.private_namespaces import BPF_PINS, RUNTIME
from dlcp.model.frames import FRAME_BYTES
from dlcp.model.lab.inventory import SSH_PORT
from dlcp.model.lab.ssh_words import ssh_path
from dlcp.model.loading.experiment_files import load_topology
from dlcp.model.topology import Graph, Topology, TopologyKind
from dlcp.model.units import WRITTEN
from dlcp.substrates.emulate.device_names import Devices
from dlcp.substrates.namespace_lab.node import Node
from dlcp.substrates.namespace_lab.plan import CONTROLLER, MANAGEMENT_DEVICE, USER, LabPlan, ssh_options
from dlcp.switches.tc import burst_bytes

DEFAULT_TOPOLOGY = "leaf-spine-4"
"""In testbed/topologies."""
INVENTORY, SSH_CONFIG, PROCESSES = "lab.yaml", "ssh_config", "processes.json"
"""Files of a lab's folder; the last: node → pid, as the controller numbers processes."""

_BRIDGE = "mgmt"
_SERVES_WITHIN_S = 10.0
_SETTLES_WITHIN_S = 10.0
_POLL_S = 0.005
_AT_A_TIME = 4
_NIC_QUEUE_BYTES = 1 << 26
"""Far above what sockets have under way: a sender waits, as it does for a real NIC."""


@contextmanager
def nslab(topology: str | Mapping[str, Any], folder: Path, name: str = "nslab") -> Iterator[Path]:
    """A lab for the time of the block; gives its inventory, folder/lab.yaml.

    topology: a name in testbed/topologies, or one written out, as an inventory has it. folder: for keys, known hosts
    and logs; made if it is not there, and left behind. Only in private namespaces. Problem or MachineCannot else.
    """
    with NamespaceLab(topology, folder, name) as lab:
        yield lab.path


class NamespaceLab:
    """What nslab gives, with its nodes at hand. A context manager; path: the inventory."""

    def __init__(self, topology: str | Mapping[str, Any], folder: Path, name: str = "nslab") -> None:
        if not BPF_PINS.is_dir():
            raise Problem("namespace lab", "is only built in private namespaces", "dlcp lab shell makes them")
        self.plan = LabPlan(_graph(topology))
        self.folder = folder.resolve()
        self.path = self.folder / INVENTORY
        self.nodes: dict[str, Node] = {}
        self._topology = topology
        self._name = name
        self._networks: dict[str, Namespace] = {}
        self._stack = ExitStack()

    def __enter__(self) -> NamespaceLab:
        with ExitStack() as stack:
            stack.callback(self._take_down)
            self._start_nodes()
            self._lay_cables()
            self._at_all(self._set_up)
            self._serve()
            self._at_all(self._settle)
            self._write_files()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start_nodes(self) -> None:
        sshd = _sshd()
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "logs").mkdir(exist_ok=True)
        private, public = self._keys()
        known = []
        for node in self.plan.nodes:
            address = str(self.plan.management_address(node).ip)
            base, log = RUNTIME / "nodes" / node, self.folder / "logs" / f"{node}.sshd.log"
            self.nodes[node] = Node(node, address, base, sshd, (private[node].read_text(), public[""]), log)
            known.append(f"{address} {public[node]}")
        (self.folder / "known_hosts").write_text("\n".join(known) + "\n")
        for name, started in self.nodes.items():
            self._networks[name] = started.furnished()

    def _keys(self) -> tuple[dict[str, Path], dict[str, str]]:
        """Private key files and public keys of every node, and of the lab ("") that may log in."""
        keys = RUNTIME / "keys"
        keys.mkdir(mode=0o700)
        private = {node: keys / node for node in self.plan.nodes} | {"": self.folder / "id_ed25519"}
        private[""].unlink(missing_ok=True)

        def make(path: Path) -> str:
            _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "dlcp lab", "-f", str(path)])
            return " ".join(path.with_name(f"{path.name}.pub").read_text().split()[:2])

        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            return private, dict(zip(private, pool.map(make, private.values()), strict=True))

    def _lay_cables(self) -> None:
        lines = [f"link add {_BRIDGE} type bridge", f"address add {CONTROLLER} dev {_BRIDGE}"]
        for number, (name, node) in enumerate(self.nodes.items()):
            lines.append(f"link add m{number} type veth peer name {MANAGEMENT_DEVICE} netns {node.pid}")
            lines.append(f"link set m{number} master {_BRIDGE} up")
            lines.append(f"link property add dev m{number} altname to-{name}")
        lines.append(f"link set {_BRIDGE} up")
        for a, b in self.plan.cables:
            ends = [f"name {end.device} netns {self.nodes[end.node].pid}" for end in (a, b)]
            lines.append(f"link add {ends[0]} type veth peer {ends[1]}")
        with_own = Namespace("controller", os.getpid())
        try:
            with_own.run(["ip", "-batch", "-"], lines)
        finally:
            with_own.close()

    def _set_up(self, node: str) -> None:
        """A node's sysctls, interfaces, addresses and routes."""
        network, ends = self._networks[node], self.plan.interfaces(node)
        for sysctl, value in self.plan.sysctls(node).items():
            if network.read_sysctl(sysctl) is not None:
                network.write_sysctl(sysctl, value)
        with Devices(network) as devices:
            for end in ends:
                devices.disable_offloads(end.device)
        lines = ["link set lo up", f"address add {self.plan.management_address(node)} dev {MANAGEMENT_DEVICE}"]
        lines += [f"address add {end.address} dev {end.device}" for end in ends]
        lines += [f"link set {device} up" for device in (MANAGEMENT_DEVICE, *(end.device for end in ends))]
        lines += [f"route add {route}" for route in self.plan.routes(node)]
        network.run(["ip", "-batch", "-"], lines)
        if node in self.plan.graph.hosts:
            network.run(["tc", "-batch", "-"], _nic(ends[0].device, ends[0].rate_bps))

    def _serve(self) -> None:
        """sshd of all nodes, until each answers."""
        for node in self.nodes.values():
            node.serve()
        deadline = time.monotonic() + _SERVES_WITHIN_S
        for name, node in self.nodes.items():
            while not _answers(str(self.plan.management_address(name).ip)):
                node.require_alive()
                if time.monotonic() > deadline:
                    raise Problem(name, f"does not answer on port {SSH_PORT} within {_SERVES_WITHIN_S:g} s")
                time.sleep(_POLL_S)

    def _settle(self, node: str) -> None:
        """Until the kernel has seen that a node's cables are plugged in: routes say `linkdown` before, and change."""
        deadline = time.monotonic() + _SETTLES_WITHIN_S
        while "linkdown" in self._networks[node].run(["ip", "route", "show", "table", "all"]):
            if time.monotonic() > deadline:
                raise Problem(node, f"has a link that is not up within {_SETTLES_WITHIN_S:g} s")
            time.sleep(_POLL_S)

    def _write_files(self) -> None:
        (self.folder / SSH_CONFIG).write_text(self._ssh_config())
        (self.folder / PROCESSES).write_text(json.dumps({name: node.pid for name, node in self.nodes.items()}))
        words = self.plan.inventory(self._name, self._topology, self.folder, sys.executable)
        sockets = RUNTIME / "ssh"
        sockets.mkdir(mode=0o700, exist_ok=True)
        words["all"]["vars"]["ansible_control_path_dir"] = str(sockets)  # two labs have the same addresses
        text = "# Written by dlcp for a lab of namespaces; it stands as long as they do.\n"
        self.path.write_text(text + yaml.safe_dump(words, sort_keys=False))

    def _ssh_config(self) -> str:
        lines = []
        for node in self.plan.nodes:
            lines += [f"Host {node}", f"  HostName {self.plan.management_address(node).ip}"]
        lines += ["Host *", f"  User {USER}", f"  IdentityFile {ssh_path(str(self.folder / 'id_ed25519'))}"]
        options = ssh_options(self.folder)[1::2]
        return "\n".join([*lines, *("  " + option.replace("=", " ", 1) for option in options)]) + "\n"

    def _at_all(self, work: Any) -> None:
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            for _ in pool.map(work, self.plan.nodes):
                pass  # raises what went wrong at a node

    def _take_down(self) -> None:
        for network in self._networks.values():
            network.close()
        for node in self.nodes.values():
            node.stop()
        subprocess.run(["ip", "link", "delete", _BRIDGE], capture_output=True, check=False)
        for place in (RUNTIME / "nodes", RUNTIME / "keys"):
            shutil.rmtree(place, ignore_errors=True)
        self._networks, self.nodes = {}, {}


def controller_environment(inventory: Path) -> dict[str, str]:
    """What commands on a lab's controller need to know: the lab, and the tools that this Python came with."""
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "DLCP_LAB": str(inventory), "PATH": tools}


def keep(arguments: list[str]) -> int:
    """Entry point of private namespaces: a lab that stands until standard input ends. arguments: JSON of nslab's.

    Prints its inventory's path when it stands.
    """
    request = json.loads(arguments[0])
    with nslab(request["topology"], Path(request["folder"])) as path:
        print(path, flush=True)
        sys.stdin.read()
    return 0


def _graph(topology: str | Mapping[str, Any]) -> Graph:
    if isinstance(topology, str):
        found, problems = load_topology(topology)
        if found is None:
            raise Problems(problems)
        return found.graph
    kind: TopologyKind = TypeAdapter(Topology).validate_python(dict(topology), context=WRITTEN)
    return kind.graph


def _nic(device: str, rate_bps: float) -> list[str]:
    """Lines for tc: one queue at the link's rate."""
    rate, burst = f"{rate_bps:.0f}bit", burst_bytes(rate_bps)
    shape = f"rate {rate} ceil {rate} burst {burst} cburst {burst} quantum {FRAME_BYTES}"
    return [
        f"qdisc add dev {device} root handle 1: htb default 1",
        f"class add dev {device} parent 1: classid 1:1 htb {shape}",
        f"qdisc add dev {device} parent 1:1 handle 10: bfifo limit {_NIC_QUEUE_BYTES}",
    ]


def _answers(address: str) -> bool:
    try:
        with socket.create_connection((address, SSH_PORT), timeout=1.0):
            return True
    except OSError:
        return False


def _sshd() -> Path:
    found = paths.sshd()
    if found is None:
        raise MachineCannot("namespace lab", "there is no sshd on this machine", "run: make setup")
    return found


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Problem(" ".join(command), f"failed: {done.stderr.strip()}")
