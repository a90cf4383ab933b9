"""Every command of the README and its detail pages does what it says: cheap ones are run, others at least parsed."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from command import dlcp
from extras import needs
from synthetic_results import make_results

from dlcp.cli.main import app
from dlcp.paths import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
COMMANDS_PAGE = (REPOSITORY / "docs" / "commands.md").read_text(encoding="utf-8")
LAYOUT_PAGE = (REPOSITORY / "docs" / "layout.md").read_text(encoding="utf-8")
TABLE = re.findall(r"^\| `(dlcp [^`]+)` \| (.+) \|$", README, flags=re.MULTILINE)
NAMED_COMMANDS = [
    *(command for command, _ in TABLE),
    *re.findall(r"`(dlcp [^`]+)`", COMMANDS_PAGE),
    *re.findall(r"^    (dlcp [^#\n]*[^# \n]) +#", README, flags=re.MULTILINE),
    *re.findall(r"^[^|\n].*`(dlcp switch inventory [^`]+)`", README, flags=re.MULTILINE),
    *(f"dlcp shell quickstart {option}" for option in re.findall(r"`(-c [^`]+)`", COMMANDS_PAGE)),
]
COMMANDS = list(dict.fromkeys(NAMED_COMMANDS))
EMULATES = (
    "dlcp run",
    "dlcp tune",
    "dlcp shell",
    "dlcp bench allreduce",
    "dlcp bench switch",
    "dlcp bench capacity",
    "dlcp switch verify",
    "dlcp doctor --calibrate",
    "dlcp lab",
    "dlcp hosts",
    "dlcp switch diff",
    "dlcp switch apply",
    "dlcp switch rollback",
    "dlcp masks",
    "dlcp verify",
)
"""What takes minutes, root, a lab or a run of its own kind: proven in tests/kernel/crash, tests/kernel/emulate,
tests/lab and tests/bench, and in tests/kernel/runner/test_inprocess.py."""
WHOLE_PAPER = "dlcp paper"
"""Takes an hour; a small one is made in tests/kernel/emulate."""
PAGES = README + COMMANDS_PAGE + LAYOUT_PAGE
MAKE_TARGETS = sorted(set(re.findall(r"(?:^ {4}|`)make ([a-z-]+)", PAGES, flags=re.MULTILINE)))


def test_the_table_names_every_command_and_no_other() -> None:
    known = {name for name in app if not name.startswith("-")}
    assert {shlex.split(command)[1] for command, _ in TABLE} == known
    assert len(TABLE) == len(known)


REPORT = "dlcp report"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_arguments_are_those_that_the_command_takes(command: str) -> None:
    function, bound, _ = app.parse_args(shlex.split(command)[1:], print_error=False, exit_on_error=False)
    assert function.__name__ in shlex.split(command)[1:3]
    assert bound.arguments.get("experiment", "quickstart") in ("quickstart", "headline", "lab-demo", "dlcp-wred")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with made-up results in it."""
    folder = tmp_path_factory.mktemp("readme")
    experiment = make_results(folder / "results", iterations=12, tensors=8)
    for number, run in enumerate(sorted(experiment.iterdir())):
        named = run.rename(run.with_name(f"{number:012x}"))  # as the store names them
        result = json.loads((named / "result.json").read_text())
        (named / "result.json").write_text(json.dumps(result | {"run_id": named.name}))
    return folder


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(one, marks=needs("pandas")) if one == REPORT else one
        for one in COMMANDS
        if one != WHOLE_PAPER and not one.startswith(EMULATES)
    ],
)
def test_it_runs(command: str, folder: Path) -> None:
    done = dlcp(*shlex.split(command)[1:], cwd=folder, limit_s=120)
    allowed = {0, 3} if command == "dlcp doctor" else {0}  # 3: something is missing here, which is what it is to say
    assert done.returncode in allowed, done.stderr
    assert done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("target", [*MAKE_TARGETS, "setup", "lint", "notebooks", "clean"])
def test_make_knows_the_target(target: str) -> None:
    done = subprocess.run(["make", "--dry-run", target], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_help_lists_what_a_person_may_type() -> None:
    done = subprocess.run(["make", "help"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    listed = re.findall(r"^  make ([a-z-]+)", done.stdout, flags=re.MULTILINE)
    assert {"help", "setup", "emulate", "test", "lint", "notebooks", "clean", *MAKE_TARGETS} <= set(listed)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(((?!https?:)[^)#]+)\)", README))))
def test_what_is_linked_is_there(path: str) -> None:
    assert (REPOSITORY / path).exists()


def test_folders_of_the_tables_are_there() -> None:
    folders = re.findall(r"^\| `([^`]+/)` \|", README + LAYOUT_PAGE, flags=re.MULTILINE)
    assert len(folders) >= 30
    assert [folder for folder in folders if not (REPOSITORY / folder).is_dir()] == []
