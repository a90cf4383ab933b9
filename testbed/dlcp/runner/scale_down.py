"""An experiment made lighter, so that this machine carries it: slower links, fewer bytes, the same seconds.

What is counted in packets stays (port buffers, buckets, bursts, PFC's thresholds), and so does every time (compute,
delays, timers); there are fewer packets a second and fewer buckets an iteration. With links slower by as much as
byte_scale is larger, the lab that the fabric stands for has the same rate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dlcp.errors import Problem
from dlcp.model.buckets import small_bucket
from dlcp.model.experiment import Experiment
from dlcp.model.units import show_rate
from dlcp.runner.check import Ready


def scaled_down(ready: Ready, factor: float) -> Ready:
    """The experiment with every link's rate ÷ factor and byte_scale × factor; the background's rates ÷ factor, its
    bursts factor times less often. Its warnings are those of the file, and of buckets that have become small.
    """
    whole = ready.experiment.model_dump()
    slow = {name: _slower(whole[name], factor) for name in ("topology", "faults", "background")}
    slow["jobs"] = {name: _lighter(job, factor) for name, job in whole["jobs"].items()}
    scaling = whole["scaling"]
    scaling |= {"byte_scale": scaling["byte_scale"] * factor, "scaled_down": factor}
    experiment = Experiment.model_validate(whole | slow | {"scaling": scaling})
    return replace(ready, experiment=experiment, warnings=[*ready.warnings, *_new_warnings(ready, experiment)])


def sentence(before: Ready, after: Ready) -> str:
    """What was done, for the person who gave leave."""
    factor = after.experiment.scaling.scaled_down
    old_bps, new_bps = (one.experiment.topology.graph.slowest_host_bps for one in (before, after))
    rates = f"{show_rate(old_bps)} to {show_rate(new_bps)}"
    scales = f"{before.experiment.scaling.byte_scale:g} to {after.experiment.scaling.byte_scale:g}"
    thinner = after.experiment.background or any(job.background for job in after.experiment.jobs.values())
    background = "; background traffic is as much thinner" if thinner else ""
    unscaled = [name for name, job in after.experiment.jobs.items() if not job.byte_scaled]
    longer = f"; {', '.join(unscaled)} is not byte-scaled, so its communication takes longer" if unscaled else ""
    return (
        f"scaled down by {factor:g} to fit this machine: links from {rates}, byte_scale from {scales}, so that "
        f"seconds and the lab's {show_rate(after.experiment.scaling.lab_rate_bps)} stay; buffers, buckets and bursts "
        f"keep their packets{background}{longer}"
    )


def _lighter(job: dict[str, Any], factor: float) -> dict[str, Any]:
    """A job whose own byte_scale, background and faults follow, where it has them."""
    scale = job["byte_scale"]
    own = {name: _slower(job[name], factor) for name in ("faults", "background")}
    return job | own | {"byte_scale": None if scale is None else scale * factor}


def _slower(value: Any, factor: float) -> Any:
    """Rates ÷ factor, and the interval of bursts × factor, wherever they stand."""
    if isinstance(value, dict):
        return {key: _scaled(key, one, factor) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_slower(one, factor) for one in value)
    return value


def _scaled(key: str, value: Any, factor: float) -> Any:
    if key.endswith("_bps") and value is not None:
        return value / factor
    return value * factor if key == "interval_s" else _slower(value, factor)


def _new_warnings(ready: Ready, experiment: Experiment) -> list[Problem]:
    """Buckets that the larger byte_scale has made too small, and were not before."""
    found = []
    for name, job in experiment.jobs.items():
        workload = ready.workloads[job.workload]
        small = small_bucket(job, workload, experiment.scaling)
        if small is not None and small_bucket(job, workload, ready.experiment.scaling) is None:
            where = f"{ready.path}: job {name}, scaled down by {experiment.scaling.scaled_down:g}"
            found.append(Problem(where, small.what, small.hint))
    return found
