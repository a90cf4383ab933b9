"""Junos, NX-OS, Cumulus, SR Linux, OS10: what their roles would send. No switch of these and no stub has run them.

The lines are held by their grammar (tests/golden/grammar) and by what they must lead to; the roles are read by Ansible.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_eos_lines import loaded

from dlcp.errors import Problem, Problems
from dlcp.paths import REPOSITORY, SWITCH_CONFIGS
from dlcp.runner.lab.fabric_plan import LINES_PARTS, LINES_ROLE, PHASES, missing_tasks
from dlcp.switches.vendor.files import example_device, find_intent, intent_names, load_intent
from dlcp.switches.vendor.render import render
from dlcp.switches.vendor.systems import load_system, system_names

lines = loaded("dlcp_lines")
PLAYBOOKS = REPOSITORY / "playbooks"
WORDS = {
    system: lines.Words(**said["dlcp_lines"])
    for system in system_names()
    if (file := SWITCH_CONFIGS / system / "vars" / "main.yml").is_file()
    and "dlcp_lines" in (said := yaml.safe_load(file.read_text(encoding="utf-8")))
}
BY_PATHS = [system for system, words in WORDS.items() if words.form == "paths"]
INDENTED = [system for system, words in WORDS.items() if words.form == "indented"]
FOREIGN = {
    "junos": [
        "set class-of-service schedulers THEIRS priority low",
        "set forwarding-options hash-key family inet layer-3",
    ],
    "srlinux": ["set / qos classifiers dscp-policy THEIRS dscp 8 forwarding-class fc1"],
    "cumulus": ["nv set system hostname leaf1", "nv set qos mapping THEIRS trust l3"],
}


def rendered(system: str) -> list[dict[str, Any]]:
    """Every intent that it renders, as a deployment keeps it."""
    found = []
    for name in intent_names():
        intent = load_intent(find_intent(name)).model_copy(update={"on_unsupported": "degrade"})
        try:
            found.append(render(intent, example_device(load_system(system))).data())
        except (Problem, Problems):
            continue
    return found


def told(running: list[str], said: list[str], system: str) -> list[str]:
    """A candidate configuration of such a system: paths set, paths unset with all below them."""
    words = WORDS[system]
    for line in said:
        if line.startswith(words.unsets):
            path = words.sets + line.removeprefix(words.unsets)
            gone = [one for one in running if one == path or one.startswith(path + " ")]
            assert gone, f"unset, and not there: {line}"
            running = [one for one in running if one not in gone]
        else:
            assert line.startswith(words.sets), line
            running = [*(one for one in running if one != line), line]
    return running


@pytest.mark.parametrize("system", BY_PATHS)
def test_there_and_back_by_paths(system: str) -> None:
    for made in rendered(system):
        before = FOREIGN[system]
        after = told(before, lines.set_candidate(made, "\n".join(before), WORDS[system]), system)
        assert lines.kept_digest("\n".join(after), WORDS[system]) == made["digest"]
        assert set(before) < set(after)
        again = told(after, lines.set_candidate(made, "\n".join(after), WORDS[system], made), system)
        assert sorted(again) == sorted(after)
        back = told(after, lines.set_restoring("\n".join(before), "\n".join(after), WORDS[system], [made, {}]), system)
        assert sorted(back) == sorted(before)


@pytest.mark.parametrize("system", BY_PATHS)
def test_one_intent_after_another_by_paths(system: str) -> None:
    """Nothing of the first is left, and taking the second back brings the first."""
    made = rendered(system)
    for first, second in itertools.pairwise(made):
        fresh = told(FOREIGN[system], lines.set_candidate(second, "\n".join(FOREIGN[system]), WORDS[system]), system)
        held = told(FOREIGN[system], lines.set_candidate(first, "\n".join(FOREIGN[system]), WORDS[system]), system)
        after = told(held, lines.set_candidate(second, "\n".join(held), WORDS[system], first), system)
        assert sorted(after) == sorted(fresh)
        back = lines.set_restoring("\n".join(held), "\n".join(after), WORDS[system], [second, first])
        assert sorted(told(after, back, system)) == sorted(held)


@pytest.mark.parametrize("system", INDENTED)
def test_another_intent_of_ours_is_taken_off_first(system: str) -> None:
    first, second = rendered(system)[:2]
    mark = WORDS[system].mark
    alone = lines.block_candidate(first, "", WORDS[system])
    assert alone == [*first["configuration"].splitlines(), mark.format(first["digest"])]
    running = "\n".join(alone)
    assert lines.kept_digest(running, WORDS[system]) == first["digest"]
    assert lines.block_candidate(first, running, WORDS[system], first) == alone
    then = lines.block_candidate(second, running, WORDS[system], first)
    assert then[0].startswith("no ")
    assert first["digest"] in then[0]
    assert then[1 : 1 + len(first["rollback"].splitlines())] == first["rollback"].splitlines()
    assert then[-1] == mark.format(second["digest"])


@pytest.mark.parametrize("system", [*BY_PATHS, *INDENTED])
def test_every_line_that_is_sent_is_of_the_grammar_or_keeps_the_digest(system: str) -> None:
    file = REPOSITORY / "tests" / "golden" / "grammar" / f"{system}.txt"
    rules = [re.compile(rule) for rule in file.read_text().splitlines() if not rule.startswith("##")]
    words = WORDS[system]
    for made in rendered(system):
        once = lines.candidate(made, "", words)
        for line in [*once, *lines.candidate(made, "\n".join(once), words, made)]:
            bare = line.removeprefix(words.unsets).removeprefix(words.sets)
            mark = words.mark.format(made["digest"])
            assert mark.startswith(bare) or any(rule.fullmatch(line) for rule in rules), line


@pytest.mark.parametrize("system", system_names())
def test_a_system_has_every_task_file_and_no_other(system: str) -> None:
    assert missing_tasks(system, SWITCH_CONFIGS) == []
    extra = {"eos": {"look", "compare"}}.get(system, set())
    wanted = LINES_PARTS if system in WORDS else PHASES
    assert {file.stem for file in (SWITCH_CONFIGS / system / "tasks").iterdir()} == {"main", *wanted, *extra}


def test_the_shared_role_has_every_phase_and_asks_a_system_for_its_parts_alone() -> None:
    tasks = PLAYBOOKS / "roles" / LINES_ROLE / "tasks"
    texts = {file.stem: file.read_text(encoding="utf-8") for file in tasks.iterdir()}
    assert set(texts) == {*PHASES, "look"}
    asked = {
        part for text in texts.values() for part in re.findall(r'"\{\{ dlcp_system \}\}", tasks_from: (\w+)', text)
    }
    assert asked == set(LINES_PARTS)


def test_no_file_but_its_own_names_a_system_that_is_told_lines() -> None:
    """No list of systems outside of their folders."""
    plain = [
        file
        for folder in (PLAYBOOKS / "plugins", PLAYBOOKS / "roles", PLAYBOOKS / "vars", REPOSITORY / "testbed" / "dlcp")
        for kind in ("*.py", "*.yml")
        for file in folder.rglob(kind)
    ]
    assert len(plain) > 300
    named = re.compile(rf"""["'](?:{"|".join(WORDS)})["']""")
    assert [file for file in [*plain, *PLAYBOOKS.glob("*.yml")] if named.search(file.read_text(encoding="utf-8"))] == []


def test_a_plugin_that_one_system_alone_uses_stands_in_its_folder() -> None:
    tasks = [file for folder in (PLAYBOOKS, SWITCH_CONFIGS) for file in folder.rglob("*.yml")]
    texts = {file: file.read_text(encoding="utf-8") for file in tasks}
    plugins = [file.stem for kind in ("modules", "action") for file in (PLAYBOOKS / "plugins" / kind).glob("*.py")]
    assert len(plugins) > 5
    for plugin in plugins:
        users = [file for file, text in texts.items() if re.search(rf"\b{plugin}:", text)]
        systems = {file.relative_to(SWITCH_CONFIGS).parts[0] for file in users if SWITCH_CONFIGS in file.parents}
        shared = any(PLAYBOOKS in file.parents for file in users)
        assert users, plugin
        assert shared or len(systems) > 1, f"{plugin} is of {systems} alone"


def texts_in(node: Any) -> Iterator[str]:
    """Every string of a YAML document."""
    if isinstance(node, str):
        yield node
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        yield from texts_in(child)


def test_no_task_joins_lines_by_two_characters() -> None:
    """In a literal block of YAML, Ansible takes '\\n' in an expression for a backslash and an n."""
    files = [*SWITCH_CONFIGS.glob("*/tasks/*.yml"), *(PLAYBOOKS / "roles").glob("*/tasks/*.yml")]
    wrong = re.compile(r"\{\{[^}]*\\n[^}]*\}\}")
    assert [text for text in texts_in(yaml.safe_load("raw: |\n  {{ lines | join('\\\\n') }}")) if wrong.search(text)]
    found = {
        file: [text for text in texts_in(yaml.safe_load(file.read_text())) if wrong.search(text)] for file in files
    }
    assert {file: texts for file, texts in found.items() if texts} == {}


def test_ansible_reads_all_roles(tmp_path: Path) -> None:
    roles = {system: SWITCH_CONFIGS / system / "tasks" for system in system_names()}
    roles[LINES_ROLE] = PLAYBOOKS / "roles" / LINES_ROLE / "tasks"
    plays = [
        "- hosts: all\n  gather_facts: false\n  tasks:\n"
        + "".join(
            f"    - ansible.builtin.import_role: {{name: {role}, tasks_from: {file.stem}}}\n"
            for file in sorted(tasks.glob("*.yml"))
        )
        for role, tasks in roles.items()
    ]
    (tmp_path / "all.yml").write_text("".join(plays))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,", "--syntax-check"]
    env = os.environ | {"ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg")}
    done = subprocess.run(
        [*command, str(tmp_path / "all.yml")],
        cwd=PLAYBOOKS,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
