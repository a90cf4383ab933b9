"""`dlcp switch inventory`: the topology of a name or an experiment, and people's facts, from files."""

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


def make_inventory(name: str, facts: Path | None) -> dict[str, Any]:
    """The inventory of a topology (name) or of an experiment (name or file). facts: an inventory, in whole or part.

    Raises Problem or Problems when either is wrong.
    """
    topology, graph = _topology(name)
    known = None if facts is None else _facts(facts)
    return new_inventory(Path(name).stem, topology, graph, known)


def _topology(name: str) -> tuple[str | Mapping[str, Any], Graph]:
    if name in topology_names():
        found, problems = load_topology(name)
        if found is None:
            raise Problems(problems)
        return name, found.graph
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
