"""`dlcp switch verify --on lab`: of an experiment the intents that the lab holds, or one intent by its own name."""

from __future__ import annotations

import shlex
from pathlib import Path

from dlcp.errors import Problem
from dlcp.model.base import OnProgress
from dlcp.model.loading.experiment_files import find_experiment
from dlcp.runner.lab.find_lab import find_lab
from dlcp.runner.lab.lab_runs import LabChoice
from dlcp.runner.planning.check import ready
from dlcp.runner.verify import Verified, intents, verify_on_lab
from dlcp.substrates.lab.fit import require_fit
from dlcp.switches.vendor.files import find_intent, load_intent

SEED = 20240607
"""Seed of an intent's probes; an experiment has its own."""


def verify_named(
    name: str, inventory: Path | None, label: str | None, *, degrade: bool, every_port: bool, on_progress: OnProgress
) -> tuple[str, list[Verified]]:
    """Its name and what was found; an intent on the whole lab, an experiment on the part that it has. Problem when
    there is neither."""
    choice = LabChoice(find_lab(inventory), degrade=degrade)
    path = _experiment(name)
    if path is None:
        intent = load_intent(find_intent(name))
        words = ["dlcp", "switch", "apply", name, "--lab", str(choice.lab.path), "--yes"]
        return intent.name, verify_on_lab(
            choice,
            [((intent.name,), intent)],
            choice.lab.graph,
            how=shlex.join(words),
            seed=SEED,
            every_port=every_port,
            on_progress=on_progress,
        )
    checked = ready(path)
    require_fit(checked.experiment, choice.lab)
    words = ["dlcp", "run", name, "--on", "lab", "--lab", str(choice.lab.path), "--deploy"]
    return checked.experiment.name, verify_on_lab(
        choice,
        intents(checked, label),
        checked.experiment.topology.graph,
        how=shlex.join(words),
        seed=checked.experiment.seed,
        every_port=every_port,
        on_progress=on_progress,
    )


def _experiment(name: str) -> Path | None:
    """The file of an experiment; None when the name is an intent's. Problem when it is neither."""
    try:
        intent = find_intent(name)
    except Problem:
        return find_experiment(name)
    if intent == Path(name) and _has_jobs(intent):
        return intent
    return None


def _has_jobs(path: Path) -> bool:
    """Return true for a file of an experiment: of the two kinds of files, only experiments have jobs."""
    return any(line.startswith("jobs:") for line in path.read_text(encoding="utf-8").splitlines())
