"""The list at the end of a run of pytest: what was skipped, why, and what would run it."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from extras import EXTRA_OF, absent_module, needs, reason
from skips import groups

from dlcp.paths import REPOSITORY

TESTS = REPOSITORY / "tests"
SKIPS = {"pytest.skip", "pytest.importorskip", "pytest.mark.skip", "pytest.mark.skipif"}
EXTRAS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def skipped(file: str, test: str, why: str) -> pytest.TestReport:
    longrepr = (f"/checkout/{file}", 7, f"Skipped: {why}")
    return pytest.TestReport(f"{file}::{test}", (file, 7, test), {}, "skipped", longrepr, "setup")


def test_the_list_counts_by_reason_and_puts_what_is_inconclusive_last() -> None:
    reports = [
        skipped("queues.py", "test_a", "inconclusive: others use 31% of this machine; repeat when it is quiet"),
        skipped("queues.py", "test_b", "inconclusive: others use 62% of this machine; repeat when it is quiet"),
        *(skipped(f"net_{number}.py", "test_c", "makes a namespace; run as root") for number in range(5)),
        pytest.CollectReport("net_9.py", "skipped", ("net_9.py", 1, "Skipped: makes a namespace; run as root"), []),
    ]
    root, busy = groups(reports)
    assert list(root.lines()) == [
        "1 file, 5 tests: makes a namespace",
        "    to run: run as root",
        "    in net_0.py, net_1.py, net_2.py and 3 other files",
    ]
    assert list(busy.lines()) == [
        "2 tests: inconclusive: others use 31% of this machine",
        "    to run: repeat when it is quiet",
        "    in queues.py",
    ]


FILES = {
    "conftest.py": "import extras, skips\nextras.EXTRA_OF['module_of_nobody'] = 'train'\n"
    "def pytest_configure(config):\n"
    "    config.pluginmanager.register(extras)\n    config.pluginmanager.register(skips)\n",
    "test_extra.py": "import module_of_nobody",
    "test_needs.py": "from extras import needs\n@needs('module_of_nobody')\ndef test_it(): raise AssertionError",
    "test_later.py": "import pytest\ndef test_it(): pytest.skip('no Chromium; apt-get install chromium')",
    "test_broken.py": "import another_module_of_nobody",
}


@pytest.mark.parametrize(
    "workers", [(), pytest.param(("-n", "1"), marks=[needs("xdist"), pytest.mark.long])], ids=["alone", "xdist"]
)
def test_a_run_prints_the_list(workers: tuple[str, ...], tmp_path: Path) -> None:
    """A file that lacks a module of an extra is skipped; one that lacks another module is an error."""
    for name, source in FILES.items():
        (tmp_path / name).write_text(source)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {TESTS / 'helpers'}\n")
    command = [sys.executable, "-m", "pytest", "--continue-on-collection-errors", "-p", "no:cacheprovider", *workers]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "3 skipped, 1 error" in done.stdout
    section = done.stdout.partition(" 3 skipped, 0 inconclusive ")[2].splitlines()[1:]
    missing = reason("hypothesis").partition("; ")[2].replace("[dev]", "[train]")
    assert section[:6] == [
        "1 file, 1 test: module_of_nobody is not installed",
        f"    to run: {missing}",
        "    in test_extra.py, test_needs.py",
        "1 test: no Chromium",
        "    to run: apt-get install chromium",
        "    in test_later.py",
    ]


def test_a_missing_module_of_an_extra_is_found_behind_other_errors() -> None:
    inner = ModuleNotFoundError("No module named 'no_such.part'", name="no_such.part")
    outer = RuntimeError("the file cannot be imported")
    outer.__cause__ = inner
    assert absent_module(outer) is None, "of no extra"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EXTRA_OF, "no_such", "train")
        assert absent_module(outer) == "no_such"
        patch.setitem(EXTRA_OF, "json", "train")
        assert absent_module(ModuleNotFoundError("No module named 'json.x'", name="json.x")) is None, "json is here"


def test_every_extra_is_one_of_the_package() -> None:
    assert set(EXTRA_OF.values()) <= set(EXTRAS)


def written_reasons(source: str) -> Iterator[str]:
    """Reasons of skips that a file spells out."""
    for node in ast.walk(ast.parse(source)):
        function = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and function in SKIPS:
            keyword = [item.value for item in node.keywords if item.arg == "reason"]
            for value in keyword or (node.args[:1] if function == "pytest.skip" else []):
                if isinstance(value, ast.Constant | ast.JoinedStr):
                    yield ast.unparse(value)


def test_every_reason_says_what_to_do() -> None:
    silent = [
        f"{file.relative_to(TESTS)}: {why}"
        for file in sorted(TESTS.rglob("*.py"))
        for why in written_reasons(file.read_text(encoding="utf-8"))
        if "; " not in why
    ]
    assert silent == []
