"""Experiment, topology and workload files → checked data, with every problem of every file named by file:line:col."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from dlcp.errors import Problem
from dlcp.model.experiment import Experiment
from dlcp.model.loading.check_experiment import check_parts
from dlcp.model.loading.check_topology import check_topology
from dlcp.model.loading.check_workload import check_sizes, check_workload
from dlcp.model.loading.document import Document, Loc, read_document
from dlcp.model.loading.document_parts import Parts, collect
from dlcp.model.loading.explain import did_you_mean, validate
from dlcp.model.loading.notes import Notes
from dlcp.model.sizes import SizeTable
from dlcp.model.topology import Topology, TopologyKind
from dlcp.model.workload import Constant, Incast, Poisson, Workload
from dlcp.paths import EXPERIMENTS, TOPOLOGIES, WORKLOADS

SIZES_FOLDER = "cdf"
"""Subfolder of a folder of workloads, with the tables of flow sizes."""


@dataclass(frozen=True)
class Loaded:
    """An experiment file after loading.

    experiment: None when there is any problem. parts: what could be read all the same. Warnings do not stop a run.
    """

    document: Document
    experiment: Experiment | None
    parts: Parts
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)


def find_experiment(name: str) -> Path:
    """A path as it is, or the name of a file in testbed/experiments. Problem when there is neither."""
    path = Path(name)
    if path.is_file():
        return path
    named = EXPERIMENTS / f"{name}.yaml"
    if path.name == name and named.is_file():
        return named
    raise Problem(name, "no such experiment: neither a file nor a name", did_you_mean(name, experiment_names()))


def experiment_names() -> list[str]:
    """Names of the experiments that come with the toolkit."""
    return sorted(file.stem for file in EXPERIMENTS.glob("*.yaml"))


def workload_names(folder: Path = WORKLOADS) -> list[str]:
    """Names of all workloads of a folder."""
    return sorted(file.stem for file in folder.glob("*.yaml"))


def sizes_names(folder: Path = WORKLOADS) -> list[str]:
    """Names of all tables of flow sizes in a folder of workloads."""
    return sorted(file.stem for file in (folder / SIZES_FOLDER).glob("*.yaml"))


def topology_names() -> list[str]:
    """Names of the topologies that come with the toolkit."""
    return sorted(file.stem for file in TOPOLOGIES.glob("*.yaml"))


def load_experiment(path: Path, workloads: Path = WORKLOADS) -> Loaded:
    """Load and check an experiment file. workloads: the folder that holds <workload>.yaml.

    Scheme names and knobs are not checked here, for they need the schemes' code: see runner.planning.check.
    """
    document = read_document(path)
    if document.data is None:
        return Loaded(document, None, Parts(), list(document.problems))
    missing = _graft_topology(document)
    experiment, problems = validate(document, Experiment)
    if missing and not document.grafts:  # that a name is no mapping only follows from it
        problems = [problem for problem in problems if problem.where != document.where(("topology",))]
    parts = collect(document)
    used, workload_problems = _workloads(document, parts, workloads)
    tables, sizes_problems = _sizes(document, parts, workloads)
    parts = replace(parts, workloads=used)
    wrong, warnings = check_parts(document, parts)
    problems = [*document.problems, *missing, *problems, *workload_problems, *sizes_problems, *wrong]
    if experiment is not None:
        experiment = _with_sizes(experiment, tables)
    return Loaded(document, None if problems else experiment, parts, in_order(problems), in_order(warnings))


def load_workload(name: str, folder: Path = WORKLOADS) -> tuple[Workload | None, list[Problem]]:
    """workloads/<name>.yaml, or None and every problem that it has, with its own lines."""
    document = read_document(folder / f"{name}.yaml")
    if document.data is None:
        return None, document.problems
    workload, problems = validate(document, Workload)
    problems = [*document.problems, *problems]
    if workload is not None:
        problems += check_workload(document, workload, folder)
    return (None if problems else workload), in_order(problems)


def load_sizes(name: str, folder: Path = WORKLOADS) -> tuple[SizeTable | None, list[Problem]]:
    """cdf/<name>.yaml of a folder of workloads, or None and every problem that it has, with its own lines."""
    document = read_document(folder / SIZES_FOLDER / f"{name}.yaml")
    if document.data is None:
        return None, document.problems
    table, problems = validate(document, SizeTable)
    problems = [*document.problems, *problems]
    if table is not None:
        problems += check_sizes(document, table)
    return (None if problems else table), in_order(problems)


def load_topology(name: str) -> tuple[TopologyKind | None, list[Problem]]:
    """testbed/topologies/<name>.yaml, or None and every problem that it has, with its own lines."""
    document = read_document(TOPOLOGIES / f"{name}.yaml")
    around = Document(document.path, document.shown_path, {})
    if document.data is None:
        return None, document.problems
    around.graft("topology", document)
    topology, problems = validate(around, Topology, ("topology",))
    notes = Notes(around)
    if topology is not None:
        check_topology(notes, topology)
    problems = [*document.problems, *problems, *notes.problems]
    return (None if problems else topology), in_order(problems)


def in_order(problems: list[Problem]) -> list[Problem]:
    """Each problem once, by file, line and column."""

    def place(problem: Problem) -> tuple[str, int, int]:
        parts = problem.where.rsplit(":", 2)
        if len(parts) == 3 and parts[1].isdigit() and parts[2].isdigit():
            return parts[0], int(parts[1]), int(parts[2])
        return problem.where, 0, 0

    unique = {(problem.where, problem.what): problem for problem in problems}
    return sorted(unique.values(), key=place)


def _graft_topology(document: Document) -> list[Problem]:
    """Put a topology's file in the place of its name or path; what is wrong when there is none, or it cannot be read.

    A name is one of testbed/topologies; what has a slash or ends in .yaml is a path, from the experiment's folder on.
    """
    named = document.get(("topology",))
    if not isinstance(named, str):
        return []
    is_path = "/" in named or named.endswith(".yaml")
    file = document.path.parent / named if is_path else TOPOLOGIES / f"{named}.yaml"
    where = document.where(("topology",))
    if not file.is_file():
        if is_path:
            return [Problem(where, f"there is no file {named}", "a path starts from this file's folder")]
        hint = did_you_mean(named, topology_names())
        return [Problem(where, f"no topology is called {named!r}", f"{hint}; or a path, such as ./fabric.yaml")]
    other = read_document(file)
    if other.data is None:
        return list(other.problems)
    document.graft("topology", other)
    return list(other.problems)


def _workloads(document: Document, parts: Parts, folder: Path) -> tuple[dict[str, Workload], list[Problem]]:
    """The workloads that the jobs name, readable jobs or not, and what is wrong with the names or the files."""
    workloads: dict[str, Workload] = {}
    problems: list[Problem] = []
    known = workload_names(folder)
    for job_name in parts.job_names:
        name = document.get(("jobs", job_name, "workload"))
        if not isinstance(name, str):
            continue
        if name not in known:
            where = document.where(("jobs", job_name, "workload"))
            hint = did_you_mean(name, known) or f"there is no workload in {folder}"
            problems.append(Problem(where, f"no workload is called {name!r}", hint))
            continue
        workload, wrong = load_workload(name, folder)
        problems += wrong
        if workload is not None:
            workloads[name] = workload
    return workloads, problems


def _named_sizes(document: Document, parts: Parts) -> Iterator[Loc]:
    """Where a table of flow sizes is named: in the experiment's background, and in its jobs' own."""
    for stem in (("background",), *(("jobs", name, "background") for name in parts.job_names)):
        entries = document.get(stem)
        for i in range(len(entries) if isinstance(entries, list) else 0):
            if isinstance(document.get((*stem, i, "sizes")), str):
                yield (*stem, i, "sizes")


def _sizes(document: Document, parts: Parts, folder: Path) -> tuple[dict[str, SizeTable], list[Problem]]:
    """The tables that the background names, and what is wrong with the names or the files."""
    tables: dict[str, SizeTable] = {}
    problems: list[Problem] = []
    known = sizes_names(folder)
    for loc in _named_sizes(document, parts):
        name = document.get(loc)
        if name not in known:
            hint = did_you_mean(name, known) or f"there is no table in {folder / SIZES_FOLDER}"
            where = document.where(loc)
            problems.append(Problem(where, f"no table of flow sizes is called {name!r}", hint))
            continue
        table, wrong = load_sizes(name, folder)
        problems += wrong
        if table is not None:
            tables[name] = table
    return tables, problems


def _with_sizes(experiment: Experiment, tables: dict[str, SizeTable]) -> Experiment:
    """The experiment with every table in the place that waits for it."""

    def filled(entries: tuple[Incast | Poisson | Constant, ...]) -> tuple[Incast | Poisson | Constant, ...]:
        return tuple(
            entry.model_copy(update={"table": tables.get(entry.sizes)}) if isinstance(entry, Poisson) else entry
            for entry in entries
        )

    jobs = {
        name: job if job.background is None else job.model_copy(update={"background": filled(job.background)})
        for name, job in experiment.jobs.items()
    }
    return experiment.model_copy(update={"background": filled(experiment.background), "jobs": jobs})
