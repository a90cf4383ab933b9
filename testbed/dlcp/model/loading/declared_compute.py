"""The compute that a training workload must declare before its experiment is dilated."""

from __future__ import annotations

from dataclasses import dataclass

from dlcp.model.experiment import Scaling
from dlcp.model.workload import Training, Workload


@dataclass(frozen=True)
class UndeclaredCompute:
    """A job without declared compute. what: why a job's compute would be wrong in lab time; hint: what to do."""

    what: str
    hint: str


def undeclared_compute(workload: Workload | None, scaling: Scaling | None) -> UndeclaredCompute | None:
    """Return why a workload cannot run at a scaling; None where it can.

    Training without `compute` takes as long as this machine needs. Dilation stretches everything else,
    so that in lab time its compute would be divided by the dilation.
    """
    if not isinstance(workload, Training) or workload.compute_s is not None or scaling is None:
        return None
    if scaling.time_dilation <= 1 and scaling.fit is None:
        return None
    by = f"time_dilation {scaling.time_dilation:g}" if scaling.time_dilation > 1 else f"fit: {scaling.fit}"
    return UndeclaredCompute(
        f"workload {workload.name} declares no compute, so {by} stretches everything but its compute, "
        "which would be too short in lab time",
        f"add to {workload.name}.yaml how long an iteration computes in the lab, such as compute: 60 ms",
    )
