"""An experiment made lighter, so that this machine carries it: dilated first, its bytes scaled second.

Dilation (`runner.machine.dilation`) keeps all that a transport can see, and takes as much longer. A larger byte scale
keeps the seconds: links are slower and messages smaller by one factor, what is counted in packets stays (port buffers,
buckets, bursts, PFC's thresholds), and so does every time; there are fewer packets a second and fewer buckets an
iteration. With links slower by as much as byte_scale is larger, the lab that the fabric stands for has the same rate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from dlcp.errors import Problem, Problems
from dlcp.model.buckets import small_bucket
from dlcp.model.experiment import Experiment, Scaling
from dlcp.model.loading.declared_compute import undeclared_compute
from dlcp.model.units import show_rate
from dlcp.patterns import pattern_of
from dlcp.runner.machine.dilation import dilated
from dlcp.runner.planning.check import Ready


@dataclass(frozen=True)
class Scale:
    """Factors beyond what a file says. dilation: of all times. byte_scale: of the bytes that one emulated byte stands
    for. Links are slower by both."""

    dilation: float = 1.0
    byte_scale: float = 1.0

    @property
    def slower(self) -> float:
        """By how much links are slower."""
        return self.dilation * self.byte_scale


AS_WRITTEN = Scale()


def scaled_down(ready: Ready, scale: Scale) -> Ready:
    """The experiment at a scale. Its warnings are those of the file, and of buckets that have become small."""
    if scale == AS_WRITTEN:
        return ready
    experiment = _fewer_bytes(ready.experiment, scale.byte_scale)
    experiment = dilated(experiment, scale.dilation)
    return replace(ready, experiment=experiment, warnings=[*ready.warnings, *_new_warnings(ready, experiment)])


def require_declared_compute(ready: Ready, jobs: Iterable[str], scaling: Scaling) -> None:
    """Raise Problems with those of an experiment's jobs that cannot run at a scaling, as their compute is undeclared.

    The scaling is that of the experiment after it was dilated.
    """
    reasons = {
        name: undeclared_compute(ready.workloads[ready.experiment.jobs[name].workload], scaling) for name in jobs
    }
    problems = [
        Problem(f"{ready.path}: job {name}", reason.what, reason.hint) for name, reason in reasons.items() if reason
    ]
    if problems:
        raise Problems(problems)


def sentence(before: Ready, after: Ready) -> str:
    """Describe what was scaled and what stays as it is, for a person; empty when nothing was scaled."""
    scaling = after.experiment.scaling
    parts = []
    if scaling.dilated_by != 1:
        parts.append(
            f"time dilation {scaling.time_dilation:g} (written: {before.experiment.scaling.time_dilation:g}), so every "
            f"emulated time takes {scaling.dilated_by:g} times as long, and packets, messages and buffers stay"
        )
    if scaling.scaled_down != 1:
        unscaled = [name for name, job in after.experiment.jobs.items() if not job.byte_scaled]
        longer = f" ({', '.join(unscaled)} is not byte-scaled: its communication takes longer)" if unscaled else ""
        parts.append(f"byte_scale {scaling.byte_scale:g} (written: {before.experiment.scaling.byte_scale:g}){longer}")
    if not parts:
        return ""
    old_bps, new_bps = (side.experiment.topology.graph.slowest_host_bps for side in (before, after))
    return f"{'; '.join(parts)}; links {show_rate(old_bps)} → {show_rate(new_bps)}"


def _fewer_bytes(experiment: Experiment, factor: float) -> Experiment:
    """Every link's rate ÷ factor and byte_scale × factor; the background's rates ÷ factor, its bursts factor times less
    often."""
    fields = experiment.model_dump()
    slow = {name: _slower(fields[name], factor) for name in ("topology", "faults", "background")}
    slow["jobs"] = {name: _lighter(job, factor) for name, job in fields["jobs"].items()}
    scaling = fields["scaling"]
    scaling |= {"byte_scale": scaling["byte_scale"] * factor, "scaled_down": scaling["scaled_down"] * factor}
    return Experiment.model_validate(fields | slow | {"scaling": scaling})


def _lighter(job: dict[str, Any], factor: float) -> dict[str, Any]:
    """A job whose own byte_scale, background and faults follow, where it has them."""
    scale = job["byte_scale"]
    slower = {name: _slower(job[name], factor) for name in ("faults", "background")}
    return job | slower | {"byte_scale": None if scale is None else scale * factor}


def _slower(value: Any, factor: float) -> Any:
    """Rates ÷ factor, and the interval of bursts × factor, wherever they stand."""
    if isinstance(value, dict):
        return {key: _scaled(key, item, factor) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_slower(item, factor) for item in value)
    return value


def _scaled(key: str, value: Any, factor: float) -> Any:
    if key.endswith("_bps") and value is not None:
        return value / factor
    return value * factor if key == "interval_s" else _slower(value, factor)


def _new_warnings(ready: Ready, experiment: Experiment) -> list[Problem]:
    """Buckets that the larger byte_scale has made too small, and were not before."""
    warnings = []
    for name, job in experiment.jobs.items():
        workload = ready.workloads[job.workload]
        pieces = pattern_of(job.pattern).pieces(len(job.workers))
        small = small_bucket(job, workload, experiment.scaling, pieces)
        if small is not None and small_bucket(job, workload, ready.experiment.scaling, pieces) is None:
            where = f"{ready.path}: job {name}, scaled down by {experiment.scaling.scaled_down:g}"
            warnings.append(Problem(where, small.what, small.hint))
    return warnings
