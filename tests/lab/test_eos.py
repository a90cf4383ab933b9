"""EOS switches deployed to by the real playbooks and the unmodified arista.eos collection, over SSH, onto stubs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from eos_stub import EosServer, EosSwitch
from stub_lab import StubLab, make_keys, write_inventory

TOPOLOGY = {"kind": "dumbbell", "left": 1, "right": 1, "rate": "100 Mbit/s", "bottleneck": "50 Mbit/s"}
AS_SHIPPED = """
hostname s1
vlan 100
qos map dscp 46 to traffic-class 3 drop-precedence 1
qos map traffic-class 3 to uc-tx-queue 5
qos profile OLD
   uc-tx-queue 1
      no priority
      bandwidth percent 30
interface Ethernet1/1
   description towards s2
   service-profile OLD
interface Ethernet2/1
   speed 100g
interface Ethernet9/1
   service-profile OLD
interface Management1
   ip address 192.0.2.7/24
"""


@pytest.fixture
def switches() -> dict[str, EosSwitch]:
    found = {name: EosSwitch(name) for name in ("s1", "s2")}
    for switch in found.values():
        switch.load(AS_SHIPPED.replace("s1", switch.name, 1))
    return found


@pytest.fixture
def lab(tmp_path: Path, switches: dict[str, EosSwitch]) -> Iterator[StubLab]:
    made = make_keys(tmp_path / "lab")
    server = EosServer(list(switches.values()), made.hostkey, made.client)
    quick = {"ansible_buffer_read_timeout": 0.01}  # of a switch's 0.1 s a line
    write_inventory(made, "eos", TOPOLOGY, server.ports, dict.fromkeys(switches, quick))
    yield made
    server.close()


def texts(switches: dict[str, EosSwitch]) -> dict[str, str]:
    return {name: switch.text() for name, switch in switches.items()}


@pytest.mark.long
def test_a_fabric_is_looked_at_deployed_found_the_same_and_taken_back(
    lab: StubLab, switches: dict[str, EosSwitch]
) -> None:
    before = texts(switches)
    look = lab.play("deploy", "--check", "--diff", intent="dlcp-wred")
    assert look.returncode == 0, look.stdout + look.stderr
    assert "+   service-profile DLCP" in look.stdout
    assert texts(switches) == before
    assert not any(switch.sessions for switch in switches.values())

    deployed = lab.play("deploy", intent="dlcp-wred", yes=True)
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    assert all(switch.pending is None for switch in switches.values())
    after = texts(switches)
    assert "random-detect drop drop-precedence 2 minimum-threshold 150 kbytes" in after["s1"]
    assert "   service-profile DLCP" in after["s1"].split("interface Ethernet1/1")[1].split("!")[0]
    assert "   service-profile OLD" in after["s1"].split("interface Ethernet9/1")[1].split("!")[0]
    told = [line for switch in switches.values() for line in switch.history]
    assert any(line.startswith("commit timer 00:05:00") for line in told)
    assert not any("Management" in line for line in told)

    again = lab.play("deploy", intent="dlcp-wred", yes=True)
    assert again.returncode == 0, again.stdout
    assert "nothing to do" in again.stdout
    assert texts(switches) == after

    back = lab.play("rollback", yes=True)
    assert back.returncode == 0, back.stdout
    assert texts(switches) == before


@pytest.mark.long
def test_a_line_that_one_switch_refuses_leaves_both_as_they_were(lab: StubLab, switches: dict[str, EosSwitch]) -> None:
    """The comparison passes, as a firmware may differ in what it takes later; the session is aborted in the middle."""
    before = texts(switches)
    switches["s2"].refuses = "commit timer 00:05:00"
    done = lab.play("deploy", intent="dctcp", yes=True)
    assert done.returncode != 0
    assert "every switch is as it was before" in done.stdout
    assert texts(switches) == before
    assert not any(switch.sessions or switch.pending for switch in switches.values())


@pytest.mark.long
def test_drift_and_a_timer_that_ran_out_are_told(lab: StubLab, switches: dict[str, EosSwitch]) -> None:
    assert lab.play("deploy", intent="droptail", yes=True).returncode == 0
    switches["s2"].load("interface Ethernet1/1\n   service-profile OLD\n")
    drift = lab.play("verify", intent="droptail")
    assert drift.returncode != 0
    assert "s2" in drift.stdout
    assert "service-profile OLD" in drift.stdout
    assert lab.play("deploy", intent="droptail", yes=True).returncode == 0
    assert lab.play("verify", intent="droptail").returncode == 0


@pytest.mark.long
def test_a_bad_line_is_found_by_the_comparison(lab: StubLab, switches: dict[str, EosSwitch]) -> None:
    before = texts(switches)
    switches["s1"].refuses = "qos trust dscp"
    done = lab.play("deploy", intent="dlcp-wred", yes=True)
    assert done.returncode != 0
    assert "nothing was changed" in done.stdout
    assert texts(switches) == before
    assert not any(switch.sessions for switch in switches.values())


def test_an_unknown_host_key_is_refused_whatever_the_environment_says(
    lab: StubLab, switches: dict[str, EosSwitch], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANSIBLE_HOST_KEY_AUTO_ADD", "ANSIBLE_PARAMIKO_HOST_KEY_AUTO_ADD"):
        monkeypatch.setenv(name, "True")
    known = lab.folder / "known_hosts"
    known.write_text(known.read_text().splitlines()[0] + "\n")
    done = lab.play("preflight")
    assert done.returncode != 0
    assert switches["s1"].history != []
    assert switches["s2"].history == []


@pytest.mark.long
def test_a_stranger_s_host_key_is_refused(lab: StubLab, switches: dict[str, EosSwitch]) -> None:
    known = lab.folder / "known_hosts"
    stranger = make_keys(lab.folder / "stranger").client.read_text().split()[1]
    lines = known.read_text().splitlines()
    known.write_text("\n".join([lines[0], " ".join([*lines[1].split()[:2], stranger])]) + "\n")
    done = lab.play("preflight")
    assert done.returncode != 0
    assert switches["s2"].history == []
