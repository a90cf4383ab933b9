"""A plan with what a person asks before starting it: is it admitted, what it stands for, how long it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlcp.agents.cpu_quota import usable_cores
from dlcp.agents.machine_monitor import cores
from dlcp.errors import MachineCannot, Problem, encode_problem
from dlcp.model.result import RunResult
from dlcp.model.scaling import regime
from dlcp.runner.machine.admission import admit
from dlcp.runner.machine.calibration import Costs, command, costs
from dlcp.runner.machine.choose_scale import scale_that_fits
from dlcp.runner.machine.emulator_support import lacking as lacking_here
from dlcp.runner.machine.emulator_support import require_supported
from dlcp.runner.machine.job_load import FITTED_SHARE, USABLE_SHARE, Load, Machine, loads_of
from dlcp.runner.machine.lab_equivalent import sentences, stands_for, without_network
from dlcp.runner.machine.scale_down import require_declared_compute, scaled_down, sentence
from dlcp.runner.planning.check import Ready
from dlcp.runner.planning.estimate import Estimate, estimate
from dlcp.runner.planning.plan import Cell, Plan, plan
from dlcp.runner.running.execute import missing
from dlcp.runner.running.store import Invalid, Store
from dlcp.substrates.registry import traits_of

if TYPE_CHECKING:
    from dlcp.runner.lab.lab_runs import LabChoice

FEWEST_CORES = 0.1
"""With fewer, the share that a run may take (FITTED_SHARE) carries fewer than about 300 of DLCP's packets
a second at the default cost of a packet, which two servers' links of SLOWEST_BPS offer."""


@dataclass(frozen=True)
class Outline:
    """todo: cells without a result that counts. loads: what each job asks of this machine, when it emulates; costs:
    what a packet takes of it. regime: what the fabric stands for, by job; regime_words: the same as lines of text.
    scaled: what `fit` or --scale-down has done, in words; empty when nothing was asked for, or to be done. elsewhere:
    what of the results there are of another scale, in words; empty when none are. damaged: a sentence for each run of
    the plan whose stored result cannot be used, which is made again.
    """

    plan: Plan
    todo: tuple[Cell, ...]
    loads: tuple[Load, ...]
    costs: Costs
    estimate: Estimate
    regime: dict[str, dict[str, Any]]
    regime_words: tuple[str, ...]
    scaled: str = ""
    elsewhere: str = ""
    damaged: tuple[str, ...] = ()

    def data(self) -> dict[str, Any]:
        """For JSON."""
        todo = {cell.run.id for cell in self.todo}
        warnings = self.plan.ready.warnings
        return {
            "experiment": self.plan.ready.experiment.name,
            "substrate": self.plan.substrate,
            "runs": [_run_data(cell, done=cell.run.id not in todo) for cell in self.plan.cells],
            "unsupported": [asdict(each) for each in self.plan.unsupported],
            "regime": self.regime,
            "loads": [asdict(load) | {"fits": load.fits} for load in self.loads],
            "packet_cost": asdict(self.costs),
            "dilated_by": self.plan.ready.experiment.scaling.dilated_by,
            "scaled_down": self.plan.ready.experiment.scaling.scaled_down,
            "scaled": self.scaled,
            "elsewhere": self.elsewhere,
            "damaged": list(self.damaged),
            "estimate": asdict(self.estimate),
            "warnings": [encode_problem(warning, exit_code=False) for warning in warnings],
        }


def outline(
    ready: Ready,
    substrate: str,
    results: Path,
    *,
    retry_suspect: bool = False,
    scale_down: bool = False,
    lab: LabChoice | None = None,
    measured: Costs | None = None,
) -> Outline:
    """Plan an experiment. An emulated one that says `fit: machine` is dilated as far as this machine needs.

    scale_down: leave to make any other lighter when this machine cannot carry it as it is; without it that is
    MachineCannot. lab: which, on that substrate. measured: see `this_machine`. Problem when the substrate is unknown;
    Problems when the experiment does not fit the lab, or cannot be dilated (see `require_declared_compute`)."""
    traits, scaled = traits_of(substrate), ""
    emulated = traits.emulates
    of_packet, fit = measured or costs(), ready.experiment.scaling.fit is not None
    machine = this_machine(of_packet, fit=fit) if emulated else None
    if machine is not None and (scale_down or fit):
        ready, scaled = _fitted(ready, machine)
    unsupported = lacking_here(ready.schemes) if emulated else {}
    planned = plan(ready, substrate, lacking=unsupported) if lab is None else _on_lab(ready, lab)
    if emulated:
        require_supported(ready.experiment)
    loads = admit(ready, machine) if machine is not None else []
    had, invalid = Store(results, ready.experiment.name).load()
    todo = missing(planned, had, retry_suspect=retry_suspect)
    time = estimate(planned, todo, had)
    facts, words = (stands_for(ready), sentences(ready)) if traits.has_network else without_network(ready)
    return Outline(
        planned,
        tuple(todo),
        tuple(loads),
        of_packet,
        time,
        facts,
        tuple(words),
        scaled,
        _of_another_scale(planned, had),
        _damaged(planned, invalid),
    )


def this_machine(measured: Costs | None = None, *, fit: bool) -> Machine:
    """Return the cores and the cost of a packet that plans count with. measured: that cost, if not the stored one.

    fit: for an experiment that fits itself to the machine. Others' work at the time of the calibration then counts as
    cores that are not there, so that every plan chooses the same scale. No other experiment counts it: others may have
    ended long ago, and the monitors of a run see those that have not. Raises MachineCannot below FEWEST_CORES.
    """
    of_packet = measured or costs()
    others = cores() * of_packet.others_share if fit else 0.0
    usable = usable_cores()
    left = min(usable, cores() - others)
    if usable < FEWEST_CORES:
        text = f"{usable:.2g} cores may be used (CPU affinity or quota); runs need {FEWEST_CORES:g} or more"
        raise MachineCannot("this machine", text, "give this process or its container more CPU")
    if left < FEWEST_CORES:
        text = (
            f"others' work took {others:.2f} of {cores()} cores when it was calibrated; "
            f"runs need {FEWEST_CORES:g} or more"
        )
        raise MachineCannot("this machine", text, f"stop the other work, then measure again: {command()}")
    return Machine(round(left, 2), of_packet, FITTED_SHARE if fit else USABLE_SHARE)


def as_emulated(ready: Ready) -> tuple[Ready, str]:
    """An experiment as this machine emulates it, and what was done: fitted where its file says `fit: machine`; else as
    it is written, and an empty text."""
    return _fitted(ready, this_machine(fit=True)) if ready.experiment.scaling.fit else (ready, "")


def _fitted(whole: Ready, machine: Machine) -> tuple[Ready, str]:
    """An experiment at the scale at which this machine carries it, and what was done and why, in words. As it is when
    no scale fits, which `admit` then refuses."""
    scale = scale_that_fits(whole, machine)
    fit = whole.experiment.scaling.fit
    if scale is None:
        return whole, ""
    ready = scaled_down(whole, scale)
    if ready.experiment.scaling.as_written:
        return whole, f"fits this machine as it is written{_reason(whole, machine)}" if fit else ""
    require_declared_compute(whole, whole.experiment.jobs, ready.experiment.scaling)
    _require_untuned(whole, "scaling.fit" if fit else "--scale-down")
    done = "fitted to this machine" if fit else "scaled down to fit this machine"
    return ready, f"{done}: {sentence(whole, ready)}{_reason(ready, machine)}"


def _reason(ready: Ready, machine: Machine) -> str:
    """Why a scale is the one: what the dearest job takes at it, of what, and where that is from."""
    heaviest = max(loads_of(ready, machine), key=lambda load: load.cpu)
    measure = "" if machine.costs.measured else "; `dlcp run` measures it first, and may choose otherwise"
    return (
        f" (job {heaviest.job} then takes {heaviest.cpu:.2g} of {machine.cores:g} cores, at most {heaviest.usable:.2g} "
        f"may be; a packet's cost: {machine.costs.source}{measure})"
    )


def _damaged(planned: Plan, invalid: Iterable[Invalid]) -> tuple[str, ...]:
    """Say which runs of a plan have a stored result that cannot be used, and why."""
    broken = [each for each in invalid if each.path.name in planned.run_ids]
    return tuple(f"{each.path} cannot be used, so that run is made again: {each.why}" for each in broken)


def _of_another_scale(planned: Plan, had: Mapping[str, RunResult]) -> str:
    """Stored results of an experiment whose dilation or byte scale is not its plan's: they are kept, and never
    compared or averaged with the plan's."""
    scales = {
        _scale_of(cell.run.job_name, regime(cell.run.experiment, cell.run.job, {}))
        for cell in planned.cells
        if traits_of(planned.substrate).has_network
    }
    jobs = {job for job, *_ in scales}
    others = Counter(
        scale[1:]
        for run_id, result in had.items()
        if run_id not in planned.run_ids and result.substrate == planned.substrate and result.job in jobs
        if (scale := _scale_of(result.job, result.regime)) not in scales
    )
    if not others:
        return ""
    counts = ", ".join(
        f"{count} at time dilation {dilation:g} and byte scale {byte_scale:g}"
        for (dilation, byte_scale), count in sorted(others.items())
    )
    return f"results of another scale are there, too: {counts}; they stay, and are not compared with these"


def _scale_of(job: str, regime: Mapping[str, Any]) -> tuple[str, float, float]:
    """Job, dilation and byte scale."""
    return job, float(regime.get("time_dilation", 1.0)), float(regime.get("byte_scale", 1.0))


def _require_untuned(ready: Ready, where: str) -> None:
    """Refuse answers of searches on another fabric: they were made on the fabric as written, not on a slower one."""
    if searched := [choice.label for choice in ready.experiment.schemes if choice.search]:
        text = (
            f"the knobs of {', '.join(searched)} are searched for on the fabric as it is written, not on a slower one"
        )
        raise Problem(where, text, "write the slower fabric into the file, and tune that")


def _on_lab(ready: Ready, lab: LabChoice) -> Plan:
    from dlcp.runner.lab.lab_runs import few_deployments, lacking

    planned = plan(ready, "lab", where=lab.where, lacking=lacking(ready, lab))
    return few_deployments(planned) if lab.deploy else planned


def _run_data(cell: Cell, *, done: bool) -> dict[str, Any]:
    run = cell.run
    return {
        "id": run.id,
        "job": run.job_name,
        "scheme": run.scheme.scheme,
        "label": run.scheme.label,
        "repeat": run.repeat,
        "seed": run.seed,
        "done": done,
    }
