"""docs/add-a-switch-system.md, step by step."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from dlcp.errors import Problems
from dlcp.paths import REPOSITORY
from dlcp.runner.lab.fabric_plan import PHASES, missing_tasks
from dlcp.switches.vendor.files import example_device, find_intent, load_intent
from dlcp.switches.vendor.render import Rendered, render
from dlcp.switches.vendor.systems import System, load_system, system_names

GUIDE = REPOSITORY / "docs" / "add-a-switch-system.md"
NAME = "toynos"
PLAYBOOKS = REPOSITORY / "playbooks"
THEIRS = ["set hostname leaf1", "set port toy1 speed 100"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of switch systems with the one of the guide, file by file."""
    text = GUIDE.read_text(encoding="utf-8")
    files = re.findall(r"^`switch_configs/(\S+)`:\n\n```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(files) == text.count("\n```\n"), "every block of the guide is a file"
    for name, content in files:
        file = tmp_path / "switch_configs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    return tmp_path / "switch_configs"


def rendered(system: System, name: str) -> Rendered:
    return render(load_intent(find_intent(name)), example_device(system), system=system)


def test_it_is_found_renders_and_refuses(folder: Path) -> None:
    assert system_names(folder) == [NAME]
    system = load_system(NAME, folder)
    assert [counter.command for counter in system.counters] == ["toyctl counters"]
    made = rendered(system, "dctcp")
    assert "set qos queue 0 ecn 100000 100000 100" in made.configuration
    assert made.rollback == "unset port toy1 qos\nunset port toy2 qos\nunset qos\n"
    with pytest.raises(Problems, match="toyctl has no word for it"):
        rendered(system, "roce-pfc")


def test_it_can_be_deployed_only_with_all_its_task_files(folder: Path) -> None:
    assert missing_tasks(NAME, folder) == []
    (folder / NAME / "tasks" / "restore.yml").unlink()
    assert missing_tasks(NAME, folder) == ["restore"]
    (folder / NAME / "tasks" / "main.yml").unlink()
    assert set(missing_tasks(NAME, folder)) == {"main", *PHASES} - {"apply", "counters"}


class ToySwitch:
    """The stub of a switch, and what Ansible does on it by the system's role."""

    def __init__(self, folder: Path) -> None:
        self._root = folder.parent
        self._state = self._root / "state.json"
        self._deployment = self._root / "deployments" / "1"
        (self._deployment / "leaf1").mkdir(parents=True)
        self._keep({"running": THEIRS, "before": None, "verbs": []})
        command = self._root / "toyctl"
        command.write_text(
            f'#!/bin/sh\nexec {sys.executable} {Path(__file__).parents[1] / "helpers" / "toyctl.py"} "$@"\n'
        )
        command.chmod(0o755)

    @property
    def state(self) -> dict[str, Any]:
        return dict(json.loads(self._state.read_text()))

    def _keep(self, state: dict[str, Any]) -> None:
        self._state.write_text(json.dumps(state))

    @contextmanager
    def changed(self) -> Iterator[dict[str, Any]]:
        state = self.state
        yield state
        self._keep(state)

    def deploy(self, made: Rendered) -> None:
        (self._deployment / "leaf1" / "rendered.json").write_text(json.dumps(made.data()))

    def kept(self, name: str) -> Any:
        return json.loads((self._deployment / "leaf1" / f"{name}.json").read_text())

    def play(self, *phases: str) -> subprocess.CompletedProcess[str]:
        """Carry out phases as deploy.yml does, and keep what the last reading found."""
        tasks: list[dict[str, Any]] = [
            {"ansible.builtin.include_role": {"name": "{{ dlcp_system }}"}, "vars": {"dlcp_phase": phase}}
            for phase in phases
        ]
        tasks.append({"dlcp_keep": {"fact": "dlcp_found", "file": "found"}})
        words = {
            "dlcp_system": NAME,
            "dlcp_folder": str(self._deployment),
            "dlcp_deployment": "1",
            "dlcp_backup_dir": "{{ dlcp_folder }}/leaf1",
            "dlcp_confirm_within_s": 300,
            "dlcp_rendered": "{{ lookup('ansible.builtin.file', dlcp_backup_dir ~ '/rendered.json') | from_json }}",
        }
        book = self._root / "play.yml"
        book.write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "vars": words, "tasks": tasks}]))
        (self._root / "hosts").write_text("leaf1 ansible_connection=local\n")
        env = os.environ | {
            "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"),
            "ANSIBLE_ROLES_PATH": f"{PLAYBOOKS / 'roles'}:{self._root / 'switch_configs'}",
            "PATH": f"{self._root}:{os.environ['PATH']}",
            "TOYCTL_STATE": str(self._state),
        }
        return subprocess.run(
            [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(self._root / "hosts"), str(book)],
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.mark.long
def test_its_role_deploys_reads_back_and_restores(folder: Path) -> None:
    switch, made = ToySwitch(folder), rendered(load_system(NAME, folder), "dctcp")
    switch.deploy(made)
    done = switch.play("preflight", "backup", "diff", "apply", "read")
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = [*THEIRS, f"set qos note dlcp-{made.digest}", *made.configuration.splitlines()]
    assert sorted(switch.state["running"]) == sorted(wanted)
    assert switch.state["before"] == THEIRS, "the timer runs"
    assert switch.kept("before") == {"digest": "", "text": "\n".join(THEIRS) + "\n"}
    assert switch.kept("found") == {"digest": made.digest, "differences": []}

    done = switch.play("confirm", "counters")
    assert done.returncode == 0, done.stdout + done.stderr
    assert switch.state["before"] is None

    with switch.changed() as state:
        state["running"].remove("set port toy2 qos on")
    done = switch.play("read")
    assert done.returncode == 0, done.stdout + done.stderr
    assert switch.kept("found") == {"digest": made.digest, "differences": ["+ set port toy2 qos on"]}

    done = switch.play("restore", "read")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(switch.state["running"]) == sorted(THEIRS)
    assert switch.kept("found") == {"digest": "", "differences": []}


@pytest.mark.long
def test_its_role_refuses_where_a_change_is_pending(folder: Path) -> None:
    switch = ToySwitch(folder)
    with switch.changed() as state:
        state["before"] = []
    done = switch.play("preflight")
    assert done.returncode != 0
    assert "a change waits to be accepted" in done.stdout
    assert switch.state["running"] == THEIRS
