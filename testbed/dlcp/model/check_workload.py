"""What must agree inside a workload file, beyond the type of each value."""

from __future__ import annotations

from pathlib import Path

from dlcp.errors import Problem
from dlcp.model.document import Document
from dlcp.model.workload import Profile, Training, Workload


def check_workload(document: Document, workload: Workload, folder: Path) -> list[Problem]:
    """Problems of a workload that is well-formed. folder: where training scripts lie."""
    problems = []
    if workload.name != document.path.stem:
        what = f"`name` is {workload.name!r} but the file is called {document.path.name}"
        problems.append(Problem(document.where(("name",)), what, f"write `name: {document.path.stem}`"))
    if isinstance(workload, Profile):
        return problems + _profile_problems(document, workload)
    return problems + _training_problems(document, workload, folder)


def _profile_problems(document: Document, profile: Profile) -> list[Problem]:
    problems = []
    total = sum(layer.parameters for layer in profile.layers)
    if total != profile.parameters:
        what = f"`parameters` is {profile.parameters:,} but the layers have {total:,} together"
        problems.append(Problem(document.where(("parameters",)), what, "correct the sum or the layers"))
    first: dict[str, int] = {}
    for i, layer in enumerate(profile.layers):
        if first.setdefault(layer.name, i) != i:
            where = document.where(("layers", i, "name"))
            line = document.where(("layers", first[layer.name], "name")).rsplit(":", 2)[1]
            problems.append(Problem(where, f"a layer is called {layer.name!r} already, in line {line}"))
    return problems


def _training_problems(document: Document, training: Training, folder: Path) -> list[Problem]:
    script = folder / training.script
    if script.is_file():
        return []
    known = ", ".join(sorted(file.name for file in folder.glob("*.py"))) or "none"
    what = f"the script {training.script!r} is not in {folder.name}/"
    return [Problem(document.where(("script",)), what, f"scripts there: {known}")]
