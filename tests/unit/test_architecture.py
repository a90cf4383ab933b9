"""Arrows between the parts of the package point one way; any other import is a defect."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dlcp

ROOT = Path(dlcp.__file__).parent

FREE = {"errors", "paths", ""}
"""Parts that all may import; "" is the package's own __init__."""
TRANSPORTS = {"transport", "switches"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "paths": set(),
    "": set(),
    "model": set(),
    "datasets": set(),
    "transport": {"model"},
    "switches": {"model"},
    "schemes": {"model", *TRANSPORTS},
    "frameworks": {"model", "datasets", "transport"},
    "agents": {"model", "transport", "frameworks"},
    "verification": {"model", "transport"},
    "substrates": {"model", *TRANSPORTS, "schemes", "agents", "verification"},
    "runner": {"model", "datasets", *TRANSPORTS, "schemes", "agents", "verification", "substrates"},
    "report": {"model"},
    "bench": {"model", *TRANSPORTS, "agents", "frameworks", "substrates"},
    "screen": {"model", "runner"},
    "progress": {"model", "runner", "substrates"},
    "cli_bench": {"model", "bench", "screen", "progress"},
    "screen_switch": {"verification", "switches", "runner", "screen"},
    "screen_deploy": {"model", "switches", "runner", "screen"},
    "cli_switch": {
        "model",
        "switches",
        "runner",
        "report",
        "cli_bench",
        "screen",
        "screen_switch",
        "screen_deploy",
        "progress",
    },
    "screen_hosts": {"runner", "screen"},
    "cli_hosts": {"model", "runner", "cli_bench", "cli_switch", "screen", "screen_hosts"},
    "cli_lab": {"model", "runner", "screen"},
    "screen_tune": {"model", "runner", "screen"},
    "cli_tune": {"model", "runner", "cli_bench", "screen", "screen_tune", "progress"},
    "cli_verify": {"model", "runner", "cli_bench", "screen", "progress"},
    "cli_paper": {"runner", "report", "cli_bench", "screen", "progress"},
    "cli": {
        "model",
        "runner",
        "report",
        "cli_bench",
        "cli_switch",
        "cli_hosts",
        "cli_lab",
        "cli_paper",
        "cli_tune",
        "cli_verify",
        "screen",
        "progress",
    },
}
"""Part → parts that it may import, besides FREE and itself.

model ◀─ transport, switches ◀─ schemes ◀─ substrates ◀─ runner ◀─ cli;  model ◀─ report ◀─ cli;
agents are what runs in the hosts: over transport, beneath substrates. screen, progress and cli_bench are the cli's own.
"""


def part_of(module: str) -> str:
    """ "dlcp.model.units" → "model"."""
    return module.split(".")[1] if "." in module else ""


def imports_of(file: Path, source: str) -> set[str]:
    """Modules of ours that a file imports, anywhere in it, relative ones resolved."""
    package = ["dlcp", *file.relative_to(ROOT).parts[:-1]]
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names} if module == "dlcp" else {module}
    return {name for name in found if name == "dlcp" or name.startswith("dlcp.")}


def own_part(file: Path) -> str:
    relative = file.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem.removeprefix("__init__")


def wrong_arrows(file: Path, source: str) -> list[str]:
    own = own_part(file)
    wrong = []
    for module in sorted(imports_of(file, source)):
        target = part_of(module)
        if module.startswith("dlcp.__"):  # such as dlcp.__version__
            target = ""
        if target not in ALLOWED[own] | FREE | {own}:
            wrong.append(f"{file.relative_to(ROOT)} imports {module}: {own} may import {sorted(ALLOWED[own])}")
    return wrong


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=[str(file.relative_to(ROOT)) for file in FILES])
def test_arrows(file: Path) -> None:
    assert wrong_arrows(file, file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("transport/x.py", "import dlcp.switches.tc"),
        ("switches/x.py", "from dlcp.transport import engine"),
        ("model/x.py", "from dlcp import schemes"),
        ("model/x.py", "def f():\n    from ..runner import plan"),
        ("report/x.py", "from dlcp.runner.store import Store"),
        ("runner/x.py", "from dlcp.report import report"),
        ("substrates/x.py", "import dlcp.runner.plan as p"),
        ("agents/x.py", "from dlcp.schemes import names"),
    ],
)
def test_a_wrong_arrow_is_found(file: str, source: str) -> None:
    assert len(wrong_arrows(ROOT / file, source)) == 1


def test_the_largest_allowed_parts_do_not_form_a_circle() -> None:
    """Whatever a part may import, directly or not, must not be able to import it."""

    def reachable(part: str, seen: frozenset[str] = frozenset()) -> set[str]:
        direct = ALLOWED[part] - seen
        return direct.union(*(reachable(one, seen | direct | {part}) for one in direct))

    assert [part for part in ALLOWED if part in reachable(part)] == []


def test_files_of_tests_have_names_of_their_own() -> None:
    """Else pytest, which imports them by name, stops at the second in a call that collects several folders."""
    tests = Path(__file__).resolve().parent.parent
    names = [file.name for file in tests.rglob("*.py") if file.name != "conftest.py"]
    assert [name for name in sorted(set(names)) if names.count(name) > 1] == []
