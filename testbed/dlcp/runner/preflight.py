"""The tools of a run are tried before the first one starts."""

from __future__ import annotations

from dlcp.errors import MachineCannot, Problems
from dlcp.model.workload import Training
from dlcp.runner import doctor
from dlcp.runner.outline import Outline


def preflight(outline: Outline) -> None:
    """Raise Problems with every gap that would make the runs of a plan fail. Nothing to run, nothing to try."""
    if not outline.todo or outline.plan.substrate != "emulate":
        return
    groups = [doctor.emulation(), doctor.native_core()]
    if any(isinstance(cell.run.workload, Training) for cell in outline.todo):
        groups.append(doctor.training_jobs())
    missing = [MachineCannot(gap.name, gap.detail, gap.remedy) for gap in doctor.gaps(groups)]
    if missing:
        raise Problems(list(missing))
