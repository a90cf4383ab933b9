"""Trial of everything that a run needs, before the first one starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dlcp.errors import MachineCannot, Problems
from dlcp.model.workload import Training
from dlcp.runner.machine import doctor
from dlcp.runner.machine.admission import admit
from dlcp.runner.machine.emulator_support import require_supported
from dlcp.runner.planning.check import Ready
from dlcp.runner.planning.plan import Cell
from dlcp.runner.preview.outline import Outline, this_machine
from dlcp.substrates.registry import traits_of

RUN_BYTES = 5 * 10**6
"""Room that is asked for each run to make; one of the quickstart takes about 1 MB."""


def preflight(outline: Outline, results: Path) -> None:
    """Raise Problems with every gap that would make the runs of a plan fail. Nothing to run, nothing to try."""
    if not outline.todo:
        return
    room = doctor.Group("results", (doctor.room(results, len(outline.todo) * RUN_BYTES),))
    _refuse([room, *_for_runs(outline.plan.substrate, outline.todo)])


def preflight_tuning(ready: Ready, substrate: str, todo: Sequence[Cell]) -> None:
    """The same of a search's runs. MachineCannot when this machine cannot carry the experiment's load."""
    if not todo:
        return
    if traits_of(substrate).emulates:
        admit(ready, this_machine(fit=ready.experiment.scaling.fit is not None))
        require_supported(ready.experiment)
    _refuse(_for_runs(substrate, todo))


def preflight_emulation() -> None:
    """Raise Problems with all that this machine lacks for an emulated fabric without jobs."""
    _refuse([doctor.emulation()])


def preflight_lab_demo() -> None:
    """Raise Problems with all that this machine lacks for a lab of namespaces, deployments and runs on it."""
    groups = [doctor.emulation(), doctor.lab(), doctor.lab_demo()]
    _refuse([replace(group, needed=True) for group in groups])


def _for_runs(substrate: str, todo: Sequence[Cell]) -> list[doctor.Group]:
    """Checks of this machine for runs."""
    checks = {"emulation": doctor.emulation, "lab": doctor.lab, "native_core": doctor.native_core}
    groups = [replace(checks[need](), needed=True) for need in traits_of(substrate).needs]
    if any(isinstance(cell.run.workload, Training) for cell in todo):
        groups.append(doctor.training_jobs())
    return groups


def _refuse(groups: list[doctor.Group]) -> None:
    missing = [MachineCannot(gap.name, gap.detail, gap.remedy) for gap in doctor.gaps(groups)]
    if missing:
        raise Problems(list(missing))
