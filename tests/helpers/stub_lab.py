"""Labs of stubs on 127.0.0.1: an inventory, keys, known_hosts, and the real playbooks run upon them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from dlcp.model.topology import Graph, Topology
from dlcp.paths import REPOSITORY

PLAYBOOKS = REPOSITORY / "playbooks"
PLAY_LIMIT_S = 300

DEVICES: dict[str, dict[str, Any]] = {
    "eos": {"dlcp_chip": "trident", "dlcp_management": ["Management1"], "port": "Ethernet{}/1", "step": 1},
    "sonic": {"dlcp_chip": "spectrum", "dlcp_management": ["eth0"], "port": "Ethernet{}", "step": 4},
}
SIZES = {"dlcp_buffer": "32 MB", "dlcp_port_buffer": "8 MB", "dlcp_queue": "2 MB", "dlcp_cell": 256}


@dataclass(frozen=True)
class StubLab:
    """folder: with lab.yaml, the keys and, after a play, deployments/."""

    folder: Path

    @property
    def hostkey(self) -> Path:
        """The private key of all stubs."""
        return self.folder / "host_key"

    @property
    def client(self) -> Path:
        """The public key that they let in."""
        return self.folder / "key.pub"

    def play(self, name: str, *options: str, **variables: Any) -> subprocess.CompletedProcess[str]:
        """Run a playbook as a person would."""
        words = [
            str(Path(sys.executable).with_name("ansible-playbook")),
            "-i",
            str(self.folder / "lab.yaml"),
            f"{name}.yml",
        ]
        words += [*options, "-e", json.dumps(variables)]
        env = os.environ | {"ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
        return subprocess.run(
            words, cwd=PLAYBOOKS, env=env, capture_output=True, text=True, check=False, timeout=PLAY_LIMIT_S
        )


def graph_of(topology: Mapping[str, Any]) -> Graph:
    """Nodes and neighbours of a topology that is written out."""
    return TypeAdapter(Topology).validate_python(dict(topology), context={"written": True}).graph


def make_keys(folder: Path) -> StubLab:
    """Keys of a lab that is yet without an inventory."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("key", "host_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    return StubLab(folder)


def write_inventory(
    lab: StubLab,
    system: str,
    topology: Mapping[str, Any],
    ports: Mapping[str, int],
    words: Mapping[str, Mapping[str, Any]],
) -> None:
    """lab.yaml and known_hosts. ports: of each switch's SSH; words: more of each."""
    graph = graph_of(topology)
    device = dict(DEVICES[system])
    form, step = device.pop("port"), device.pop("step")
    first = 1 if system == "eos" else 0
    login = {"ansible_user": "root", "ansible_ssh_private_key_file": "key"}
    switches = {
        name: {
            "ansible_host": "127.0.0.1",
            "ansible_port": ports[name],
            "dlcp_system": system,
            **device,
            **SIZES,
            **login,
            "dlcp_ports": {form.format(first + step * n): other for n, other in enumerate(graph.neighbours[name])},
            **words.get(name, {}),
        }
        for name in graph.switches
    }
    hosts = {
        name: {
            "ansible_host": "127.0.0.2",
            "ansible_port": 10000 + n,
            "dlcp_interface": "eth1",
            "dlcp_address": f"198.18.{n // 200}.{n % 200 + 1}",
            **login,
        }
        for n, name in enumerate(graph.hosts)
    }
    everything = {
        "vars": {"dlcp_lab": "stubs", "dlcp_topology": dict(topology), "dlcp_networks": ["127.0.0.0/8"]},
        "children": {"dlcp_switches": {"hosts": switches}, "dlcp_hosts": {"hosts": hosts}},
    }
    (lab.folder / "lab.yaml").write_text(yaml.safe_dump({"all": everything}, sort_keys=False))
    key = " ".join((lab.folder / "host_key.pub").read_text().split()[:2])
    (lab.folder / "known_hosts").write_text("".join(f"[127.0.0.1]:{port} {key}\n" for port in ports.values()))
