"""SONiC switches deployed to by the real playbooks, over a real SSH, upon real databases."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sonic_lab import SonicLab, sonic_lab
from timers import run_out

from dlcp.model.lab.load_inventory import load_inventory
from dlcp.runner.lab.deploy import collect

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an sshd that lets root in needs root; run as root")

TWO = {"kind": "dumbbell", "left": 1, "right": 1, "rate": "100 Mbit/s", "bottleneck": "50 Mbit/s"}


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[SonicLab]:
    with sonic_lab(tmp_path, TWO) as found:
        yield found


@pytest.mark.long
def test_a_fabric_is_looked_at_deployed_found_the_same_and_taken_back(fabric: SonicLab) -> None:
    before = fabric.dumps()
    look = fabric.lab.play("deploy", "--check", "--diff", intent="dlcp-ect")
    assert look.returncode == 0, look.stdout + look.stderr
    assert "+QUEUE|Ethernet0|3 wred_profile: DLCP_3" in look.stdout
    assert fabric.dumps() == before
    deployed = fabric.lab.play("deploy", intent="dlcp-ect", yes=True)
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    after = fabric.dumps()
    assert all(after[name] != before[name] for name in after)
    again = fabric.lab.play("deploy", intent="dlcp-ect", yes=True)
    assert again.returncode == 0, again.stdout
    assert "nothing to do" in again.stdout
    assert fabric.dumps() == after
    back = fabric.lab.play("rollback", yes=True)
    assert back.returncode == 0, back.stdout
    assert fabric.dumps() == before


def test_what_switches_say_of_their_counters_is_kept_or_why_they_say_nothing(fabric: SonicLab, tmp_path: Path) -> None:
    lab = load_inventory(fabric.lab.folder / "lab.yaml")
    unread = collect(lab, tmp_path / "before")
    assert set(unread) == set(fabric.behind)
    assert all("show" in why and "not found" in why for why in unread.values()), unread
    show = fabric.lab.folder / "bin" / "show"
    show.parent.mkdir()
    show.write_text("#!/bin/sh\necho of $*\n")
    show.chmod(0o755)
    assert collect(lab, tmp_path / "after") == {}
    for name in fabric.behind:
        assert "of queue wredcounters" in (tmp_path / "after" / name / "counters.txt").read_text()


@pytest.mark.long
def test_an_updater_that_dies_on_one_switch_leaves_both_as_they_were(fabric: SonicLab) -> None:
    """The switch that failed is undone by its own timer; the other one at once."""
    before = fabric.dumps()
    fabric.say("s2", dlcp_sonic_config=fabric.behind["s2"].config("--fail-after", "5"))
    done = fabric.lab.play("deploy", intent="dlcp-ect", yes=True)
    assert done.returncode != 0
    assert "after 5 rows: the database went away" in done.stdout
    assert fabric.behind["s1"].dump() == before["s1"]
    run_out(fabric.behind["s2"].folder / "state")
    back = fabric.behind["s2"].wait_for(before["s2"], within_s=60)
    assert back, "the timer did not take the deployment back"


@pytest.mark.long
def test_a_failure_on_the_17th_of_32_leaves_all_on_the_old_state(tmp_path: Path) -> None:
    """Its database takes no more writes from the moment that it is to be changed; what was there is another intent."""
    leaves = 24
    topology = {"kind": "leaf-spine", "leaves": leaves, "spines": 8, "hosts": leaves, "rate": "100 Mbit/s"}
    with sonic_lab(tmp_path, topology, "direct") as fabric:
        assert fabric.lab.play("deploy", intent="droptail", yes=True).returncode == 0
        before, seventeenth = fabric.dumps(), sorted(fabric.behind)[16]
        assert len(before) == 32
        fabric.behind[seventeenth].database.config_set("min-replicas-to-write", 1)
        done = fabric.lab.play("deploy", intent="dlcp-ect", yes=True)
        assert done.returncode != 0
        assert "NOREPLICAS" in done.stdout
        assert "every switch is as it was before" in done.stdout
        assert fabric.dumps() == before
        assert fabric.lab.play("verify", intent="droptail").returncode == 0
