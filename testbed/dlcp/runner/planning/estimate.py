"""How long a plan takes: from runs that were made before where there are any, else from the ideal and a margin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dlcp.agents.job_spec import plan_job
from dlcp.model.experiment import Experiment
from dlcp.model.result import RunResult
from dlcp.model.run import Run
from dlcp.model.workload import Job, Workload
from dlcp.patterns import pattern_of
from dlcp.runner.planning.plan import Cell, Plan
from dlcp.substrates.ideal import Transfer, ideal_communication_s
from dlcp.substrates.registry import traits_of

SET_UP_S = 1.5
"""Building and emptying a fabric, starting its agents, collecting (measured: the mean of 923 runs)."""
OVER_IDEAL = 1.1
"""A job's time over that of compute and communication one after the other, when nothing is known yet: measured 0.7 to
1.3 over DLCP's engine and ByteScheduler, model by model, 1.3 to 1.6 over TCP."""
UNKNOWN_STEP_S = 0.004
"""The same in one process, of each iteration (four workers of a small model took 2 to 4 ms)."""
UNKNOWN_COMPUTE_S = 0.05
"""An iteration's compute of a training script that does not declare it: eight workers of a small CNN on two cores."""
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Estimate:
    """seconds: the expected time. at_most_s: when every run meets its time limit. measured: runs it is based on."""

    seconds: float
    at_most_s: float
    measured: int


def estimate(plan: Plan, todo: list[Cell], results: dict[str, RunResult]) -> Estimate:
    """For the cells that are still to be made, given the results that there are."""
    known = _measured(plan, results)
    times = [known.get((cell.run.job_name, cell.run.scheme.label), expected_s(cell.run)) for cell in todo]
    limit_s, measured = plan.ready.experiment.time_limit_s, len(results) if known else 0
    room = traits_of(plan.substrate).at_once
    if room is not None:
        at_once = min(room(), max(1, len(todo)))
        set_up_s = SET_UP_S if todo else 0.0
        return Estimate(sum(times) / at_once + set_up_s, limit_s * len(todo) / at_once + set_up_s, measured)
    return Estimate(sum(times) + SET_UP_S * len(todo), (limit_s + SET_UP_S) * len(todo), measured)


def guess_s(cells: Iterable[Cell]) -> float:
    """Duration of runs that are made one after the other, nothing of them measured."""
    return sum(expected_s(cell.run) + SET_UP_S for cell in cells)


def expected_s(run: Run) -> float:
    """A run's time before anything was measured, until the last of its jobs ends; never more than its time limit."""
    if not traits_of(run.substrate).has_network:
        return min(UNKNOWN_STEP_S * run.job.iterations, run.experiment.time_limit_s)
    jobs = [(run.job, run.workload), *((tenant.job, tenant.workload) for tenant in run.tenants)]
    return min(max(job_s(job, workload, run.experiment) for job, workload in jobs), run.experiment.time_limit_s)


def job_s(job: Job, workload: Workload, experiment: Experiment) -> float:
    """A job's expected time if nobody else is there, in emulated seconds."""
    spec = plan_job("", job, workload, experiment.scaling, seed=0)
    compute_s = spec.compute_s or UNKNOWN_COMPUTE_S
    size_bytes = spec.elements * FLOAT_BYTES
    pattern = pattern_of(job.pattern)
    share = pattern.share_of_journey(job)
    moved = [Transfer(source, sink, size_bytes * share) for source, sink in pattern.journeys(job)]
    moved_s = ideal_communication_s(experiment.topology.graph, moved)
    return job.iterations * (compute_s + moved_s) * OVER_IDEAL


def _measured(plan: Plan, results: dict[str, RunResult]) -> dict[tuple[str, str], float]:
    """(job, label) → mean completion time of this plan's runs that were made."""
    times: dict[tuple[str, str], list[float]] = {}
    for run_id, result in results.items():
        took_s = result.statistics.get(plan.substrate, {}).get("took_s", result.jct_s)
        if run_id in plan.run_ids and took_s is not None:
            times.setdefault((result.job, result.label), []).append(took_s)
    return {cell: sum(values) / len(values) for cell, values in times.items()}
