"""An experiment file checked in full: what `model` can say of it, and what only the schemes' code knows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from dlcp import schemes
from dlcp.errors import Problem, Problems
from dlcp.model.document import Document, Loc
from dlcp.model.experiment import Experiment, SchemeChoice, experiment_intent
from dlcp.model.explain import did_you_mean, explain
from dlcp.model.load import in_order, load_experiment
from dlcp.model.parts import Parts
from dlcp.model.units import WRITTEN
from dlcp.model.workload import Workload
from dlcp.paths import WORKLOADS
from dlcp.schemes.base import Scheme, UnfitError
from dlcp.switches.render import render


@dataclass(frozen=True)
class Checked:
    """experiment: None when there is any problem. schemes: by label, with their knobs set. Warnings stop nothing."""

    path: Path
    experiment: Experiment | None
    workloads: dict[str, Workload]
    schemes: dict[str, Scheme]
    problems: list[Problem]
    warnings: list[Problem]


@dataclass(frozen=True)
class Ready:
    """An experiment without a problem: what planning and running start from.

    workload_folder: where its workloads' files lie.
    """

    path: Path
    workload_folder: Path
    experiment: Experiment
    workloads: dict[str, Workload]
    schemes: dict[str, Scheme]
    warnings: list[Problem]


def check(path: Path, workloads: Path = WORKLOADS) -> Checked:
    """Every problem of an experiment file, of its workloads and of its schemes' knobs, in the file's order."""
    loaded = load_experiment(path, workloads)
    built, wrong = _build_schemes(loaded.document, loaded.parts)
    if loaded.experiment is not None and not loaded.problems and not wrong:
        wrong = _impossible(loaded.document, loaded.experiment, built)
    problems = in_order([*loaded.problems, *wrong])
    experiment = None if problems else loaded.experiment
    return Checked(path, experiment, loaded.parts.workloads, built, problems, loaded.warnings)


def ready(path: Path, workloads: Path = WORKLOADS) -> Ready:
    """The experiment of a file. Raises Problems with all of them when there are any."""
    checked = check(path, workloads)
    if checked.experiment is None:
        raise Problems(checked.problems)
    return Ready(path, workloads, checked.experiment, checked.workloads, checked.schemes, checked.warnings)


def _build_schemes(document: Document, parts: Parts) -> tuple[dict[str, Scheme], list[Problem]]:
    built: dict[str, Scheme] = {}
    problems: list[Problem] = []
    for i, choice in parts.schemes.items():
        here: Loc = ("schemes", i)
        try:
            kind = schemes.scheme_class(choice.scheme)
        except KeyError:
            hint = did_you_mean(choice.scheme, schemes.names())
            problems.append(Problem(document.where((*here, "scheme")), f"no scheme is called {choice.scheme!r}", hint))
            continue
        try:
            scheme = kind.model_validate(choice.knobs, context=WRITTEN)
        except ValidationError as error:
            problems += explain(document, error, kind, (*here, "knobs"))
            continue
        problems += _unusable(document, (*here, "knobs"), scheme, choice, parts)
        built[choice.label] = scheme
    return built, problems


def _impossible(document: Document, experiment: Experiment, built: dict[str, Scheme]) -> list[Problem]:
    """Schemes whose intent no switch can do together with what the experiment says of the switches."""
    problems = []
    for i, choice in enumerate(experiment.schemes):
        try:
            render(experiment_intent(experiment, built[choice.label].intent(experiment.port_buffer_bytes)))
        except Problem as problem:
            problems.append(Problem(document.where(("schemes", i)), problem.what, problem.hint))
        except ValidationError as error:
            problems.append(Problem(document.where(("queues",)), f"with scheme {choice.scheme}: {_facts(error)}"))
    return problems


def _unusable(document: Document, loc: Loc, scheme: Scheme, choice: SchemeChoice, parts: Parts) -> list[Problem]:
    """Knobs that are right one by one but make no intent, transport or host settings together."""
    try:
        if parts.port_buffer_bytes is not None:
            scheme.intent(parts.port_buffer_bytes)
        if parts.scaling is not None:
            scheme.hosts(parts.scaling)
            for job in parts.jobs.values():
                if job.workload in parts.workloads:
                    scheme.for_job(job, parts.workloads[job.workload]).transport(parts.scaling)
    except UnfitError as error:
        return [Problem(document.where((*loc, error.knob)), f"`{error.knob}`: {error.what}", error.hint)]
    except ValidationError as error:
        return [Problem(document.where(loc), f"scheme {choice.scheme} cannot work so: {_facts(error)}")]
    except ValueError as error:
        return [Problem(document.where(loc), f"scheme {choice.scheme} cannot work so: {error}")]
    return []


def _facts(error: ValidationError) -> str:
    return "; ".join(one["msg"].removeprefix("Value error, ") for one in error.errors())
