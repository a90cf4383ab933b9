"""Folders of the package and of the C core: imports and includes between them form no circle, imports go through few
floors, and no folder is too large."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import dlcp

ROOT = Path(dlcp.__file__).parent
NATIVE = ROOT.parent / "native"
MOST_FILES = 20
"""In one folder of the package or of the C core: what a reader takes in at a glance."""
MOST_FLOORS = 9
"""Parts (folders directly in the package) that stand on each other."""
FREE = {"errors", "paths"}
"""Files beside the parts that every part may import."""
FEW = {
    "model": {"files"},  # it says what an experiment is, whoever runs it
    "report": {"model", "files"},  # it reads results of any version and place
    "transport": {"model", "files"},  # users embed it
    "frameworks": {"model", "files", "datasets", "transport", "patterns"},  # users embed it
    "switches": {"model", "files"},  # it runs on switches too
}
"""Parts that may import these only, though the absence of circles would allow more."""


def modules(files: Iterable[Path], root: Path = ROOT) -> dict[str, Path]:
    """Every module of ours by its name."""
    found = {}
    for file in files:
        parts = [root.name, *file.relative_to(root).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports_of(file: Path, source: str, known: Mapping[str, Path], root: Path = ROOT) -> set[str]:
    """Modules of ours that a file imports, anywhere in it, relative ones resolved."""
    package = [root.name, *file.relative_to(root).parts[:-1]]
    imported: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            inner = {f"{module}.{alias.name}" for alias in node.names}
            imported |= {name if name in known else module for name in inner}
    return {name for name in imported if name == root.name or name.startswith(f"{root.name}.")}


FILES = sorted(file for file in ROOT.rglob("*.py"))
MODULES = modules(FILES)


@cache
def imports_of_all() -> dict[str, set[str]]:
    """Imports of every module of the package. Not at import: each worker of a test run imports this file."""
    return {name: imports_of(file, file.read_text(encoding="utf-8"), MODULES) for name, file in MODULES.items()}


def folder_includes(root: Path) -> dict[str, dict[str, set[str]]]:
    """Folder below a root of C sources → its subfolders → others of them whose headers they include. Includes between a
    folder and what lies beneath it do not count: common headers stand above those that share them."""
    include = re.compile(r'^#include "(?:.*/)?(.+?)"', re.MULTILINE)
    headers = {file.name: file for file in root.rglob("*.h")}
    edges: dict[str, dict[str, set[str]]] = {}
    for file in sorted([*root.rglob("*.c"), *headers.values()]):
        own = file.parent.relative_to(root).parts
        for name in include.findall(file.read_text(encoding="utf-8")):
            other = headers[name].parent.relative_to(root).parts if name in headers else own
            for depth, (a, b) in enumerate(zip(own, other, strict=False)):
                if a != b:
                    edges.setdefault("/".join(own[:depth]), {}).setdefault(a, set()).add(b)
                    break
    return edges


def part_of(module: str) -> str:
    """ "dlcp.model.units" → "model"; the package itself: ""."""
    return module.split(".")[1] if "." in module else ""


def room_of(module: str, known: Mapping[str, Path], root: Path = ROOT) -> str:
    """The folder of a module. A package's __init__ that exports from folders beneath it is a room of its own: who
    imports the package imports what it exports, files of the package do not."""
    file = known.get(module)
    if file is None:  # compiled, such as transport._native
        return module
    folder = str(file.parent.relative_to(root))
    is_door = file.name == "__init__.py" and any(file.parent.glob("*/__init__.py"))
    return f"{folder}/__init__" if is_door else folder


def graph(of: Mapping[str, str], imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Modules' imports as imports between what `of` says they belong to."""
    edges: dict[str, set[str]] = {}
    for module, imported in imports.items():
        own = edges.setdefault(of[module], set())
        own |= {of[name] for name in imported if name in of} - {of[module]}
    return edges


def circle(edges: Mapping[str, set[str]]) -> list[str]:
    """One circle in a graph, or nothing."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def floors(edges: Mapping[str, set[str]]) -> dict[str, int]:
    """How high each node of a graph without circles stands: 1 = it imports no other."""
    height: dict[str, int] = {}
    for node in TopologicalSorter(edges).static_order():
        height[node] = 1 + max((height[other] for other in edges.get(node, ())), default=0)
    return height


def parts(imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    edges = graph({module: part_of(module) for module in MODULES}, imports)
    free = FREE | {""}
    return {part: others - free for part, others in edges.items() if part not in free}


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert circle(graph({module: module for module in MODULES}, imports_of_all())) == []


def test_no_circle_between_folders() -> None:
    assert circle(graph({module: room_of(module, MODULES) for module in MODULES}, imports_of_all())) == []


def test_parts_stand_on_few_floors() -> None:
    height = floors(parts(imports_of_all()))
    by_floor = [[part for part in sorted(height) if height[part] == floor] for floor in sorted(set(height.values()))]
    for floor, names in enumerate(by_floor, 1):
        print(f"floor {floor}: {', '.join(names)}")
    assert len(by_floor) <= MOST_FLOORS


@pytest.mark.parametrize("part", FEW)
def test_a_part_that_must_know_few_knows_few(part: str) -> None:
    assert parts(imports_of_all())[part] <= FEW[part]


def test_the_runner_does_not_know_the_report() -> None:
    """Runs are made without what draws them, which is an extra that may be missing."""
    assert "report" not in parts(imports_of_all())["runner"]


def test_no_circle_between_folders_of_the_core() -> None:
    edges = folder_includes(NATIVE)
    assert "congestion" in edges[""]["protocol"], "the search finds includes"
    assert {folder: circle(subfolders) for folder, subfolders in edges.items() if circle(subfolders)} == {}


def test_headers_of_the_core_have_names_of_their_own() -> None:
    """Sources include them by name alone."""
    names = Counter(file.name for file in NATIVE.rglob("*.h"))
    assert [name for name, times in names.items() if times > 1] == []


def test_no_folder_is_too_large() -> None:
    core = [file for file in NATIVE.rglob("*") if file.suffix in {".c", ".h"}]
    assert len(core) > MOST_FILES, "the search finds sources"
    sizes = Counter(str(file.parent.relative_to(ROOT.parent)) for file in [*FILES, *core])
    assert {folder: size for folder, size in sizes.items() if size > MOST_FILES} == {}


def test_every_folder_is_a_package_that_says_what_is_in_it() -> None:
    folders = {file.parent for file in FILES}
    silent = [
        str(folder.relative_to(ROOT))
        for folder in sorted(folders)
        if not (folder / "__init__.py").is_file()
        or not ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    ]
    assert silent == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("dlcp.transport.contract.bounds", "import dlcp.agents.process.stdio"),
        ("dlcp.agents.costs", "from dlcp.substrates import conductor"),
        ("dlcp.model.units", "def f():\n    from ..runner.planning import plan"),
        ("dlcp.substrates.conductor", "import dlcp.runner.planning.plan as p"),
    ],
)
def test_a_wrong_import_is_found(module: str, source: str) -> None:
    wrong = imports_of_all() | {module: imports_of_all()[module] | imports_of(MODULES[module], source, MODULES)}
    assert circle(parts(wrong)) != []


def test_a_circle_of_two_folders_is_found(tmp_path: Path) -> None:
    """Of folders that nobody has listed anywhere."""
    root = tmp_path / "toy"
    sources = {
        "north/a.py": "from toy.south import b",
        "south/b.py": "",
        "south/c.py": "import toy.north.a",
        "north/__init__.py": "",
        "south/__init__.py": "",
        "__init__.py": "",
    }
    for name, source in sources.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(source)
    known = modules([root / name for name in sources], root)
    imports = {name: imports_of(file, file.read_text(), known, root) for name, file in known.items()}
    assert circle({module: set(imported) & set(known) for module, imported in imports.items()}) == []
    assert set(circle(graph({module: room_of(module, known, root) for module in known}, imports))) == {"north", "south"}


@pytest.mark.parametrize("folder", ["", "inner/"])
def test_a_circle_of_two_folders_of_c_files_is_found(tmp_path: Path, folder: str) -> None:
    """No file is in a circle: only the folders are."""
    sources = {
        "north/a.c": '#include "b.h"\n#include "top.h"\n',
        "south/b.h": "",
        "south/c.c": '#include "d.h"\n',
        "north/d.h": "",
        "top.h": "",
    }
    for name, source in sources.items():
        file = tmp_path / folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    assert set(circle(folder_includes(tmp_path)[folder.rstrip("/")])) == {"north", "south"}


def test_files_of_tests_have_names_of_their_own() -> None:
    """Else pytest, which imports them by name, stops at the second in a call that collects several folders."""
    tests = Path(__file__).resolve().parent.parent
    names = [file.name for file in tests.rglob("*.py") if file.name != "conftest.py"]
    assert [name for name in sorted(set(names)) if names.count(name) > 1] == []
