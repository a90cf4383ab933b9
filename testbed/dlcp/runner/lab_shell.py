"""A shell in a lab of namespaces."""

from __future__ import annotations

from dlcp.errors import Problem
from dlcp.model.loading.experiment_files import topology_names
from dlcp.model.loading.explain import did_you_mean
from dlcp.runner.preview.preflight import preflight_lab_demo
from dlcp.substrates.namespace_lab.namespace_lab import DEFAULT_TOPOLOGY
from dlcp.substrates.namespace_lab.shell import lab_shell


def open_lab_shell(topology: str | None, command: str | None) -> int:
    """The exit status of the command or shell. topology: a name in testbed/topologies; None = the usual one.

    Raises Problem when there is no such topology, Problems with all that this machine lacks.
    """
    name = topology or DEFAULT_TOPOLOGY
    if name not in topology_names():
        raise Problem("topology", f"there is none called {name!r}", did_you_mean(name, topology_names()))
    if command is not None and not command.strip():
        raise Problem("dlcp lab shell -c", "the command is empty", "such as: -c 'ansible -i $DLCP_LAB -m ping all'")
    preflight_lab_demo()
    return lab_shell(name, command)
