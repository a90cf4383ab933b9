"""Mininet's prompt on the fabric of an experiment."""

from __future__ import annotations

from dlcp.errors import Problem, needs_extra
from dlcp.model.experiment import experiment_intent
from dlcp.model.loading.explain import did_you_mean
from dlcp.runner.machine.emulator_support import require_supported
from dlcp.runner.planning.check import Ready
from dlcp.runner.preview.preflight import preflight_emulation
from dlcp.schemes.base import hosts_for


def open_shell(ready: Ready, label: str | None, command: str | None) -> int:
    """Bring the fabric up as a scheme sets it, and hand over; returns the exit status of the command or prompt.

    label: of the scheme; None = the experiment's first. Problem when there is no such label, Problems with all that
    this machine lacks.
    """
    experiment = ready.experiment
    label = experiment.schemes[0].label if label is None else label
    if label not in ready.schemes:
        raise Problem("--scheme", f"no scheme is labelled {label!r}", did_you_mean(label, ready.schemes))
    preflight_emulation()
    require_supported(experiment)
    with needs_extra("emulate", "dlcp shell"):
        from dlcp.substrates.emulate.shell import shell
    scheme = ready.schemes[label]
    return shell(
        experiment.topology.graph,
        experiment_intent(experiment, scheme.intent(experiment.port_buffer_bytes)),
        seed=experiment.seed,
        host_settings=hosts_for([scheme], experiment.scaling),
        time_dilation=experiment.scaling.time_dilation,
        command=command,
    )
