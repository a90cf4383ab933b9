"""Whose host keys count: the lab's known_hosts alone, whatever is said of ssh anywhere else.

A real sshd answers with a key that known_hosts does not have. Each test says "do not check it" in another way.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from extras import needs
from sonic_lab import free_ports, server
from stub_lab import StubLab, make_keys, write_inventory

from dlcp.paths import REPOSITORY

pytestmark = [
    needs("ansible"),
    pytest.mark.skipif(os.geteuid() != 0, reason="an sshd that lets root in needs root; run as root"),
]

PLAYBOOKS = REPOSITORY / "playbooks"
REACH = f"""\
- name: Reach
  hosts: dlcp_switches
  gather_facts: false
  vars_files: [{PLAYBOOKS}/vars/connection.yml]
  tasks:
    - name: Reach
      ansible.builtin.raw: echo reached
"""
STRANGER = "stranger"
"""A name under which known_hosts holds the key that the device answers with, where it holds another for the device."""
ALIAS = f"-o HostKeyAlias={STRANGER}"
UNCHECKED = f"-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null {ALIAS}"
UNCHECKED_WORDS = {
    "ansible_ssh_args": UNCHECKED,
    "ansible_ssh_common_args": UNCHECKED,
    "ansible_ssh_extra_args": UNCHECKED,
    "ansible_host_key_checking": False,
    "ansible_ssh_host_key_checking": False,
}
UNCHECKED_ENVIRONMENT = {
    "ANSIBLE_SSH_ARGS": UNCHECKED,
    "ANSIBLE_SSH_COMMON_ARGS": UNCHECKED,
    "ANSIBLE_SSH_EXTRA_ARGS": UNCHECKED,
    "ANSIBLE_SFTP_EXTRA_ARGS": UNCHECKED,
    "ANSIBLE_SCP_EXTRA_ARGS": UNCHECKED,
    "ANSIBLE_HOST_KEY_CHECKING": "False",
    "ANSIBLE_SSH_HOST_KEY_CHECKING": "False",
}
UNCHECKED_CFG = f"""\
[defaults]
host_key_checking = False
filter_plugins = {PLAYBOOKS}/plugins/filter
[ssh_connection]
ssh_args = {UNCHECKED}
ssh_common_args = {UNCHECKED}
ssh_extra_args = {UNCHECKED}
host_key_checking = False
"""
UNCHECKED_SSH_CONFIG = """\
Host *
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  NoHostAuthenticationForLocalhost yes
  HostKeyAlias stranger
"""
SETTINGS = [
    "an inventory",
    "group_vars",
    "host_vars",
    "the environment",
    "ansible.cfg",
    "~/.ssh/config",
    "a connection without ssh",
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StubLab, int]]:
    """A lab's keys, and a port of 127.0.0.1 at which sshd lets them in."""
    lab = make_keys(tmp_path_factory.mktemp("sshd"))
    port = free_ports(("one",))["one"]
    with server(lab, [port], "sshd"):
        yield lab, port


@pytest.fixture
def folder(running: tuple[StubLab, int], tmp_path: Path) -> Path:
    """A folder with an inventory of that device."""
    lab, port = running
    folder = tmp_path / "lab"
    folder.mkdir()
    for name in ("key", "host_key.pub"):
        shutil.copy(lab.folder / name, folder / name)
    topology = {"kind": "star", "hosts": 2, "rate": "1 Gbit/s"}
    write_inventory(StubLab(folder), "sonic", topology, {"s1": port}, {})
    (folder / "reach.yml").write_text(REACH)
    return folder


def swap_host_key(folder: Path) -> None:
    """Let known_hosts have another key than the device, and the device's for a stranger."""
    own = " ".join((folder / "host_key.pub").read_text().split()[:2])
    make_keys(folder / "other")
    key = " ".join((folder / "other" / "host_key.pub").read_text().split()[:2])
    lines = (folder / "known_hosts").read_text().splitlines()
    (folder / "known_hosts").write_text("".join(f"{line.split()[0]} {key}\n" for line in lines) + f"{STRANGER} {own}\n")


def do_not_check(way: str, folder: Path) -> dict[str, str]:
    """Say in one way that host keys do not count; return what the environment says."""
    environment = {}
    if way == "an inventory":
        inventory = yaml.safe_load((folder / "lab.yaml").read_text())
        inventory["all"]["vars"] |= UNCHECKED_WORDS
        (folder / "lab.yaml").write_text(yaml.safe_dump(inventory))
    elif way in ("group_vars", "host_vars"):
        (folder / way).mkdir()
        name = {"group_vars": "dlcp_switches", "host_vars": "s1"}[way]
        (folder / way / f"{name}.yml").write_text(yaml.safe_dump(UNCHECKED_WORDS))
    elif way == "a connection without ssh":
        (folder / "group_vars").mkdir()
        (folder / "group_vars" / "all.yml").write_text("ansible_connection: local\n")
    elif way == "the environment":
        environment = UNCHECKED_ENVIRONMENT
    elif way == "ansible.cfg":
        (folder / "ansible.cfg").write_text(UNCHECKED_CFG)
    elif way == "~/.ssh/config":
        (folder / ".ssh").mkdir(mode=0o700)
        (folder / ".ssh" / "config").write_text(UNCHECKED_SSH_CONFIG)
    return environment


def reach(folder: Path, way: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the play in the lab's folder; ssh finds root's home where `way` needs it."""
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    words = [program, "-i", str(folder / "lab.yaml"), str(folder / "reach.yml")]
    if way == "~/.ssh/config":
        accounts = Path("/etc/passwd").read_text(encoding="utf-8").splitlines()
        (folder / "passwd").write_text(
            "".join(f"{_at_home(line, folder) if line.startswith('root:') else line}\n" for line in accounts)
        )
        words = [
            "unshare",
            "--mount",
            "sh",
            "-c",
            'mount --bind "$0" /etc/passwd && exec "$@"',
            str(folder / "passwd"),
            *words,
        ]
    if way != "ansible.cfg":
        environment["ANSIBLE_CONFIG"] = str(PLAYBOOKS / "ansible.cfg")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    return subprocess.run(
        words, cwd=folder, env=inherited | environment, capture_output=True, text=True, check=False, timeout=120
    )


def _at_home(account: str, home: Path) -> str:
    fields = account.split(":")
    return ":".join([*fields[:5], str(home), *fields[6:]])


def test_a_device_whose_key_is_known_is_reached_from_a_folder_with_a_space(folder: Path) -> None:
    done = reach(folder.rename(folder.with_name("my lab")))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("way", SETTINGS)
def test_a_swapped_host_key_is_refused_whatever_is_said_in(folder: Path, way: str) -> None:
    swap_host_key(folder)
    done = reach(folder, way, **do_not_check(way, folder))
    assert done.returncode != 0, f"reached although {way} was all that said so: {done.stdout}"
    assert "Host key verification failed" in done.stdout


def test_what_an_inventory_gives_ssh_besides_reaches_it(folder: Path) -> None:
    words = {"ansible_ssh_extra_args": f"-o ProxyCommand='touch {folder}/asked'"}
    (folder / "host_vars").mkdir()
    (folder / "host_vars" / "s1.yml").write_text(json.dumps(words))
    assert reach(folder).returncode != 0
    assert (folder / "asked").exists()


@pytest.mark.parametrize("where", ["lab.yaml", "group_vars", "host_vars", "-e"])
@pytest.mark.parametrize(("word", "value"), [("ansible_ssh_args", UNCHECKED), ("ansible_ssh_extra_args", ALIAS)])
def test_a_deployment_refuses_words_that_change_how_devices_are_reached(
    folder: Path, where: str, word: str, value: str
) -> None:
    words: dict[str, Any] = {word: value}
    extra: dict[str, Any] = {}
    if where == "lab.yaml":
        inventory = yaml.safe_load((folder / "lab.yaml").read_text())
        inventory["all"]["children"]["dlcp_switches"]["vars"] = words
        (folder / "lab.yaml").write_text(yaml.safe_dump(inventory))
    elif where == "-e":
        extra = words
    else:
        (folder / where).mkdir()
        name = {"group_vars": "all", "host_vars": "s1"}[where]
        (folder / where / f"{name}.yml").write_text(json.dumps(words))
    done = StubLab(folder).play("preflight", **extra)
    assert done.returncode != 0
    assert word in done.stdout
    assert word == "ansible_ssh_args" or ALIAS in done.stdout
    assert "Host key" not in done.stdout, "refused before anything is reached"
