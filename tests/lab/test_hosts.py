"""Hosts of a lab set up and restored over real SSH: every value comes back byte for byte, whatever went wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from running_lab import RunningLab

from dlcp.model.load_inventory import load_inventory
from dlcp.model.workload import HostSettings
from dlcp.runner import hosts

SETTINGS: dict[str, Any] = {
    "sysctls": {
        "net.ipv4.tcp_ecn": 1,
        "net.ipv4.tcp_rmem": "4096 200000 300000",
        "net.ipv4.tcp_slow_start_after_idle": 0,
    },
    "rto_min_ms": 5,
    "mtu": 1400,
    "offloads": {"gro": True, "rx": False},
}
ABSENT: dict[str, Any] = {
    "rings": {"rx": "max"},
    "coalescing": {"rx-usecs": 8},
    "trust": "dscp",
    "dscp_prio": {26: 3},
    "prio_tc": {3: 3},
    "pfc": [3],
}
"""What a veth cannot do."""
CHANGED = 3 + 2 + 1 + 2
"""Sysctls, routes, MTU, offloads."""
STATE = (
    "ip -d -o route show table all; ip -o link show eth1; ethtool -k eth1; tc qdisc show; "
    "sysctl -a 2>/dev/null | grep -E '^net[.](ipv4|core)' | grep -v -e nf_conntrack -e tcp_fastopen_key"
)
NO_FLOOR = "the kernel's own"


def state(lab: RunningLab, host: str) -> str:
    return lab.on(host, STATE)


def dlcp(lab: RunningLab, *words: str, code: int = 0) -> dict[str, Any]:
    done = lab.run(["dlcp", "hosts", *words, "--json"])
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def write(lab: RunningLab, settings: dict[str, Any], name: str = "settings.yaml") -> str:
    (lab.folder / name).write_text(yaml.safe_dump(settings))
    return name


def statuses(rows: list[dict[str, Any]], status: str) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in rows if row["status"] == status}


def test_set_up_twice_and_restore(lab: RunningLab) -> None:
    before = {host: state(lab, host) for host in ("h1", "h4")}
    file = write(lab, SETTINGS | ABSENT)

    looked = dlcp(lab, "apply", file)
    assert looked["status"] == "looked"
    assert {host: state(lab, host) for host in before} == before
    predicted = statuses(looked["hosts"]["h1"], "changed")
    assert len(predicted) == CHANGED

    applied = dlcp(lab, "apply", file, "--yes")
    assert statuses(applied["hosts"]["h1"], "changed") == predicted
    assert lab.on("h1", "sysctl -n net.ipv4.tcp_ecn; cat /sys/class/net/eth1/mtu").split() == ["1", "1400"]
    assert lab.on("h4", "ip route show dev eth1").count("rto_min lock 5ms") == 2
    skipped = statuses(applied["hosts"]["h1"], "skipped")
    assert len(skipped) == 1 + len(ABSENT), "clock, and what a veth cannot do"
    assert all(row["reason"] for row in skipped.values())
    manifest = json.loads((Path(applied["folder"]) / "hosts.json").read_text())
    assert manifest["hosts"]["h1"]["rows"] == applied["hosts"]["h1"]

    again = dlcp(lab, "apply", file, "--yes")
    assert all(not statuses(rows, "changed") for rows in again["hosts"].values())
    other = dlcp(lab, "apply", write(lab, SETTINGS | {"mtu": 1300}), "--yes")
    assert list(statuses(other["hosts"]["h1"], "changed")) == ["mtu of eth1"]
    less = dlcp(lab, "apply", write(lab, {"mtu": 1300}), "--yes")
    back = statuses(less["hosts"]["h1"], "changed")
    assert len(back) == CHANGED - 1
    assert {row["reason"] for row in back.values()} == {"no longer asked for"}

    dlcp(lab, "apply", file, "--yes")
    restored = dlcp(lab, "restore", "--yes")
    assert restored["status"] == "restored"
    assert {host: state(lab, host) for host in before} == before
    assert lab.on("h1", "ls /var/lib/dlcp") == ""
    assert dlcp(lab, "restore", "--yes")["hosts"]["h1"] == []


def test_a_host_that_refuses_leaves_all_as_they_were(lab: RunningLab) -> None:
    dlcp(lab, "apply", write(lab, {"sysctls": {"net.ipv4.tcp_ecn": 0}}), "--yes")
    before = {host: state(lab, host) for host in ("h1", "h2", "h3", "h4")}
    lab.on("h3", "mv /usr/sbin/ip /usr/sbin/ip.real")
    lab.on("h3", "printf '#!/bin/sh\\n[ \"$2\" = change ] && { echo no more routes >&2; exit 2; }\\nexec ip.real \"$@\"\\n'"
           " > /usr/sbin/ip; chmod 755 /usr/sbin/ip")  # fmt: skip
    failed = dlcp(lab, "apply", write(lab, SETTINGS), "--yes", code=1)
    assert failed["status"] == "undone"
    assert list(failed["failed"]) == ["h3"]
    assert "no more routes; the host is as before this call" in failed["failed"]["h3"]
    assert {host: state(lab, host) for host in before} == before
    lab.on("h3", "mv /usr/sbin/ip.real /usr/sbin/ip")
    dlcp(lab, "restore", "--yes")
    assert lab.on("h3", "sysctl -n net.ipv4.tcp_ecn").strip() == "2"


def test_an_interrupted_call_is_restored(lab: RunningLab) -> None:
    """The process on the host is killed between saving and the end: what was saved first is what comes back."""
    before = state(lab, "h1")
    dlcp(lab, "apply", write(lab, {"mtu": 1450}), "--yes")
    lab.on("h1", "mv /usr/sbin/ethtool /usr/sbin/ethtool.real")
    lab.on("h1", "printf '#!/bin/sh\\n[ $1 = -K ] && { ethtool.real \"$@\"; kill -9 $PPID; }\\nexec ethtool.real \"$@\"\\n'"
           " > /usr/sbin/ethtool; chmod 755 /usr/sbin/ethtool")  # fmt: skip
    dlcp(lab, "apply", write(lab, SETTINGS), "--yes", code=1)
    assert state(lab, "h1") != before
    lab.on("h1", "mv /usr/sbin/ethtool.real /usr/sbin/ethtool")
    dlcp(lab, "restore", "--yes")
    assert state(lab, "h1") == before


def scheme_after_scheme(path: str) -> dict[str, Any]:
    """An operator's MTU, then two schemes one after the other, then none: what each leaves on h2."""
    lab = load_inventory(Path(path))
    hosts.apply_hosts(lab, {"mtu": 1450, "sysctls": {"net.ipv4.tcp_sack": 0}}, yes=True)
    first = hosts.set_up(lab, HostSettings(sysctls={"net.ipv4.tcp_sack": "1"}, rto_min_s=0.2))
    second = hosts.set_up(lab, HostSettings(sysctls={"net.ipv4.tcp_ecn": "1"}))
    none = hosts.set_up(lab, None)
    return {name: one.hosts["h2"] for name, one in (("first", first), ("second", second), ("none", none))}


def test_a_scheme_s_settings_go_with_it_and_an_operator_s_stay(lab: RunningLab) -> None:
    seen = lab.call(scheme_after_scheme, path=str(lab.path))
    changes = {name: {row["name"]: row["wanted"] for row in rows if row["status"] == "changed"}
               for name, rows in seen.items()}  # fmt: skip
    floors = [name for name in changes["first"] if name.startswith("rto_min")]
    assert len(floors) == 2
    assert changes["first"] == {"sysctl net.ipv4.tcp_sack": "1", **dict.fromkeys(floors, "200ms")}
    assert changes["second"] == {
        "sysctl net.ipv4.tcp_sack": "0", "sysctl net.ipv4.tcp_ecn": "1", **dict.fromkeys(floors, NO_FLOOR)
    }  # fmt: skip
    assert changes["none"] == {"sysctl net.ipv4.tcp_ecn": "2"}
    assert lab.on("h2", "cat /sys/class/net/eth1/mtu").strip() == "1450"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mtuu": 1400}, "unknown settings: mtuu"),
        ({"sysctls": {"net.ipv4.tcp_ecn": 9}}, "the kernel refuses net.ipv4.tcp_ecn = 9: Invalid argument"),
        ({"sysctls": {"../../etc/passwd": 9}}, "is no name of a sysctl"),
    ],
)
def test_what_cannot_be_is_said(module_lab: RunningLab, settings: dict[str, Any], said: str) -> None:
    before = state(module_lab, "h1")
    failed = dlcp(module_lab, "apply", write(module_lab, settings), "--yes", code=1)
    assert sorted(failed["failed"]) == ["h1", "h2", "h3", "h4"]
    assert said in failed["failed"]["h1"]
    assert state(module_lab, "h1") == before


def test_a_host_with_another_key_and_one_elsewhere_are_refused(lab: RunningLab) -> None:
    file, text = write(lab, SETTINGS), lab.path.read_text()
    before = state(lab, "h1")
    lab.path.write_text(text.replace("ansible_host: 10.200.0.9", "ansible_host: 192.0.2.9"))
    done = lab.run(["dlcp", "hosts", "apply", file, "--yes"])
    assert done.returncode == 2
    assert "192.0.2.9 is in none of the lab's networks (10.200.0.0/24)" in done.stderr.replace("\n", " ")
    done = lab.run(
        ["ansible-playbook", "-i", lab.path, playbook("hosts"), "-e", "yes=true"], cwd=playbook("hosts").parent
    )
    assert done.returncode != 0
    assert "in none of the lab's networks" in done.stdout + done.stderr

    lab.path.write_text(text)
    known = lab.folder / "known_hosts"
    first = known.read_text().splitlines()[0].split(" ", 1)[1]
    known.write_text("".join(
        f"{line.split()[0]} {first}\n" if line.startswith("10.200.0.9 ") else f"{line}\n"
        for line in known.read_text().splitlines()
    ))  # fmt: skip
    failed = dlcp(lab, "apply", file, "--yes", code=1)
    assert failed["status"] == "undone"
    assert list(failed["failed"]) == ["h4"]
    assert state(lab, "h1") == before


def playbook(name: str) -> Path:
    return Path(__file__).parents[2] / "playbooks" / f"{name}.yml"


def test_plain_ansible_does_the_same(module_lab: RunningLab) -> None:
    settings = write(module_lab, {"dlcp_host_settings": {"mtu": 1400}}, "vars.yaml")
    words = ["ansible-playbook", "-i", module_lab.path, "--diff", "-e", f"@{module_lab.folder / settings}"]
    before = state(module_lab, "h1")
    checked = module_lab.run([*words, "-e", "yes=true", "--check", "hosts.yml"], cwd=playbook("hosts").parent)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "-mtu of eth1 = 1500" in checked.stdout
    assert "+mtu of eth1 = 1400" in checked.stdout
    assert state(module_lab, "h1") == before
    for name in ("hosts.yml", "host_restore.yml"):
        done = module_lab.run([*words, "-e", "yes=true", name], cwd=playbook("hosts").parent)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "4 of 4 hosts changed" in done.stdout
    assert state(module_lab, "h1") == before
