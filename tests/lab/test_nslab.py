"""The namespace lab: nodes that are machines of their own, reached by SSH alone, and nothing left of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from running_lab import RunningLab
from waits import in_time

from dlcp.errors import Problem
from dlcp.model.lab.load_inventory import load_inventory
from dlcp.model.topology import LeafSpine
from dlcp.substrates.namespace_lab.namespace_lab import nslab
from dlcp.substrates.namespace_lab.plan import LabPlan

GONE_WITHIN_S = 10.0


def leaf_spine(**words: object) -> LeafSpine:
    return LeafSpine.model_validate(
        {"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts": 4, "rate": "100 Mbit/s", **words}
    )


def test_the_inventory_is_one_that_dlcp_reads(module_lab: RunningLab) -> None:
    found = load_inventory(module_lab.path)
    assert sorted(found.switches) == ["l1", "l2", "s1", "s2"]
    assert found.switches["l2"].wiring == {"eth1": "s1", "eth2": "s2", "eth3": "h3", "eth4": "h4"}
    assert found.hosts["h3"].address == "198.18.3.2"
    for name, host in found.hosts.items():
        words = json.loads(module_lab.on(name, f"ip -json address show dev {host.interface}"))
        assert [one["local"] for one in words[0]["addr_info"]] == [host.address]


def test_ansible_reaches_every_node(module_lab: RunningLab) -> None:
    done = module_lab.run(["ansible", "-i", module_lab.path, "-f", "8", "-o", "-m", "raw", "-a", "hostname", "all"])
    assert done.returncode == 0, done.stdout + done.stderr
    answers = sorted(line.split("|")[0].strip() for line in done.stdout.splitlines() if "rc=0" in line)
    assert answers == sorted(load_inventory(module_lab.path).switches | load_inventory(module_lab.path).hosts)


def test_every_host_reaches_every_other_through_the_spines(module_lab: RunningLab) -> None:
    hosts = load_inventory(module_lab.path).hosts
    for name in hosts:
        others = " ".join(host.address for other, host in hosts.items() if other != name)
        module_lab.on(name, f"for a in {others}; do ping -c 1 -W 2 $a || exit 1; done")
    next_hops = json.loads(module_lab.on("l1", "ip -json route show 198.18.4.0/24"))[0]["nexthops"]
    assert [hop["dev"] for hop in next_hops] == ["eth1", "eth2"]


def test_the_controller_has_no_way_into_the_fabric(module_lab: RunningLab) -> None:
    done = module_lab.run(["ip", "route", "get", "198.18.1.2"])
    assert done.returncode != 0
    assert "unreachable" in done.stderr


def test_a_node_is_a_machine_of_its_own(module_lab: RunningLab) -> None:
    module_lab.on("h1", "echo mine > /var/lib/dlcp/state; echo mine > /etc/dlcp-test; useradd dlcp-user")
    module_lab.on("h1", "sleep 50 > /dev/null 2>&1 &")
    seen = "hostname; ls /var/lib/dlcp /etc; cut -d: -f1 /etc/passwd; ps -C sleep -o args="
    here, there = (module_lab.on(node, f"{seen}; true").splitlines() for node in ("h1", "h2"))
    assert here[0] == "h1"
    assert there[0] == "h2"
    for trace in ("state", "dlcp-test", "dlcp-user", "sleep 50"):
        assert trace in here
        assert trace not in there
    assert not Path("/etc/dlcp-test").exists()
    assert "dlcp-user" not in Path("/etc/passwd").read_text()


def test_another_key_is_refused(module_lab: RunningLab, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    config = (module_lab.folder / "ssh_config").read_text().replace(str(module_lab.folder / "id_ed25519"), str(other))
    (tmp_path / "config").write_text(config)
    done = module_lab.run(["ssh", "-F", tmp_path / "config", "h1", "true"])
    assert done.returncode == 255
    assert "Permission denied" in done.stderr


def test_another_host_key_is_refused(lab: RunningLab) -> None:
    known = lab.folder / "known_hosts"
    lines = dict(line.split(" ", 1) for line in known.read_text().splitlines())
    first, second = list(lines)[:2]
    lines[first], lines[second] = lines[second], lines[first]
    known.write_text("".join(f"{address} {key}\n" for address, key in lines.items()))
    done = lab.ssh("l1", "true")
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr
    done = lab.run(["ansible", "-i", lab.path, "-m", "ping", "l1,s1"])
    assert "l1 | UNREACHABLE" in done.stdout
    assert "s1 | SUCCESS" in done.stdout


def test_two_labs_stand_at_once(make_lab: Callable[..., RunningLab]) -> None:
    one, other = make_lab(folder="one"), make_lab("star-8", folder="other")
    one.on("h1", "echo one > /var/lib/dlcp/who")
    other.on("h1", "echo other > /var/lib/dlcp/who")
    assert one.ssh("h1", "cat /var/lib/dlcp/who").stdout == "one\n"
    assert other.ssh("h1", "cat /var/lib/dlcp/who").stdout == "other\n"
    assert one.run(["ssh", "-F", other.folder / "ssh_config", "h1", "true"]).returncode == 255


def test_a_kill_leaves_nothing(lab: RunningLab) -> None:
    lab.on("h1", "setsid sleep 1000 > /dev/null 2>&1 & true")
    before = descendants(lab.process.pid)
    assert len(before) > 2 * len(load_inventory(lab.path).hosts)
    lab.process.send_signal(signal.SIGKILL)
    lab.process.wait()
    in_time(lambda: not any(Path(f"/proc/{pid}").exists() for pid in before), GONE_WITHIN_S)
    assert [pid for pid in before if Path(f"/proc/{pid}").exists()] == []
    assert "mgmt" not in os.listdir("/sys/class/net")


def descendants(ancestor: int) -> list[int]:
    """A process's children, their children, and so on."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(parent, []).append(int(folder.name))
    found = list(children.get(ancestor, []))
    for pid in found:
        found += children.get(pid, [])
    return found


def test_outside_of_private_namespaces_nothing_is_built(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="private namespaces"), nslab("leaf-spine-4", tmp_path):
        pass


def test_a_delay_is_refused() -> None:
    with pytest.raises(Problem, match="the link l1 – s1 has a delay"):
        LabPlan(leaf_spine(delay="1 ms").graph)


def test_more_nodes_than_addresses_are_refused() -> None:
    with pytest.raises(Problem, match="256 nodes do not fit"):
        LabPlan(leaf_spine(hosts=252).graph)


def test_no_address_is_used_twice() -> None:
    plan = LabPlan(leaf_spine(leaves=16, spines=8, hosts=128).graph)
    ends = [end.address for cable in plan.cables for end in cable]
    assert len({end.ip for end in ends}) == len(ends)
    assert len({plan.management_address(node) for node in plan.nodes}) == len(plan.nodes)
