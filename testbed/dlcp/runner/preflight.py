"""What a run needs is tried before the first one starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dlcp.errors import MachineCannot, Problems
from dlcp.model.workload import Training
from dlcp.runner import doctor
from dlcp.runner.outline import Outline

RUN_BYTES = 5 * 10**6
"""Room that is asked for each run to make; one of the quickstart takes about 1 MB."""


def preflight(outline: Outline, results: Path) -> None:
    """Raise Problems with every gap that would make the runs of a plan fail. Nothing to run, nothing to try."""
    if not outline.todo:
        return
    groups = [doctor.Group("results", (doctor.room(results, len(outline.todo) * RUN_BYTES),))]
    if outline.plan.substrate == "emulate":
        groups += [doctor.emulation(), doctor.native_core()]
    if outline.plan.substrate == "lab":
        groups += [replace(doctor.lab(), needed=True), doctor.native_core()]
    if any(isinstance(cell.run.workload, Training) for cell in outline.todo):
        groups.append(doctor.training_jobs())
    _refuse(groups)


def preflight_emulation() -> None:
    """Raise Problems with all that this machine lacks for an emulated fabric without jobs."""
    _refuse([doctor.emulation()])


def preflight_lab_demo() -> None:
    """Raise Problems with all that this machine lacks for a lab of namespaces, deployments and runs on it."""
    groups = [doctor.emulation(), doctor.lab(), doctor.lab_demo()]
    _refuse([replace(group, needed=True) for group in groups])


def _refuse(groups: list[doctor.Group]) -> None:
    missing = [MachineCannot(gap.name, gap.detail, gap.remedy) for gap in doctor.gaps(groups)]
    if missing:
        raise Problems(list(missing))
