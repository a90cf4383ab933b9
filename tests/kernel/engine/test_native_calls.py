"""Calls between the files of the C core point one way, as the linker sees them, and so do its includes."""

from __future__ import annotations

import re
import shutil
import subprocess
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[3] / "testbed" / "native"
COMPILED = pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("nm")), reason="gcc or nm is not installed; apt-get install gcc binutils"
)


def compiled(sources: list[Path], folder: Path) -> list[Path]:
    """Compile each file by itself; returns the objects, named after the sources."""
    headers = sorted({header.parent for header in NATIVE.rglob("*.h")})
    includes = [option for header in headers for option in ("-I", str(header))]
    subprocess.run(["gcc", "-std=gnu11", "-O0", *includes, "-c", *sources], cwd=folder, check=True)
    return [folder / f"{source.stem}.o" for source in sources]


def calls(objects: list[Path]) -> dict[str, set[str]]:
    """File → files whose functions or data it uses: undefined symbols, by the object that defines them."""
    defined: dict[str, str] = {}
    undefined: dict[str, set[str]] = {}
    for file in objects:
        symbols = subprocess.run(["nm", "--extern-only", file], check=True, capture_output=True, text=True).stdout
        for line in symbols.splitlines():
            *_, kind, name = line.split()
            if kind == "U":
                undefined.setdefault(file.stem, set()).add(name)
            else:
                defined[name] = file.stem
    return {file: {defined[name] for name in names if name in defined} for file, names in undefined.items()}


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Files that call each other in a circle, its first one also last; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@COMPILED
def test_files_of_the_core_do_not_call_each_other_in_a_circle(tmp_path: Path) -> None:
    sources = sorted(path for path in NATIVE.rglob("*.c") if ".bpf." not in path.name)
    graph = calls(compiled(sources, tmp_path))
    assert "state" in graph["receiver"], "the state machine's files do call each other"
    assert circle(graph) == []


@COMPILED
def test_a_circle_is_found(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        (tmp_path / f"{name}.c").write_text(f"void {other}(void);\nvoid {name}(void) {{ {other}(); }}\n")
    objects = compiled(sorted(tmp_path.glob("?.c")), tmp_path)
    assert set(circle(calls(objects))) == {"a", "b", "c"}


def test_headers_of_the_core_do_not_include_each_other_in_a_circle() -> None:
    include = re.compile(r'^#include "(.+?)"', re.MULTILINE)
    graph = {path.name: set(include.findall(path.read_text())) for path in NATIVE.rglob("*.h")}
    assert "heap.h" in graph["state.h"], "headers do include each other"
    assert circle(graph) == []
