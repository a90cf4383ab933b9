"""The scale that an experiment needs so that this machine carries it: time dilation first, a larger byte scale beyond
that (runner.machine.scale_down applies it)."""

from __future__ import annotations

from dlcp.model.units import show_rate
from dlcp.runner.machine.job_load import Machine, loads_of
from dlcp.runner.machine.scale_down import Scale, scaled_down
from dlcp.runner.planning.check import Ready
from dlcp.runner.planning.estimate import job_s

READABLE = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
"""Factors that a person can multiply with in the head; and their tenfolds."""
MOST_TENFOLDS = 5
"""Tenfold steps of the factors: from 100 Gbit/s down to SLOWEST_BPS."""
SLOWEST_BPS = 1e6
"""Links are scaled down no further: a packet then takes 12 ms."""
LONGEST_RUN_S = 180.0
"""Nothing is dilated so far that one run is expected to take longer: fifty such runs are an afternoon."""


def scale_words(ready: Ready, scale: Scale) -> str:
    """Describe an experiment at a scale: its dilation, its byte_scale where that changes, its links."""
    scaling = ready.experiment.scaling
    words = [f"time_dilation {scaling.time_dilation * scale.dilation:g}"] if scale.dilation != 1 else []
    words += [f"byte_scale {scaling.byte_scale * scale.byte_scale:g}"] if scale.byte_scale != 1 else []
    rate_bps = ready.experiment.topology.graph.slowest_host_bps / scale.slower
    return f"{' and '.join(words) or 'the file as it is'} with links of {show_rate(rate_bps)}"


def scale_that_fits(ready: Ready, machine: Machine) -> Scale | None:
    """The least scale of readable factors at which this machine carries every job: dilation, as far as a run is not
    expected to take longer than LONGEST_RUN_S; beyond that a larger byte scale. None when links would be slower than
    SLOWEST_BPS before it fits."""
    needed = max(load.cpu / load.usable for load in loads_of(ready, machine))
    if needed <= 1:
        return Scale()
    factors = [step * 10.0**decade for decade in range(MOST_TENFOLDS) for step in READABLE]
    dilations = [factor for factor in factors if factor == 1 or _bearable(ready, factor)]
    scales = [Scale(dilation) for dilation in dilations]
    scales += [Scale(dilations[-1], byte_scale) for byte_scale in factors[1:]]
    rate_bps = ready.experiment.topology.graph.slowest_host_bps
    for scale in scales:
        if scale.slower < needed:  # no load sinks by more than its scale
            continue
        if rate_bps / scale.slower < SLOWEST_BPS:
            return None
        if all(load.fits for load in loads_of(scaled_down(ready, scale), machine)):
            return scale
    return None


def _bearable(ready: Ready, dilation: float) -> bool:
    """Return true if links are fast enough at a dilation, and the longest run short enough."""
    experiment = ready.experiment
    longest_s = max(job_s(job, ready.workloads[job.workload], experiment) for job in experiment.jobs.values())
    fast_enough = experiment.topology.graph.slowest_host_bps / dilation >= SLOWEST_BPS
    return fast_enough and longest_s * dilation <= LONGEST_RUN_S
