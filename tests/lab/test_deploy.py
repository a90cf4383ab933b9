"""Deployments in a namespace lab over SSH: truthful, idempotent, and whole or not at all whatever fails."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import ALWAYS, asked, mend, plant
from running_lab import RunningLab
from small_fabric import SWITCHES, THREE, command, held, switch

from dlcp.errors import ExitCode
from dlcp.paths import PLAYBOOKS

UNTIL_S = 60
"""Far more than any timer of these tests."""


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """Three switches that hold `droptail`, confirmed: the last good state."""
    lab = RunningLab(THREE, tmp_path_factory.mktemp("lab"))
    code, said = switch(lab, "apply", "droptail", "--yes")
    assert (code, said["status"]) == (0, "deployed"), said
    yield lab
    lab.stop()


def settled(lab: RunningLab, good: dict[str, object]) -> bool:
    """Whether every switch comes to hold what it held, by itself."""
    until = time.monotonic() + UNTIL_S
    while time.monotonic() < until:
        if held(lab) == good:
            return True
        time.sleep(0.5)
    return held(lab) == good


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


def test_what_one_does_not_confirm_is_restored_on_those_that_had_confirmed(fabric: RunningLab) -> None:
    good = held(fabric)
    plant(fabric, "b", "confirm", "exits", calls=ALWAYS)
    code, said = switch(fabric, "apply", "dlcp-wred", "--yes")
    mend(fabric, "b")
    assert (code, said["status"]) == (ExitCode.RUN_FAILED, "restored"), said
    assert list(said["failed"]) == ["Confirm", "Confirm again"]
    assert held(fabric) == good


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


def test_one_deployment_at_a_time(fabric: RunningLab) -> None:
    good = held(fabric)
    plant(fabric, "a", "facts", "slow")
    words = [sys.executable, "-m", "dlcp.cli", "switch", "diff", "dlcp-wred"]
    words = fabric.process.inside(["env", "-C", str(fabric.folder), f"DLCP_LAB={fabric.path}", *words])
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as first:
        while not asked(fabric, "a"):
            assert first.poll() is None
            time.sleep(0.1)
        second = command(fabric, "apply", "dlcp-wred", "--yes")
        mend(fabric, "a")
        first.communicate(timeout=60)
    assert second.returncode == ExitCode.MACHINE_CANNOT
    assert "deploying dlcp-wred (process" in second.stderr
    assert "has the fabric" in second.stderr
    assert first.returncode == 0
    assert held(fabric) == good


def by_hand(lab: RunningLab, playbook: str, *words: str) -> subprocess.CompletedProcess[str]:
    """ansible-playbook, as a person runs it in the folder of the playbooks."""
    command = [Path(sys.executable).with_name("ansible-playbook"), "-i", lab.path, playbook, *words]
    return lab.run(command, 120, cwd=PLAYBOOKS, env={"ANSIBLE_NOCOLOR": "1"})


def changes(output: str) -> dict[str, int]:
    """Host → changed, of Ansible's recap."""
    return {name: int(count) for name, count in re.findall(r"^(\w+) +: ok=\d+ +changed=(\d+)", output, re.M)}
