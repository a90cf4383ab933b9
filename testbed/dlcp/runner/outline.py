"""A plan with what a person asks before starting it: is it admitted, what it stands for, how long it takes."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlcp.errors import Problem
from dlcp.runner import scale_down as scaling_down
from dlcp.runner.admission import Load, Machine, admit, factor_that_fits, loads_of
from dlcp.runner.calibration import Costs, costs
from dlcp.runner.check import Ready
from dlcp.runner.estimate import Estimate, estimate
from dlcp.runner.execute import missing
from dlcp.runner.plan import IN_PROCESS, Cell, Plan, plan
from dlcp.runner.stands_for import sentences, stands_for, without_network
from dlcp.runner.store import Store
from dlcp.runner.supported import lacking as lacking_here
from dlcp.runner.supported import require_supported

if TYPE_CHECKING:
    from dlcp.runner.lab_runs import LabChoice


@dataclass(frozen=True)
class Outline:
    """todo: cells without a result that counts. loads: what each job asks of this machine, when it emulates; costs:
    what a packet takes of it. regime: what the fabric stands for, by job; regime_words: the same as lines of text.
    scaled: what --scale-down has done, in words; empty when nothing was to be done.
    """

    plan: Plan
    todo: tuple[Cell, ...]
    loads: tuple[Load, ...]
    costs: Costs
    estimate: Estimate
    regime: dict[str, dict[str, Any]]
    regime_words: tuple[str, ...]
    scaled: str = ""

    def data(self) -> dict[str, Any]:
        """For JSON."""
        todo = {cell.run.id for cell in self.todo}
        warnings = self.plan.ready.warnings
        return {
            "experiment": self.plan.ready.experiment.name,
            "substrate": self.plan.substrate,
            "runs": [_run_data(cell, done=cell.run.id not in todo) for cell in self.plan.cells],
            "unsupported": [asdict(one) for one in self.plan.unsupported],
            "regime": self.regime,
            "loads": [asdict(load) | {"fits": load.fits} for load in self.loads],
            "packet_cost": asdict(self.costs),
            "scaled_down": self.plan.ready.experiment.scaling.scaled_down,
            "scaled": self.scaled,
            "estimate": asdict(self.estimate),
            "warnings": [{"where": one.where, "what": one.what, "hint": one.hint} for one in warnings],
        }


def outline(
    ready: Ready,
    substrate: str,
    results: Path,
    *,
    retry_suspect: bool = False,
    scale_down: bool = False,
    lab: LabChoice | None = None,
) -> Outline:
    """Plan an experiment. scale_down: leave to make it lighter when this machine cannot carry it as it is; without it
    that is MachineCannot. lab: which, on that substrate. Problem when the substrate is unknown; Problems when the
    experiment does not fit the lab."""
    machine = this_machine()
    emulated, scaled = substrate == "emulate", ""
    if emulated and scale_down:
        factor = factor_that_fits(loads_of(ready, machine), ready.experiment.topology.graph.slowest_host_bps)
        if factor is not None and factor > 1:
            whole, ready = ready, scaling_down.scaled_down(ready, factor)
            scaled = scaling_down.sentence(whole, ready)
            _require_untuned(whole)
    here = lacking_here(ready.schemes) if emulated else {}
    planned = plan(ready, substrate, lacking=here) if lab is None else _on_lab(ready, lab)
    loads = admit(ready, machine) if emulated else []
    if emulated:
        require_supported(ready.experiment)
    had, _ = Store(results, ready.experiment.name).load()
    todo = missing(planned, had, retry_suspect=retry_suspect)
    time = estimate(planned, todo, had)
    facts, words = without_network(ready) if substrate == IN_PROCESS else (stands_for(ready), sentences(ready))
    return Outline(planned, tuple(todo), tuple(loads), machine.costs, time, facts, tuple(words), scaled)


def this_machine() -> Machine:
    """What the load of runs is held against."""
    return Machine(len(os.sched_getaffinity(0)), costs())


def _require_untuned(ready: Ready) -> None:
    """What was searched for on the fabric as it is written does not hold on a slower one."""
    if searched := [choice.label for choice in ready.experiment.schemes if choice.search]:
        what = (
            f"the knobs of {', '.join(searched)} are searched for on the fabric as it is written, not on a slower one"
        )
        raise Problem("--scale-down", what, "write the slower fabric into the file, and tune that")


def _on_lab(ready: Ready, lab: LabChoice) -> Plan:
    from dlcp.runner.lab_runs import few_deployments, lacking

    planned = plan(ready, "lab", where=lab.where, lacking=lacking(ready, lab))
    return few_deployments(planned) if lab.deploy else planned


def _run_data(cell: Cell, *, done: bool) -> dict[str, Any]:
    run = cell.run
    return {
        "id": run.id, "job": run.job_name, "scheme": run.scheme.scheme, "label": run.scheme.label,
        "repeat": run.repeat, "seed": run.seed, "done": done,
    }  # fmt: skip
