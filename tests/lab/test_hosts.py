"""Hosts of a lab set up and restored over real SSH: every value comes back byte for byte, whatever went wrong.

What one host does with a call is tried on a host of the lab, on its real kernel, without Ansible in between; what
becomes of all hosts together, through `dlcp hosts`.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import host_engine
import pytest
import yaml
from running_lab import RunningLab

from dlcp.model.experiment import Scaling
from dlcp.model.host_settings import HostSettings
from dlcp.model.lab.load_inventory import load_inventory
from dlcp.runner.lab import hosts
from dlcp.schemes.tcp import Tcp

TWO_HOSTS = {"kind": "star", "hosts": 2, "rate": "100 Mbit/s"}
LAST_HOST = "10.200.0.4"
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
CHANGED = 3 + 2 + 1 + 2
"""Sysctls, routes, MTU, offloads."""
ABSENT: dict[str, Any] = {
    "rings": {"rx": "max"},
    "coalescing": {"rx-usecs": 8},
    "trust": "dscp",
    "dscp_prio": {26: 3},
    "prio_tc": {3: 3},
    "pfc": [3],
}
"""What a veth cannot do."""
STATE = (
    "ip -d -o route show table all; ip -o link show eth1; ethtool -k eth1; tc qdisc show; "
    "sysctl -a 2>/dev/null | grep -E '^net[.](ipv4|core)' | grep -v -e nf_conntrack -e tcp_fastopen_key"
)
UNTOLD = "the kernel's own"
LAB_TIME = Scaling(lab_rate="10 Gbit/s")
PLAYBOOKS = Path(__file__).parents[2] / "playbooks"


@pytest.fixture
def two_hosts(make_lab: Callable[..., RunningLab]) -> RunningLab:
    return make_lab(TWO_HOSTS)


@pytest.fixture
def engine(two_hosts: RunningLab) -> Callable[..., dict[str, dict[str, Any]]]:
    """Brings h1 to a state; gives what changed, by name."""

    def call(state: str, settings: dict[str, Any] | None = None, layer: str = "host") -> dict[str, dict[str, Any]]:
        words = [sys.executable, host_engine.__file__, state, layer, json.dumps(settings or {})]
        rows = json.loads(two_hosts.on("h1", shlex.join(words)))
        return statuses(rows, "changed")

    return call


def state(lab: RunningLab, host: str) -> str:
    return lab.on(host, STATE)


def states(lab: RunningLab) -> dict[str, str]:
    return {host: state(lab, host) for host in load_inventory(lab.path).hosts}


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


def replace_tool(lab: RunningLab, host: str, tool: str, script: str) -> None:
    """Another program in a tool's place; `$REAL` is the tool."""
    path = lab.on(host, f"readlink -f $(command -v {tool})").strip()
    lab.on(host, f"mv {path} {path}.real")
    text = f'#!/bin/sh\nREAL={path}.real\n{script}\nexec $REAL "$@"\n'
    lab.on(host, f"printf %s {shlex.quote(text)} > {path}; chmod 755 {path}")


def put_tool_back(lab: RunningLab, host: str, tool: str) -> None:
    path = lab.on(host, f"readlink -f $(command -v {tool})").strip()
    lab.on(host, f"mv {path}.real {path}")


@pytest.mark.long
def test_set_up_and_restore(two_hosts: RunningLab) -> None:
    lab, before = two_hosts, states(two_hosts)
    file = write(lab, SETTINGS | ABSENT)

    looked = dlcp(lab, "apply", file)
    assert looked["status"] == "looked"
    assert states(lab) == before
    predicted = {host: statuses(rows, "changed") for host, rows in looked["hosts"].items()}
    assert [len(rows) for rows in predicted.values()] == [CHANGED, CHANGED]

    applied = dlcp(lab, "apply", file, "--yes")
    assert {host: statuses(rows, "changed") for host, rows in applied["hosts"].items()} == predicted
    assert lab.on("h1", "sysctl -n net.ipv4.tcp_ecn; cat /sys/class/net/eth1/mtu").split() == ["1", "1400"]
    assert lab.on("h2", "ip route show dev eth1").count("rto_min lock 5ms") == 2
    skipped = statuses(applied["hosts"]["h1"], "skipped")
    assert len(skipped) == 1 + len(ABSENT), "clock, and what a veth cannot do"
    assert all(row["reason"] for row in skipped.values())
    manifest = json.loads((Path(applied["folder"]) / "hosts.json").read_text())
    assert {host: one["rows"] for host, one in manifest["hosts"].items()} == applied["hosts"]

    again = dlcp(lab, "apply", file, "--yes")
    assert [statuses(rows, "changed") for rows in again["hosts"].values()] == [{}, {}]

    restored = dlcp(lab, "restore", "--yes")
    assert restored["status"] == "restored"
    assert states(lab) == before
    assert lab.on("h1", "ls /var/lib/dlcp") == ""


def test_what_is_saved_first_comes_back(two_hosts: RunningLab, engine: Callable[..., Any]) -> None:
    before = state(two_hosts, "h1")
    assert len(engine("applied", SETTINGS)) == CHANGED
    assert list(engine("applied", SETTINGS | {"mtu": 1300})) == ["mtu of eth1"]
    gone = engine("applied", {"mtu": 1300})
    assert len(gone) == CHANGED - 1
    assert {row["reason"] for row in gone.values()} == {"no longer asked for"}
    engine("applied", SETTINGS | {"mtu": 1450})
    engine("restored")
    assert state(two_hosts, "h1") == before
    assert engine("restored") == {}


def test_what_the_last_call_did_is_undone_alone(two_hosts: RunningLab, engine: Callable[..., Any]) -> None:
    engine("applied", {"mtu": 1450})
    between = state(two_hosts, "h1")
    engine("applied", SETTINGS)
    engine("undone")
    assert state(two_hosts, "h1") == between
    assert engine("applied", {"mtu": 1450}) == {}


@pytest.mark.parametrize(("floor_ms", "shown"), [(999, "999ms"), (1000, "1s"), (1600, "1.6s")])
def test_a_floor_of_a_second_and_more_reads_back_as_it_was_set(
    engine: Callable[..., Any], floor_ms: int, shown: str
) -> None:
    found = engine("applied", {"rto_min_ms": floor_ms}, layer="scheme")
    assert {row["wanted"] for row in found.values()} == {f"rto_min {shown}"}
    assert engine("applied", {"rto_min_ms": floor_ms}, layer="scheme") == {}, "what is set is what is read"


def test_a_scheme_s_settings_go_with_it_and_an_operator_s_stay(engine: Callable[..., Any]) -> None:
    engine("applied", {"mtu": 1450, "sysctls": {"net.ipv4.tcp_sack": 0}})

    def scheme(**settings: Any) -> dict[str, str]:
        return {name: row["wanted"] for name, row in engine("applied", settings, layer="scheme").items()}

    first = scheme(sysctls={"net.ipv4.tcp_sack": 1}, rto_min_ms=200, congestion_control="reno")
    routes = [name for name in first if name.startswith("route")]
    assert len(routes) == 2
    assert first == {"sysctl net.ipv4.tcp_sack": "1", **dict.fromkeys(routes, "congctl reno rto_min 200ms")}
    assert scheme(sysctls={"net.ipv4.tcp_ecn": 1}) == {
        "sysctl net.ipv4.tcp_sack": "0",
        "sysctl net.ipv4.tcp_ecn": "1",
        **dict.fromkeys(routes, UNTOLD),
    }
    assert scheme() == {"sysctl net.ipv4.tcp_ecn": "2"}
    assert engine("applied", {"mtu": 1450, "sysctls": {"net.ipv4.tcp_sack": 0}}) == {}


def test_a_call_that_is_killed_is_restored(two_hosts: RunningLab, engine: Callable[..., Any]) -> None:
    lab, before = two_hosts, state(two_hosts, "h1")
    engine("applied", {"mtu": 1450})
    replace_tool(lab, "h1", "ethtool", '[ $1 = -K ] && { $REAL "$@"; kill -9 $PPID; }')
    with pytest.raises(AssertionError, match="Killed"):
        engine("applied", SETTINGS)
    assert state(lab, "h1") != before
    put_tool_back(lab, "h1", "ethtool")
    engine("restored")
    assert state(lab, "h1") == before


def test_what_cannot_be_put_back_stays_saved(two_hosts: RunningLab, engine: Callable[..., Any]) -> None:
    lab, before = two_hosts, state(two_hosts, "h1")
    engine("applied", SETTINGS)
    replace_tool(lab, "h1", "ip", '[ "$2" = change ] && { echo no more routes >&2; exit 2; }')
    words = [sys.executable, host_engine.__file__, "restored", "host", "{}"]
    said = lab.on("h1", f"{shlex.join(words)} || true")
    assert "not put back" in said
    assert "no more routes" in said
    put_tool_back(lab, "h1", "ip")
    engine("restored")
    assert state(lab, "h1") == before


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mtuu": 1400}, "unknown settings: mtuu"),
        (
            {"mtu": 1400, "sysctls": {"net.ipv4.tcp_ecn": 9}},
            "the kernel refuses net.ipv4.tcp_ecn = 9: Invalid argument",
        ),
        ({"mtu": 1400, "sysctls": {"../../etc/passwd": 9}}, "is no name of a sysctl; nothing was changed"),
        ({"mtu": 1400, "offloads": {"gro": "on;reboot"}}, "is no value for ethtool; nothing was changed"),
    ],
)
def test_what_cannot_be_is_said(two_hosts: RunningLab, settings: dict[str, Any], said: str) -> None:
    before = state(two_hosts, "h1")
    words = [sys.executable, host_engine.__file__, "applied", "host", json.dumps(settings)]
    assert said in two_hosts.on("h1", f"{shlex.join(words)} && echo fine || true")
    assert state(two_hosts, "h1") == before


@pytest.mark.long
def test_a_host_that_refuses_leaves_all_as_they_were(two_hosts: RunningLab) -> None:
    lab, before = two_hosts, states(two_hosts)
    replace_tool(lab, "h2", "ip", '[ "$2" = change ] && { echo no more routes >&2; exit 2; }')
    failed = dlcp(lab, "apply", write(lab, SETTINGS), "--yes", code=1)
    assert failed["status"] == "undone"
    assert list(failed["failed"]) == ["h2"]
    assert "no more routes; the host is as before this call" in failed["failed"]["h2"]
    assert states(lab) == before


@pytest.mark.long
def test_a_host_with_another_key_and_one_elsewhere_are_refused(two_hosts: RunningLab) -> None:
    lab, before = two_hosts, state(two_hosts, "h1")
    file, text, known = write(lab, SETTINGS), lab.path.read_text(), lab.folder / "known_hosts"
    lab.path.write_text(text.replace(LAST_HOST, "192.0.2.9"))
    done = lab.run(["dlcp", "hosts", "apply", file, "--yes"])
    assert done.returncode == 2
    assert "192.0.2.9 is in none of the lab's networks (10.200.0.0/24)" in done.stderr.replace("\n", " ")

    lab.path.write_text(text)
    lines = known.read_text().splitlines()
    key = lines[0].split(" ", 1)[1]
    known.write_text("".join(f"{LAST_HOST} {key}\n" if line.startswith(LAST_HOST) else f"{line}\n" for line in lines))
    failed = dlcp(lab, "apply", file, "--yes", code=1)
    assert failed["status"] == "undone"
    assert list(failed["failed"]) == ["h2"]
    assert state(lab, "h1") == before


def test_the_agent_s_units_are_ones_that_systemd_takes(two_hosts: RunningLab) -> None:
    made = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n" + WRITE_UNITS],
        capture_output=True,
        text=True,
        check=True,
    )
    lab, (socket, service) = two_hosts, json.loads(made.stdout)
    if not lab.on("h1", "command -v systemd-analyze || true"):
        pytest.skip("no systemd-analyze here; apt-get install systemd brings it")
    lab.on("h1", "useradd --system dlcp")
    for name, text in (("dlcp-agent.socket", socket), ("dlcp-agent@.service", service)):
        lab.on("h1", f"printf %s {shlex.quote(text)} > /etc/systemd/system/{name}")
    said = lab.on("h1", "cd /etc/systemd/system; systemd-analyze verify dlcp-agent.socket dlcp-agent@x.service 2>&1")
    assert "dlcp-agent" not in said
    wrong = service.replace("ProtectHome=", "ProtectHouse=")
    lab.on("h1", f"printf %s {shlex.quote(wrong)} > /etc/systemd/system/dlcp-agent@.service")
    said = lab.on("h1", "cd /etc/systemd/system; systemd-analyze verify dlcp-agent@x.service 2>&1 || true")
    assert "Unknown key" in said, "systemd-analyze sees what is wrong"


WRITE_UNITS = """
import host_engine, json
from ansible.module_utils.dlcp_agent_units import SERVICE, SOCKET, units
made = units("/bin/true")
print(json.dumps([made[SOCKET], made[SERVICE]]))
"""


def scheme_after_scheme(path: str) -> dict[str, Any]:
    """Two schemes one after the other, then none: what each changes on h2."""
    lab = load_inventory(Path(path))
    schemes = (Tcp().hosts(LAB_TIME), HostSettings(sysctls={"net.ipv4.tcp_ecn": "1"}, rto_min_s=0.2), None)
    return {str(number): hosts.set_up(lab, one).hosts["h2"] for number, one in enumerate(schemes)}


@pytest.mark.long
def test_runs_set_hosts_up(lab: RunningLab) -> None:
    before = states(lab)
    seen = lab.call(scheme_after_scheme, within_s=120, path=str(lab.path))
    assert [len(statuses(rows, "changed")) for rows in seen.values()] == [2, 3, 3], "routes; ECN too; all back"
    assert states(lab) == before


@pytest.mark.long
def test_plain_ansible_does_the_same(lab: RunningLab) -> None:
    settings = write(lab, {"dlcp_host_settings": {"mtu": 1400}, "dlcp_host_units": True}, "vars.yaml")
    words = ["ansible-playbook", "-i", lab.path, "--diff", "-e", f"@{lab.folder / settings}", "-e", "yes=true"]
    before = states(lab)
    checked = lab.run([*words, "--check", "hosts.yml"], cwd=PLAYBOOKS)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "-mtu of eth1 = 1500" in checked.stdout
    assert "+mtu of eth1 = 1400" in checked.stdout
    assert states(lab) == before
    done = lab.run([*words, "hosts.yml"], cwd=PLAYBOOKS)
    assert "skipped agent's units: no systemd runs here (every host)" in done.stdout
    for name in ("host_restore.yml", "hosts.yml", "host_restore.yml"):
        done = lab.run([*words, name], cwd=PLAYBOOKS)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "4 of 4 hosts changed" in done.stdout
    assert states(lab) == before
    right = lab.path.read_text()
    lab.path.write_text(right.replace("10.200.0.9", "192.0.2.9"))
    done = lab.run([*words, "hosts.yml"], cwd=PLAYBOOKS)
    lab.path.write_text(right)
    assert done.returncode != 0
    assert "in none of the lab's networks" in done.stdout + done.stderr
    assert states(lab) == before
