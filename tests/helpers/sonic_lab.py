"""SONiC switches as far as Ansible sees them: one real sshd on as many ports, a real redis behind each."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from config_db import ConfigDb, config_db
from stub_lab import StubLab, graph_of, make_keys, write_inventory

from dlcp.paths import sshd

MOST_PORTS = 16
"""That one sshd listens on."""


@dataclass(frozen=True)
class SonicLab:
    """A lab and what stands behind each of its switches. words: of each in the inventory."""

    lab: StubLab
    topology: Mapping[str, Any]
    ports: Mapping[str, int]
    behind: Mapping[str, ConfigDb]
    words: dict[str, dict[str, Any]]

    def dumps(self) -> dict[str, bytes]:
        """All databases, byte for byte."""
        return {name: database.dump() for name, database in self.behind.items()}

    def say(self, name: str, **words: Any) -> None:
        """Change a switch's words in the inventory."""
        self.words[name].update(words)
        write_inventory(self.lab, "sonic", self.topology, self.ports, self.words)


@contextmanager
def sonic_lab(folder: Path, topology: Mapping[str, Any], writer: str = "gcu") -> Iterator[SonicLab]:
    """All of it stands for the block."""
    names = graph_of(topology).switches
    lab = make_keys(folder / "lab")
    with ExitStack() as ending:
        behind = {name: ending.enter_context(config_db(folder / name, most_ports(topology))) for name in names}
        ports = free_ports(names)
        for first in range(0, len(names), MOST_PORTS):
            own = [ports[name] for name in names[first : first + MOST_PORTS]]
            ending.enter_context(server(lab, own, f"sshd-{first}"))
        # a socket's path has room for 107 bytes, and a test's folder may be as long
        sockets = ending.enter_context(TemporaryDirectory(prefix="dlcp-", dir="/tmp"))
        words = {
            name: {
                "dlcp_sonic_socket": database.socket,
                "dlcp_sonic_config": database.config(),
                "dlcp_sonic_state": str(database.folder / "state"),
                "dlcp_sonic_writer": writer,
                "ansible_control_path_dir": sockets,
                "ansible_python_interpreter": sys.executable,
            }
            for name, database in behind.items()
        }
        write_inventory(lab, "sonic", topology, ports, words)
        yield SonicLab(lab, topology, ports, behind, words)


def most_ports(topology: Mapping[str, Any]) -> int:
    """Of any switch, and one more, which nobody deploys to."""
    graph = graph_of(topology)
    return max(len(graph.neighbours[name]) for name in graph.switches) + 1


def free_ports(names: tuple[str, ...]) -> dict[str, int]:
    """Ports of 127.0.0.1 that nobody listens on."""
    with ExitStack() as held:
        found = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in names]
        return {name: one.getsockname()[1] for name, one in zip(names, found, strict=True)}


@contextmanager
def server(lab: StubLab, ports: list[int], name: str) -> Iterator[None]:
    """A real sshd on these ports that lets the lab's key in."""
    program = sshd()
    assert program, "make setup installs sshd"
    config = lab.folder / f"{name}.conf"
    words = [
        *(f"ListenAddress 127.0.0.1:{port}" for port in ports),
        f"HostKey {lab.hostkey}",
        f"AuthorizedKeysFile {lab.client}",
        f"PidFile {lab.folder}/{name}.pid",
        "UsePAM no",
        "StrictModes no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        "UseDNS no",
        "MaxSessions 100",
        "MaxStartups 100",
        "Subsystem sftp internal-sftp",
        f"SetEnv HOME={lab.folder} PATH={lab.folder / 'bin'}:{os.environ['PATH']}",  # not this machine's .bashrc
    ]
    config.write_text("\n".join(words) + "\n")
    Path("/run/sshd").mkdir(exist_ok=True)
    words = [str(program), "-D", "-f", str(config), "-E", str(lab.folder / f"{name}.log")]
    process = subprocess.Popen([*_with_sshd_user(lab.folder), *words])
    try:
        limit = 200
        while limit and not _answers(ports[-1]):
            limit -= 1
        assert limit, (lab.folder / f"{name}.log").read_text()
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)
        shutil.rmtree(lab.folder / "ssh", ignore_errors=True)


def _with_sshd_user(folder: Path) -> list[str]:
    """Return the start of a command that runs where the user exists that sshd parts its privileges with.

    The package that would create it is never installed, since it starts a service; so a mount namespace of its own has
    that line in its /etc/passwd.
    """
    accounts = Path("/etc/passwd").read_text(encoding="utf-8")
    if any(line.startswith("sshd:") for line in accounts.splitlines()):
        return []
    passwd = folder / "passwd"
    passwd.write_text(accounts.rstrip("\n") + "\nsshd:x:74:65534::/run/sshd:/usr/sbin/nologin\n", encoding="utf-8")
    script = 'mount --bind "$0" /etc/passwd && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, str(passwd)]


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as stream:
            return stream.recv(4) == b"SSH-"
    except OSError:
        time.sleep(0.05)
        return False
