"""Checks of a scheme's values for single jobs and for searches, value by value."""

from __future__ import annotations

from math import prod

from pydantic import ValidationError

from dlcp.errors import Problem
from dlcp.model.experiment import SchemeChoice
from dlcp.model.loading.document import Document, Loc
from dlcp.model.loading.document_parts import Parts
from dlcp.model.loading.explain import did_you_mean, explain
from dlcp.model.units import WRITTEN
from dlcp.schemes.base import Scheme

MOST_POINTS = 36
"""Points of a grid at most: each point takes runs for every job."""


def check_searches(
    document: Document, here: Loc, kind: type[Scheme], choice: SchemeChoice, parts: Parts
) -> list[Problem]:
    """Problems of `knobs_for` and `search` of the scheme at `here`, whose `knobs` are right."""
    problems = []
    for job, knobs in choice.knobs_for.items():
        loc = (*here, "knobs_for", job)
        if job not in parts.job_names:
            hint = did_you_mean(job, parts.job_names)
            problems.append(Problem(document.where(loc, key=True), f"no job is called {job!r}", hint))
        try:
            kind.model_validate(knobs, context=WRITTEN)
        except ValidationError as error:
            problems += explain(document, error, kind, loc)
    for knob, values in choice.search.items():
        problems += _knob_problems(document, (*here, "search", knob), kind, choice, knob, values)
    points = prod(len(values) for values in choice.search.values())
    if points > MOST_POINTS:
        where = document.where((*here, "search"))
        problems.append(Problem(where, f"a grid of {points} points", f"at most {MOST_POINTS}: fewer values"))
    return problems


def _knob_problems(
    document: Document, loc: Loc, kind: type[Scheme], choice: SchemeChoice, knob: str, values: tuple[object, ...]
) -> list[Problem]:
    where = document.where(loc, key=True)
    if knob not in kind.model_fields:
        return [Problem(where, f"unknown knob `{knob}`", did_you_mean(knob, kind.model_fields))]
    if knob in choice.knobs or any(knob in knobs for knobs in choice.knobs_for.values()):
        return [Problem(where, f"`{knob}` is both given and searched", "leave one of the two out")]
    if not values:
        return [Problem(where, f"`{knob}` has no values to try", f"such as {knob}: [a, b]")]
    problems = []
    for i, value in enumerate(values):
        if value in values[:i]:
            problems.append(
                Problem(document.where((*loc, i)), f"`{knob}`: {value!r} is there already", "once is enough")
            )
        try:
            kind.model_validate({knob: value}, context=WRITTEN)
        except ValidationError as error:
            errors = [entry for entry in error.errors() if entry["loc"][:1] == (knob,)]
            wrong = [entry["msg"].removeprefix("Value error, ") for entry in errors]
            problems += [Problem(document.where((*loc, i)), f"`{knob}`: {text}") for text in wrong]
    return problems
