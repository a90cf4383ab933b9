"""What `dlcp switch apply` refuses before anything is reached: at its line, with exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import dlcp
from test_inventory import LAB, write

from dlcp.errors import ExitCode
from dlcp.model.lab.load_inventory import load_inventory
from dlcp.runner.lab import deployment_record
from dlcp.runner.lab.fabric_plan import plan_fabric
from dlcp.switches.vendor.files import load_intent

INTENT = """\
name: mine
port_buffer: 1 MB
dscp:
  0: {queue: 0, precedence: 0}
  26: {queue: 3, precedence: 1}
queues:
  3: {profiles: [null, null, {minimum: 150 kB, maximum: 400 kB}]}
"""

IN_THE_LAB = {
    "unknown system": ("dlcp_system: linux", "dlcp_system: linus", "lab.yaml:11:22: no such switch system: 'linus'"),
    "a port is missing": ("{eth1: s2, eth2: h1}", "{eth1: s2}", "lab.yaml:20:11: s1 has no port to h1"),
}
IN_THE_INTENT = {
    "a queue that does not exist": (
        "  3: {",
        "  8: {",
        "mine.yaml:7:6: `queues[8]`: queue 8 does not exist",
    ),
    "a codepoint's queue does not exist": ("  26: {queue: 3", "  26: {queue: 9", "mine.yaml:5:"),
    "minimum above maximum": ("minimum: 150 kB", "minimum: 500 kB", "mine.yaml:7:"),
    "a codepoint twice": ("  26: {queue: 3", "  26: {queue: 3}\n  26: {queue: 3", "mine.yaml:6:3: "),
}


def refused(folder: Path, lab: str, intent: str) -> str:
    """What a person is told; nothing is reached, and no deployment begins."""
    (folder / "mine.yaml").write_text(intent, encoding="utf-8")
    write(folder, lab)
    done = dlcp("switch", "apply", "mine.yaml", "--lab", "lab.yaml", "--yes", cwd=folder)
    assert done.returncode == ExitCode.BAD_INPUT, done.stdout + done.stderr
    assert done.stdout == ""
    assert not (folder / "deployments").exists()
    return done.stderr


@pytest.mark.parametrize("name", IN_THE_LAB)
def test_a_mistake_in_the_inventory(tmp_path: Path, name: str) -> None:
    before, after, told = IN_THE_LAB[name]
    assert told in refused(tmp_path, LAB.replace(before, after), INTENT)


@pytest.mark.parametrize("name", IN_THE_INTENT)
def test_a_mistake_in_the_intent(tmp_path: Path, name: str) -> None:
    before, after, told = IN_THE_INTENT[name]
    assert told in refused(tmp_path, LAB, INTENT.replace(before, after))


def test_without_a_mistake_it_goes_on(tmp_path: Path) -> None:
    """What is refused above is refused for its mistake alone."""
    as_headers_say = INTENT.replace("dscp:\n  0: {queue: 0, precedence: 0}\n  26: {queue: 3, precedence: 1}\n", "")
    (tmp_path / "mine.yaml").write_text(as_headers_say, encoding="utf-8")
    assert list(plan_fabric(load_inventory(write(tmp_path, LAB)), load_intent(tmp_path / "mine.yaml"))) == ["s1", "s2"]


@pytest.mark.parametrize("name", ["20260102T030405Z-1a2b", "..", "../.."])
def test_only_what_was_begun_from_here_is_rolled_back(tmp_path: Path, name: str) -> None:
    write(tmp_path, LAB)
    done = dlcp("switch", "rollback", "--deployment", name, "--lab", "lab.yaml", "--yes", cwd=tmp_path)
    assert done.returncode == ExitCode.BAD_INPUT, done.stdout + done.stderr
    assert "is no deployment that was begun from here\n    known: none" in done.stderr
    assert not (tmp_path / "deployments").exists()


def test_what_is_kept_of_a_deployment_is_for_one_user_alone(tmp_path: Path) -> None:
    lab = load_inventory(write(tmp_path, LAB))
    for folder in (deployment_record.new_folder(lab), deployment_record.new_folder(lab, tmp_path / "elsewhere")):
        assert folder.stat().st_mode & 0o777 == 0o700
