"""Interactive shells: Mininet's prompt on the fabric of an experiment, and a controller of a lab of namespaces."""

from __future__ import annotations

from dlcp.errors import Problem, needs_extra
from dlcp.model.experiment import experiment_intent
from dlcp.model.loading.experiment_files import topology_names
from dlcp.model.loading.explain import did_you_mean
from dlcp.runner.machine.emulator_support import require_supported
from dlcp.runner.planning.check import Ready
from dlcp.runner.preview.preflight import preflight_emulation, preflight_lab_demo
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


def open_lab_shell(topology: str | None, command: str | None) -> int:
    """The exit status of the command or shell. topology: a name in testbed/topologies; None = the usual one.

    Raises Problem when there is no such topology, Problems with all that this machine lacks.
    """
    from dlcp.substrates.namespace_lab.namespace_lab import DEFAULT_TOPOLOGY
    from dlcp.substrates.namespace_lab.shell import lab_shell

    name = topology or DEFAULT_TOPOLOGY
    if name not in topology_names():
        raise Problem("topology", f"there is none called {name!r}", did_you_mean(name, topology_names()))
    if command is not None and not command.strip():
        raise Problem("dlcp lab shell -c", "the command is empty", "such as: -c 'ansible -i $DLCP_LAB -m ping all'")
    preflight_lab_demo()
    return lab_shell(name, command)
