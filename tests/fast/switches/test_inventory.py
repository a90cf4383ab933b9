"""A lab's inventory: every mistake at its line, whatever a person forgot named, and a new one made from a topology."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from dlcp.errors import Problem, Problems
from dlcp.model.lab.inventory_scaffold import gaps, inventory_text
from dlcp.model.lab.load_inventory import load_inventory
from dlcp.model.lab.ssh_words import refused_ssh_options
from dlcp.runner.lab.fabric_plan import plan_fabric
from dlcp.runner.switch_commands import make_inventory
from dlcp.switches.vendor.files import find_intent, load_intent

LAB = """\
all:
  vars:
    dlcp_lab: rack
    dlcp_topology: {kind: dumbbell, left: 1, right: 1, rate: 100 Mbit/s, bottleneck: 50 Mbit/s}
    dlcp_networks: [10.1.0.0/24]
    ansible_user: admin
    ansible_ssh_private_key_file: key
  children:
    dlcp_switches:
      vars:
        dlcp_system: linux
        dlcp_chip: cpu
        dlcp_management: [eth0]
        dlcp_buffer: 64 MB
        dlcp_port_buffer: 16 MB
        dlcp_queue: 16 MB
      hosts:
        s1:
          ansible_host: 10.1.0.1
          dlcp_ports: {eth1: s2, eth2: h1}
        s2:
          ansible_host: 10.1.0.2
          dlcp_ports: {eth1: s1, eth2: h2}
    dlcp_hosts:
      vars:
        dlcp_interface: eth1
      hosts:
        h1: {ansible_host: 10.1.0.11, dlcp_address: 198.18.1.2}
        h2: {ansible_host: 10.1.0.12, dlcp_address: 198.18.2.2}
"""

SYSTEMS = "cumulus, eos, junos, linux, nxos, os10, sonic, srlinux"

MISTAKES = {
    "unknown way to an agent": (
        ("        dlcp_interface: eth1\n", "        dlcp_interface: eth1\n        dlcp_agent: sftp\n"),
        "lab.yaml:29:9: `all.children.dlcp_hosts.hosts.h1.dlcp_agent`: 'sftp' is not known\n    known: ssh, unit",
    ),
    "unknown system": (
        ("dlcp_system: linux", "dlcp_system: linus"),
        f"lab.yaml:11:22: no such switch system: 'linus'\n    did you mean `linux`? known: {SYSTEMS}",
    ),
    "a port is missing": (
        ("{eth1: s2, eth2: h1}", "{eth1: s2}"),
        "lab.yaml:20:11: s1 has no port to h1\n    add `PORT: h1`",
    ),
    "a port too many": (
        ("{eth1: s1, eth2: h2}", "{eth1: s1, eth2: h2, eth3: h1}"),
        "lab.yaml:23:50: the topology has no link from s2 to h1\n    known: s1, h2",
    ),
    "two ports to one": (
        ("{eth1: s1, eth2: h2}", "{eth1: s1, eth2: h2, eth3: h2}"),
        "lab.yaml:23:40: two ports of s2 lead to h2\n    a link has one port at each end",
    ),
    "a port is the management": (
        ("dlcp_management: [eth0]", "dlcp_management: [eth2]"),
        "lab.yaml:18:9: s1: eth2 is both a port to configure and a management interface",
    ),
    "a node is missing": (
        ("        h2: {ansible_host: 10.1.0.12, dlcp_address: 198.18.2.2}\n", ""),
        "lab.yaml:28:9: h2 of the topology is missing\n    add it to `dlcp_hosts`",
    ),
    "outside of the lab": (
        ("ansible_host: 10.1.0.2", "ansible_host: 10.2.0.2"),
        "lab.yaml:22:25: 10.2.0.2 is in none of the lab's networks (10.1.0.0/24)\n"
        "    correct it, or add its network to `dlcp_networks`",
    ),
    "one address twice": (
        ("ansible_host: 10.1.0.12", "ansible_host: 10.1.0.2"),
        "lab.yaml:22:25: another device has 10.1.0.2 port 22 too",
    ),
    "a password": (
        ("    ansible_user: admin\n", "    ansible_user: admin\n    ansible_password: hunter2\n"),
        "lab.yaml:7:5: `ansible_password` holds a secret in plain text\n"
        '    log in by key; for an API: ansible-vault in group_vars, and here "{{ vault_word }}"',
    ),
    "a gap": (
        ("ansible_host: 10.1.0.2", "ansible_host: 'FILL IN: the management address of s2'"),
        "lab.yaml:22:25: still to be filled in: the management address of s2",
    ),
}


def told(path: Path) -> list[str]:
    """What is said of an inventory, without its folder."""
    try:
        load_inventory(path)
    except Problems as error:
        return [str(one).replace(f"{path.parent}/", "") for one in error.problems]
    return []


def write(folder: Path, text: str) -> Path:
    path = folder / "lab.yaml"
    path.write_text(text)
    return path


def test_a_correct_one_is_read(tmp_path: Path) -> None:
    lab = load_inventory(write(tmp_path, LAB))
    assert lab.switches["s1"].wiring == {"eth1": "s2", "eth2": "h1"}
    assert lab.switches["s1"].device.ports == {"eth1": 50e6, "eth2": 100e6}
    assert lab.switches["s1"].where.endswith("lab.yaml:18:9")
    assert lab.switches["s1"].login.key == tmp_path / "key"


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_at_its_line(tmp_path: Path, name: str) -> None:
    (before, after), text = MISTAKES[name]
    assert LAB.count(before) == 1
    assert text in told(write(tmp_path, LAB.replace(before, after)))


def test_a_reference_to_a_vault_is_no_secret(tmp_path: Path) -> None:
    text = LAB.replace("    ansible_user: admin\n", "    ansible_user: admin\n    api_token: '{{ vault_token }}'\n")
    assert told(write(tmp_path, text)) == []


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = LAB.replace("dlcp_system: linux", "dlcp_system: linus").replace("{eth1: s2, eth2: h1}", "{eth1: s2}")
    assert len(told(write(tmp_path, text))) == 2, "the system once, though two switches have it, and the port"


def test_what_no_switch_can_do_is_told_once_with_all_that_cannot(tmp_path: Path) -> None:
    lab = load_inventory(write(tmp_path, LAB))
    with pytest.raises(Problems) as raised:
        plan_fabric(lab, load_intent(find_intent("roce-pfc")))
    assert "pfc" in str(raised.value)
    assert "(and so s2)" in str(raised.value)
    assert all("lab.yaml:18:9" in one.where for one in raised.value.problems)


def test_a_system_without_playbooks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlcp.runner.lab.fabric_plan.SWITCH_CONFIGS", tmp_path)
    with pytest.raises(Problems, match="no playbooks for the system linux"):
        plan_fabric(load_inventory(write(tmp_path, LAB)), load_intent(find_intent("droptail")))


def test_a_made_one_names_its_gaps_and_is_refused_until_they_are_filled(tmp_path: Path) -> None:
    made = make_inventory("leaf-spine-4", None)
    left = list(gaps(made))
    lines = told(write(tmp_path, inventory_text(made)))
    assert len(lines) == len(left) > 30
    assert all("still to be filled in: " in line for line in lines)


def test_what_people_know_fills_it_and_is_kept_when_it_is_made_again(tmp_path: Path) -> None:
    facts = tmp_path / "facts.yaml"
    known = yaml.safe_load(LAB)
    switches = known["all"]["children"]["dlcp_switches"]["hosts"]
    for switch in ("s1", "s2"):
        switches[switch]["dlcp_ports"] = {f"eth{n}": f"h{n + 4 * (switch == 's2')}" for n in range(1, 5)}
        switches[switch]["dlcp_ports"]["eth9"] = "s2" if switch == "s1" else "s1"
    hosts = known["all"]["children"]["dlcp_hosts"]["hosts"]
    for n in range(3, 9):
        hosts[f"h{n}"] = {"ansible_host": f"10.1.0.{10 + n}", "dlcp_address": f"198.18.{n}.2"}
    hosts["h1"]["dlcp_agent"] = "unit"
    facts.write_text(yaml.safe_dump(known))
    text = inventory_text(make_inventory("dumbbell-8", facts))
    assert list(gaps(yaml.safe_load(text))) == []
    path = write(tmp_path, text)
    lab = load_inventory(path)
    assert lab.switches["s2"].wiring["eth9"] == "s1"
    assert {name: host.agent for name, host in lab.hosts.items() if host.agent != "ssh"} == {"h1": "unit"}
    assert inventory_text(make_inventory("dumbbell-8", path)) == text, "the same again: it can be diffed"


REFUSED = {
    "everywhere": (
        "    ansible_user: admin\n",
        "    ansible_ssh_args: -q\n    ansible_user: admin\n",
        "ansible_ssh_args",
    ),
    "of a group": (
        "        dlcp_chip: cpu\n",
        "        ansible_connection: local\n        dlcp_chip: cpu\n",
        "ansible_connection",
    ),
    "of a host": (
        "{ansible_host: 10.1.0.11,",
        "{ansible_host_key_checking: false, ansible_host: 10.1.0.11,",
        "ansible_host_key_checking",
    ),
    "another address": (
        "{ansible_host: 10.1.0.11,",
        "{ansible_host: 10.1.0.11, ansible_ssh_host: 10.9.9.9,",
        "ansible_ssh_host",
    ),
}


@pytest.mark.parametrize(("old", "new", "word"), REFUSED.values(), ids=list(REFUSED))
def test_how_devices_are_reached_is_not_an_inventorys_to_say(tmp_path: Path, old: str, new: str, word: str) -> None:
    text = LAB.replace(old, new)
    assert text != LAB
    with pytest.raises(Problems) as caught:
        load_inventory(write(tmp_path, text))
    line = next(number for number, line in enumerate(text.splitlines(), 1) if word in line)
    (problem,) = caught.value.problems
    assert problem.where.rsplit(":", 2)[1] == str(line)
    assert problem.what == f"`{word}` is the playbooks' to say, not an inventory's"


def test_words_of_other_groups_and_harmless_ones_are_left_alone(tmp_path: Path) -> None:
    others = "    others: {hosts: {localhost: {ansible_connection: local}}}\n"
    text = LAB.replace("    dlcp_hosts:\n", f"{others}    dlcp_hosts:\n")
    text = text.replace("    ansible_user: admin\n", "    ansible_user: admin\n    ansible_ssh_extra_args: -J jump\n")
    assert load_inventory(write(tmp_path, text)).name == "rack"


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ("-o HostKeyAlias=other", "-o HostKeyAlias=other"),
        ("-J jump -o 'hostkeyalias = other'", "-o hostkeyalias = other"),
        ("-voHostname=10.9.9.9", "-o Hostname=10.9.9.9"),
        ("-o 'Port 2222'", "-o Port 2222"),
        ("-o ControlPath=/tmp/open", "-o ControlPath=/tmp/open"),
        ("-F ~/.ssh/config", "-F ~/.ssh/config"),
        ("-vS /tmp/open", "-S /tmp/open"),
        ("-p 2222", "-p 2222"),
        ("-v 10.9.9.9", "10.9.9.9"),
        ("-- 10.9.9.9", "10.9.9.9"),
        ("-o 'unclosed", "-o 'unclosed (No closing quotation)"),
        ("--unknown", "--unknown (option --unknown not recognized)"),
    ],
)
def test_options_of_ssh_that_lead_to_another_device_or_key_are_refused(tmp_path: Path, given: str, option: str) -> None:
    more = f"    ansible_ssh_extra_args: {json.dumps(given)}\n"
    text = LAB.replace("    ansible_user: admin\n", f"    ansible_user: admin\n{more}")
    with pytest.raises(Problems) as caught:
        load_inventory(write(tmp_path, text))
    (problem,) = caught.value.problems
    assert problem.what.startswith(f"`{option}` in `ansible_ssh_extra_args` would change")


@pytest.mark.parametrize(
    "given", ["", "-J jump", "-vJ jump -o IPQoS=none -oCiphers=aes128-ctr", "-o ProxyCommand='nc -x proxy %h %p'"]
)
def test_other_options_of_ssh_are_an_inventorys_to_say(given: str) -> None:
    assert refused_ssh_options(given) == []


@pytest.mark.parametrize("name", ["my lab", "l%h", "a$HOME", 'a"b', "a\\b"])
def test_a_folder_that_ssh_cannot_be_given_is_refused_by_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    path = write(folder, LAB)
    if name == "my lab":
        assert load_inventory(path).switches["s1"].login.known_hosts == folder / "known_hosts"
        return
    with pytest.raises(Problems, match="ssh cannot be given a path with") as caught:
        load_inventory(path)
    assert any(repr(str(folder / "known_hosts")) in problem.what for problem in caught.value.problems)


def test_facts_about_a_node_that_is_not_there_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, LAB.replace("        s2:\n", "        spine2:\n"))
    with pytest.raises(Problems, match=r"21:9: spine2 is none of the topology's dlcp_switches"):
        make_inventory("dumbbell-8", path)


def test_a_topology_that_nobody_knows_is_refused() -> None:
    with pytest.raises(Problem, match="neither a topology nor an experiment"):
        make_inventory("leaf-spine-44", None)
