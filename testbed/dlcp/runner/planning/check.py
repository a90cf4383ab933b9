"""An experiment file checked in full: what `model` can say of it, and what only the schemes' code knows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from dlcp import schemes
from dlcp.errors import Problem, Problems
from dlcp.model.experiment import Experiment, SchemeChoice, experiment_intent
from dlcp.model.loading.document import Document, Loc
from dlcp.model.loading.document_parts import Parts
from dlcp.model.loading.experiment_files import Loaded, in_order, load_experiment
from dlcp.model.loading.explain import did_you_mean, explain
from dlcp.model.loading.search_record import Search
from dlcp.model.units import WRITTEN
from dlcp.model.workload import Workload
from dlcp.paths import EXPERIMENTS, WORKLOADS
from dlcp.runner.planning.check_patterns import check_patterns
from dlcp.runner.planning.check_searches import check_searches
from dlcp.runner.planning.search_answers import Wanted, answers, wanted
from dlcp.schemes.base import Scheme, UnfitError, hosts_for
from dlcp.substrates import registry
from dlcp.switches.bpf.aqm_words import render


@dataclass(frozen=True)
class Checked:
    """experiment: None when there is any problem. schemes: by label, with the knobs set that all jobs share. searches:
    those that have an answer, by label and job. untuned: the others, with why. Warnings stop nothing."""

    path: Path
    experiment: Experiment | None
    workloads: dict[str, Workload]
    schemes: dict[str, Scheme]
    problems: list[Problem]
    warnings: list[Problem]
    searches: dict[tuple[str, str], Search] = field(default_factory=dict)
    untuned: list[tuple[Wanted, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Ready:
    """An experiment without a problem: what planning and running start from.

    workload_folder: where its workloads' files lie. schemes, searches, untuned: as in Checked.
    """

    path: Path
    workload_folder: Path
    experiment: Experiment
    workloads: dict[str, Workload]
    schemes: dict[str, Scheme]
    warnings: list[Problem]
    searches: dict[tuple[str, str], Search] = field(default_factory=dict)
    untuned: list[tuple[Wanted, str]] = field(default_factory=list)

    def choice(self, label: str, job_name: str) -> SchemeChoice:
        """A scheme as one job meets it: with its knobs for the job, and what a search has chosen for it."""
        choice = next(choice for choice in self.experiment.schemes if choice.label == label)
        search = self.searches.get((label, job_name))
        return choice.of_job(job_name, search.chosen if search is not None else None)


def scheme_of(choice: SchemeChoice) -> Scheme:
    """The scheme with a choice's knobs. Only after they were checked."""
    return schemes.scheme_class(choice.scheme).model_validate(choice.knobs)


def check(path: Path, workloads: Path = WORKLOADS) -> Checked:
    """Every problem of an experiment file, of its workloads and of its schemes' knobs, in the file's order."""
    loaded = check_patterns(load_experiment(path, workloads))
    built, wrong = _build_schemes(loaded.document, loaded.parts)
    if loaded.experiment is not None and not loaded.problems and not wrong:
        wrong = _impossible(loaded.document, loaded.experiment, built)
    problems = in_order([*loaded.problems, *wrong])
    if problems or loaded.experiment is None:
        return Checked(path, None, loaded.parts.workloads, built, problems, loaded.warnings)
    return _with_searches(path, loaded, built, workloads)


def _with_searches(path: Path, loaded: Loaded, built: dict[str, Scheme], folder: Path) -> Checked:
    """An experiment without a problem, and what its record says of the searches that it asks for."""
    experiment, workloads = loaded.experiment, loaded.parts.workloads
    assert experiment is not None
    searches = wanted(experiment, workloads, folder, common_substrate(built.values()))
    try:
        chosen, untuned = answers(path, experiment, searches)
    except Problems as error:
        return Checked(path, None, workloads, built, error.problems, loaded.warnings)
    labels = [choice.label for choice in experiment.schemes]
    places = {asked.choice.label: ("schemes", labels.index(asked.choice.label), "search") for asked in searches}
    wrong, warnings = [], []
    for asked in searches:
        where, name = loaded.document.where(places[asked.choice.label]), f"{asked.choice.label}, job {asked.job}"
        if all(point.unfit for point in asked.points):
            wrong.append(Problem(where, f"{name}: no point can do: {asked.points[0].unfit}", "other values"))
    for asked, why in untuned:
        where = loaded.document.where(places[asked.choice.label])
        warnings.append(Problem(where, f"{asked.choice.label} {why}, for job {asked.job}", tune_command(path)))
    for (label, job), search in chosen.items():
        if search.undecided:
            text = f"{label}, job {job}: {search.undecided} of {len(search.points)} points have no trusted runs"
            warnings.append(Problem(loaded.document.where(places[label]), text, f"again: {tune_command(path)}"))
    shown = in_order([*loaded.warnings, *warnings])
    return Checked(path, None if wrong else experiment, workloads, built, wrong, shown, chosen, untuned)


def tune_command(path: Path) -> str:
    """The command that makes the searches of an experiment's file."""
    return f"dlcp tune {path.stem if path.parent == EXPERIMENTS else path}"


def common_substrate(built: Iterable[Scheme]) -> str:
    """Where a file's runs are made unless the caller says otherwise: emulated, or where alone its schemes can run."""
    return registry.usual(needs_network=any(scheme.needs_network for scheme in built))


def ready(path: Path, workloads: Path = WORKLOADS) -> Ready:
    """The experiment of a file. Raises Problems with all of them when there are any."""
    checked = check(path, workloads)
    if checked.experiment is None:
        raise Problems(checked.problems)
    return Ready(
        path,
        workloads,
        checked.experiment,
        checked.workloads,
        checked.schemes,
        checked.warnings,
        checked.searches,
        checked.untuned,
    )


def _build_schemes(document: Document, parts: Parts) -> tuple[dict[str, Scheme], list[Problem]]:
    built: dict[str, Scheme] = {}
    problems: list[Problem] = []
    for i, choice in parts.schemes.items():
        loc: Loc = ("schemes", i)
        try:
            kind = schemes.scheme_class(choice.scheme)
        except KeyError:
            hint = did_you_mean(choice.scheme, schemes.names())
            problems.append(Problem(document.where((*loc, "scheme")), f"no scheme is called {choice.scheme!r}", hint))
            continue
        try:
            scheme = kind.model_validate(choice.knobs, context=WRITTEN)
        except ValidationError as error:
            problems += explain(document, error, kind, (*loc, "knobs"))
            continue
        searches = check_searches(document, loc, kind, choice, parts)
        problems += searches or _unusable(document, loc, kind, scheme, choice, parts)
        built[choice.label] = scheme
    return built, problems


def _impossible(document: Document, experiment: Experiment, built: dict[str, Scheme]) -> list[Problem]:
    """Schemes whose intent no switch can do together with what the experiment says of the switches."""
    problems = _hosts_apart(document, experiment, built)
    for i, choice in enumerate(experiment.schemes):
        for fabric in experiment.fabrics:
            try:
                render(experiment_intent(fabric, built[choice.label].intent(fabric.port_buffer_bytes)))
            except Problem as problem:
                problems.append(Problem(document.where(("schemes", i)), problem.what, problem.hint))
            except ValidationError as error:
                problems.append(Problem(document.where(("queues",)), f"with scheme {choice.scheme}: {_facts(error)}"))
            else:
                continue
            break  # of one kind of mistake one is enough
    return problems


def _hosts_apart(document: Document, experiment: Experiment, built: dict[str, Scheme]) -> list[Problem]:
    """Jobs that run at the same time under a scheme of their own, whose hosts would have to be set in two ways."""
    problems = []
    for name, job in experiment.jobs.items():
        for choice in experiment.schemes if job.beside_scheme is not None else ():
            both = [built[label] for label in (choice.label, job.beside_scheme or "")]
            try:
                hosts_for(both, experiment.scaling)
            except ValueError as error:
                hint = "one of them must be a scheme on DLCP's engine, which asks nothing of the hosts"
                text = f"{choice.label!r} beside {job.beside_scheme!r}: {error}"
                problems.append(Problem(document.where(("jobs", name, "beside_scheme")), text, hint))
    return problems


def _unusable(
    document: Document, here: Loc, kind: type[Scheme], scheme: Scheme, choice: SchemeChoice, parts: Parts
) -> list[Problem]:
    """Knobs that are right one by one but make no intent, transport or host settings together. Of a search any one of
    its points will do."""
    loc = (*here, "knobs")
    try:
        if parts.port_buffer_bytes is not None:
            scheme.intent(parts.port_buffer_bytes)
        if parts.scaling is not None:
            scheme.hosts(parts.scaling)
            for name, job in parts.jobs.items():
                if job.workload in parts.workloads and not choice.search:
                    values = kind.model_validate(choice.of_job(name).knobs)
                    values.for_job(job, parts.workloads[job.workload]).transport(parts.scaling)
    except UnfitError as error:
        return [Problem(document.where((*loc, error.knob)), f"`{error.knob}`: {error.what}", error.hint)]
    except ValidationError as error:
        return [Problem(document.where(loc), f"scheme {choice.scheme} cannot work so: {_facts(error)}")]
    except ValueError as error:
        return [Problem(document.where(loc), f"scheme {choice.scheme} cannot work so: {error}")]
    return []


def _facts(error: ValidationError) -> str:
    return "; ".join(entry["msg"].removeprefix("Value error, ") for entry in error.errors())
