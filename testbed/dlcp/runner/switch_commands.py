"""`dlcp switch render` and `dlcp switch inventory`: both find files by their names and touch no switch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlcp.errors import Problem, Problems
from dlcp.model.lab.inventory_scaffold import new_inventory
from dlcp.model.loading.document import Document, read_document
from dlcp.model.loading.experiment_files import (
    experiment_names,
    find_experiment,
    load_experiment,
    load_topology,
    topology_names,
)
from dlcp.model.loading.explain import did_you_mean
from dlcp.model.topology import Graph
from dlcp.runner.planning.check_patterns import check_patterns
from dlcp.switches.vendor.files import example_device, find_intent, load_device, load_intent
from dlcp.switches.vendor.render import Rendered, render
from dlcp.switches.vendor.systems import load_system, system_names


def render_intent(intent: str, system: str | None, device_file: Path | None, *, degrade: bool = False) -> Rendered:
    """An intent, by name or path, for a device: that of a file, or the example of a system.

    degrade: whatever the intent says, do what the system declares instead of what it lacks. Raises Problem or Problems
    when anything is unknown or wrong, or the device cannot do the intent.
    """
    wanted = load_intent(find_intent(intent))
    if degrade:
        wanted = wanted.model_copy(update={"on_unsupported": "degrade"})
    if device_file is None and system is None:
        hint = f"{did_you_mean('', system_names())}; or --device, a file as switch_configs/<os>/example.yaml"
        raise Problem("--os", "say for which switch system", hint)
    loaded = None if system is None else load_system(system)
    if device_file is None:
        assert loaded is not None
        device = example_device(loaded)
    else:
        device = load_device(device_file)
    return render(wanted, device, system=loaded)


def make_inventory(name: str, facts: Path | None) -> dict[str, Any]:
    """The inventory of a topology (name) or of an experiment (name or file). facts: an inventory, in whole or part.

    Raises Problem or Problems when either is wrong.
    """
    topology, graph = _topology(name)
    known = None if facts is None else _facts(facts)
    return new_inventory(Path(name).stem, topology, graph, known)


def _topology(name: str) -> tuple[str | Mapping[str, Any], Graph]:
    if name in topology_names():
        topology, problems = load_topology(name)
        if topology is None:
            raise Problems(problems)
        return name, topology.graph
    if name not in experiment_names() and not Path(name).is_file():
        known = [*topology_names(), *experiment_names()]
        raise Problem(name, "neither a topology nor an experiment, nor a file of one", did_you_mean(name, known))
    path = find_experiment(name)
    raw = read_document(path).get(("topology",))
    loaded = check_patterns(load_experiment(path))
    if loaded.experiment is None:
        raise Problems(loaded.problems)
    if isinstance(raw, str) and raw in topology_names():
        return raw, loaded.experiment.topology.graph
    return loaded.document.get(("topology",)), loaded.experiment.topology.graph


def _facts(path: Path) -> Document:
    document = read_document(path)
    if document.data is None:
        raise Problems(document.problems)
    return document
