"""The guides of docs/, carried out: their blocks of code, and a folder of modules that a package finds as its own."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parents[2] / "docs"


def blocks(guide: str, language: str) -> list[str]:
    """Every block of a language in docs/GUIDE.md."""
    text = (DOCS / f"{guide}.md").read_text(encoding="utf-8")
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found, f"{guide}.md has a block of {language}"
    return found


def block(guide: str, language: str) -> str:
    """The only block of a language in docs/GUIDE.md."""
    found = blocks(guide, language)
    assert len(found) == 1, f"{guide}.md has one block of {language}"
    return found[0]


@contextmanager
def added_to(package: ModuleType, folder: Path) -> Iterator[Path]:
    """A folder whose modules are as good as those in a package's own; they are forgotten afterwards."""
    folder.mkdir()
    before, own = set(sys.modules), package.__path__
    package.__path__ = [*own, str(folder)]
    importlib.invalidate_caches()
    try:
        yield folder
    finally:
        package.__path__ = own
        for name in set(sys.modules) - before:
            if name.startswith(f"{package.__name__}."):
                del sys.modules[name]
                vars(package).pop(name.removeprefix(f"{package.__name__}."), None)
