"""Admission: an experiment that this machine cannot carry honestly is refused, with a scale of it that fits."""

from __future__ import annotations

from dlcp.errors import MachineCannot
from dlcp.model.units import show_rate
from dlcp.runner.machine.choose_scale import scale_that_fits, scale_words
from dlcp.runner.machine.job_load import Load, Machine, loads_of
from dlcp.runner.planning.check import Ready


def admit(ready: Ready, machine: Machine) -> list[Load]:
    """The load of every job. Raises MachineCannot with the scale that this machine can carry when one is too heavy."""
    loads = loads_of(ready, machine)
    heaviest = max(loads, key=lambda load: load.cpu)
    if heaviest.fits:
        return loads
    text = (
        f"job {heaviest.job!r} offers up to {heaviest.packets_per_s / 1e3:,.0f} thousand packets a second, and "
        f"takes {heaviest.cpu:.3g} cores in the mean; of {machine.cores:g} cores a run may take {heaviest.usable:.2g}: "
        f"beyond it the machine is in the result (a packet's cost: {machine.costs.source})"
    )
    rate_bps = ready.experiment.topology.graph.slowest_host_bps
    scale = scale_that_fits(ready, machine)
    hint = "no scale of it fits: fewer hosts, less background, or a larger machine"
    if scale is not None:
        hint = f"{scale_words(ready, scale)} fits: --scale-down does that; or write it into the file's scaling"
    raise MachineCannot(f"topology.rate {show_rate(rate_bps)}", text, hint)
