"""Consistency of a workload file, or a file of flow sizes, beyond the type of each value."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from dlcp.errors import Problem
from dlcp.model.loading.document import Document
from dlcp.model.sizes import SizeTable
from dlcp.model.units import show_fraction, show_size
from dlcp.model.workload import Profile, Training, Workload


def check_workload(document: Document, workload: Workload, folder: Path) -> list[Problem]:
    """Problems of a workload that is well-formed. folder: where training scripts lie."""
    problems = _name_problems(document, workload.name)
    if isinstance(workload, Profile):
        return problems + _profile_problems(document, workload)
    return problems + _training_problems(document, workload, folder)


def check_sizes(document: Document, table: SizeTable) -> list[Problem]:
    """Problems of a table of flow sizes that is well-formed."""
    problems = _name_problems(document, table.name)
    for i, (before, point) in enumerate(pairwise(table.points), 1):
        if point.size_bytes <= before.size_bytes:
            problem = f"size {show_size(point.size_bytes)} comes after {show_size(before.size_bytes)}"
            problems.append(Problem(document.where(("points", i, "size")), problem, "points ascend in size"))
        if point.share < before.share:
            problem = f"share {show_fraction(point.share)} comes after {show_fraction(before.share)}"
            problems.append(Problem(document.where(("points", i, "share")), problem, "a cumulative share never falls"))
    if table.points[-1].share != 1:
        last = len(table.points) - 1
        problem = f"the last share is {show_fraction(table.points[-1].share)}: larger flows have no size"
        problems.append(Problem(document.where(("points", last, "share")), problem, "it must be 100 %"))
    return problems


def _name_problems(document: Document, name: str) -> list[Problem]:
    if name == document.path.stem:
        return []
    problem = f"`name` is {name!r} but the file is called {document.path.name}"
    return [Problem(document.where(("name",)), problem, f"write `name: {document.path.stem}`")]


def _profile_problems(document: Document, profile: Profile) -> list[Problem]:
    problems = []
    total = sum(layer.parameters for layer in profile.layers)
    if total != profile.parameters:
        problem = f"`parameters` is {profile.parameters:,} but the layers have {total:,} together"
        problems.append(Problem(document.where(("parameters",)), problem, "correct the sum or the layers"))
    first: dict[str, int] = {}
    for i, layer in enumerate(profile.layers):
        if first.setdefault(layer.name, i) != i:
            where = document.where(("layers", i, "name"))
            line = document.line(("layers", first[layer.name], "name"))
            problems.append(Problem(where, f"a layer is called {layer.name!r} already, in line {line}"))
    return problems


def _training_problems(document: Document, training: Training, folder: Path) -> list[Problem]:
    script = folder / training.script
    if script.is_file():
        return []
    known = ", ".join(sorted(file.name for file in folder.glob("*.py"))) or "none"
    problem = f"the script {training.script!r} is not in {folder.name}/"
    return [Problem(document.where(("script",)), problem, f"scripts there: {known}")]
