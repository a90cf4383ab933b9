"""Deployments in a namespace lab over SSH: truthful, idempotent, and whole or not at all whatever fails."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults import ALWAYS, asked, mend, plant
from running_lab import RunningLab
from small_fabric import SWITCHES, command, held, settled, standing, switch
from waits import wait_until

from dlcp.errors import ExitCode
from dlcp.model.lab.load_inventory import load_inventory
from dlcp.paths import PLAYBOOKS

PORTS = dict.fromkeys(SWITCHES, ("eth1", "eth2"))
"""Each switch of the row has one port to either side."""


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """Three switches that hold `droptail`, confirmed: the last good state."""
    yield from standing(tmp_path_factory.mktemp("lab"))


@pytest.mark.long
def test_a_look_predicts_exactly_what_changes_and_changes_nothing(fabric: RunningLab) -> None:
    good = held(fabric)
    code, said = switch(fabric, "diff", "droptail")
    assert (code, said["status"], set(said["diffs"].values())) == (0, "unchanged", {""})

    plant(fabric, "b", "facts", "meddled with")
    code, said = switch(fabric, "diff", "droptail")
    mend(fabric, "b")
    assert [name for name, diff in said["diffs"].items() if diff] == ["b"], "drift is shown where it is"
    assert "eth1" in said["diffs"]["b"]

    shown = held(fabric)
    code, said = switch(fabric, "apply", "droptail", "--yes")
    assert (code, said["status"]) == (0, "deployed")
    assert [name for name, diff in said["diffs"].items() if diff] == ["b"], "and mended there alone"
    assert shown != good
    assert held(fabric) == good


@pytest.mark.long
def test_by_hand_a_check_tells_what_would_change_and_a_second_run_changes_nothing(fabric: RunningLab) -> None:
    good = held(fabric)
    checked = by_hand(fabric, "deploy.yml", "-e", "intent=dlcp-ect", "-e", "yes=true", "--check", "--diff")
    assert changes(checked.stdout) == dict.fromkeys(SWITCHES, 1), checked.stdout
    assert "+++ wanted" in checked.stdout
    assert held(fabric) == good

    again = by_hand(fabric, "deploy.yml", "-e", "intent=droptail", "-e", "yes=true")
    assert changes(again.stdout) == dict.fromkeys(SWITCHES, 0), again.stdout
    verified = by_hand(fabric, "verify.yml", "-e", "intent=droptail")
    assert verified.returncode == 0, verified.stdout


@pytest.mark.long
def test_a_lost_reply_is_asked_for_again(fabric: RunningLab) -> None:
    good = held(fabric)
    plant(fabric, "b", "confirm", "exits", calls=(1, 1))
    code, said = switch(fabric, "apply", "dlcp-wred", "--yes")
    assert asked(fabric, "b") == 2
    mend(fabric, "b")
    assert (code, said["status"]) == (0, "deployed"), said
    assert switch(fabric, "rollback", "--yes")[1]["status"] == "rolled back"
    assert held(fabric) == good


@pytest.mark.long
def test_what_one_does_not_confirm_is_restored_on_those_that_had_confirmed(fabric: RunningLab) -> None:
    good = held(fabric)
    plant(fabric, "b", "confirm", "exits", calls=ALWAYS)
    code, said = switch(fabric, "apply", "dlcp-wred", "--yes")
    mend(fabric, "b")
    assert (code, said["status"]) == (ExitCode.RUN_FAILED, "restored"), said
    assert list(said["failed"]) == ["Confirm", "Confirm again"]
    assert held(fabric) == good


@pytest.mark.long
def test_a_switch_that_is_cut_off_after_it_applied_restores_itself(fabric: RunningLab) -> None:
    good = held(fabric)
    plant(fabric, "c", "apply", "cut off after")
    code, said = switch(fabric, "apply", "dlcp-wred", "--yes", "--within", "12 s")
    assert (code, said["status"]) == (ExitCode.RUN_FAILED, "timers"), said
    told = held(fabric)
    assert [name for name in SWITCHES if told[name] == good[name]] in (["a", "b"], ["a", "b", "c"])
    assert settled(fabric, good), held(fabric)
    mend(fabric, "c")


@pytest.mark.long
def test_a_switch_that_is_cut_off_after_it_confirmed_is_named_and_a_rollback_mends_it(fabric: RunningLab) -> None:
    """The case that no order of messages excludes: it has confirmed, nobody knows, and nobody reaches it."""
    good = held(fabric)
    plant(fabric, "a", "confirm", "cut off after")
    code, said = switch(fabric, "apply", "dlcp-wred", "--yes")
    assert (code, said["status"]) == (ExitCode.RUN_FAILED, "mixed"), said
    assert list(said["failed"]["Restore"]) == ["a"]
    mend(fabric, "a")
    left = held(fabric)
    assert [name for name, one in left.items() if one != good[name]] == ["a"], (left, good)
    code, again = switch(fabric, "rollback", "--deployment", said["deployment"], "--yes")
    assert (code, again["status"]) == (0, "rolled back"), again
    assert held(fabric) == good


@pytest.mark.long
def test_who_cannot_be_changed_is_found_before_anybody_is(fabric: RunningLab) -> None:
    good = held(fabric)
    fabric.run(["sh", "-c", "rm -rf /run/dlcp/ssh/*"])  # connections that are open were checked when they were made
    keys = fabric.folder / "known_hosts"
    right = keys.read_text()
    lines = right.splitlines()
    address_of_a, key_of_b = lines[0].split()[0], lines[1].split()[1:]
    keys.write_text("\n".join([" ".join([address_of_a, *key_of_b]), *lines[1:]]) + "\n")
    fabric.on("b", "mv /etc/ssh/authorized_keys /etc/ssh/authorized_keys.away")
    fabric.on("c", "ip link set eth2 name gone0")
    try:
        code, said = switch(fabric, "apply", "dlcp-wred", "--yes")
    finally:
        keys.write_text(right)
        fabric.on("c", "ip link set gone0 name eth2")
        mend(fabric, "b")
    assert (code, said["status"]) == (ExitCode.RUN_FAILED, "refused"), said
    reasons = said["failed"]["Preflight"]
    assert "Host key verification failed" in reasons["a"]
    assert "Permission denied" in reasons["b"]
    assert "eth2: there is no such interface" in reasons["c"]
    assert held(fabric) == good


@pytest.mark.long
def test_one_deployment_at_a_time(fabric: RunningLab) -> None:
    good = held(fabric)
    plant(fabric, "a", "facts", "slow")
    words = [sys.executable, "-m", "dlcp.cli.main", "switch", "diff", "dlcp-wred"]
    words = fabric.process.inside(["env", "-C", str(fabric.folder), f"DLCP_LAB={fabric.path}", *words])
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as first:
        wait_until(lambda: asked(fabric, "a") or first.poll() is not None, "a is asked", 60, every_s=0.1)
        assert first.poll() is None
        second = command(fabric, "apply", "dlcp-wred", "--yes")
        mend(fabric, "a")
        first.communicate(timeout=60)
    assert second.returncode == ExitCode.MACHINE_CANNOT
    assert "deploying dlcp-wred (process" in second.stderr
    assert "has the fabric" in second.stderr
    assert first.returncode == 0
    assert held(fabric) == good


@pytest.mark.long
def test_counters_are_collected_as_the_switches_have_them(fabric: RunningLab) -> None:
    address = load_inventory(fabric.path).hosts["h2"].address
    frames, payload = 40, 1000
    before = collected(fabric)
    fabric.on("h1", f"ping -q -Q {26 << 2} -i 0.01 -c {frames} -s {payload} {address}")
    after = collected(fabric)
    grown = {name: sent(after[name]) - sent(before[name]) for name in SWITCHES}
    assert grown == {name: Counter({(to, 3): frames for to in both}) for name, both in PORTS.items()}


@pytest.mark.long
def test_back_to_before_anything_of_ours(fabric: RunningLab) -> None:
    good = held(fabric)
    assert switch(fabric, "apply", "dlcp-wred", "--yes")[1]["status"] == "deployed"
    code, said = switch(fabric, "rollback", "--original", "--yes")
    assert (code, said["status"]) == (0, "rolled back"), said
    assert {name: (one["digest"], one["kernel"]) for name, one in held(fabric).items()} == dict.fromkeys(
        SWITCHES, ("", [])
    )
    assert switch(fabric, "rollback", "--original", "--yes")[1]["status"] == "rolled back", "again is no harm"
    assert switch(fabric, "apply", "droptail", "--yes")[1]["status"] == "deployed"
    assert held(fabric) == good


def collected(lab: RunningLab) -> dict[str, Any]:
    """Switch → what collect.yml keeps of it."""
    done = by_hand(lab, "collect.yml")
    assert done.returncode == 0, done.stdout
    folder = Path(re.findall(r"kept in (\S+)", done.stdout)[0])
    return {name: json.loads((folder / name / "counters.json").read_text()) for name in SWITCHES}


def sent(counters: dict[str, Any]) -> Counter[tuple[str, int]]:
    """(port, queue) → packets."""
    return Counter(
        {(row["port"], row["queue"]): row["sent_packets"] for row in counters["rows"] if row["sent_packets"]}
    )


def by_hand(lab: RunningLab, playbook: str, *words: str) -> subprocess.CompletedProcess[str]:
    """ansible-playbook, as a person runs it in the folder of the playbooks."""
    command = [Path(sys.executable).with_name("ansible-playbook"), "-i", lab.path, playbook, *words]
    return lab.run(command, 120, cwd=PLAYBOOKS, env={"ANSIBLE_NOCOLOR": "1"})


def changes(output: str) -> dict[str, int]:
    """Host → changed, of Ansible's recap."""
    return {name: int(count) for name, count in re.findall(r"^(\w+) +: ok=\d+ +changed=(\d+)", output, re.M)}
