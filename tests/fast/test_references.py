"""Texts name files and modules that are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from dlcp.paths import REPOSITORY

PACKAGE = REPOSITORY / "testbed" / "dlcp"
FOLDERS = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())
MODULE = re.compile(rf"(?<![\w./])(?:dlcp\.)?((?:{'|'.join(FOLDERS)})(?:\.(?!html\b|h\b|_native\b)\w+)+)(?![\w/(])")
"""Such as `runner.machine.dilation`, with or without the package before it; maybe with a name of the module behind."""
DOCUMENT = re.compile(r"[\w./-]*\b\w[\w-]*\.md\b")


@cache
def documents() -> frozenset[str]:
    """Names of the documents of the repository."""
    return frozenset(
        path.name
        for path in REPOSITORY.rglob("*.md")
        if not any(part.startswith(".") for part in path.relative_to(REPOSITORY).parts)
    )


def is_there(dotted: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    folder, parts = PACKAGE, dotted.split(".")
    for number, part in enumerate(parts):
        if (folder / part).is_dir():
            folder = folder / part
            continue
        file = folder / f"{part}.py"
        text = (file if file.exists() else folder / "__init__.py").read_text(encoding="utf-8")
        names = parts[number + 1 :] if file.exists() else parts[number:]
        return not names or re.search(rf"\b{re.escape(names[0])}\b", text) is not None
    return True


def absent_in(source: str) -> set[str]:
    """Return what a module's texts name that is not there."""
    texts = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    words = [text for text in texts if isinstance(text, str)]
    modules = {name for text in words for name in MODULE.findall(text) if not is_there(name)}
    return modules | {name for text in words for name in DOCUMENT.findall(text) if Path(name).name not in documents()}


def test_texts_name_what_is_there() -> None:
    absent = {
        str(path.relative_to(PACKAGE)): names
        for path in PACKAGE.rglob("*.py")
        if (names := absent_in(path.read_text(encoding="utf-8")))
    }
    assert absent == {}


def test_what_is_not_there_is_found() -> None:
    text = '"""See runner.planning.check, runner.no_such.thing, `model.units.no_such` and docs/no-such-page.md."""'
    assert absent_in(text) == {"runner.no_such.thing", "model.units.no_such", "docs/no-such-page.md"}
