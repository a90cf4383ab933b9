"""Errors of pydantic, translated for the person who wrote the file: place, fact, and what to write instead."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from dlcp.errors import Problem, Problems
from dlcp.model.loading.document import Document, Loc, read_document
from dlcp.model.units import WRITTEN, QuantityError

Model = TypeVar("Model", bound=BaseModel)


def validate(document: Document, kind: Any, loc: Loc = ()) -> tuple[Any, list[Problem]]:
    """The part of a document at `loc` as an instance of `kind`, or None and every problem in it."""
    try:
        return TypeAdapter(kind).validate_python(document.get(loc), context=WRITTEN), []
    except ValidationError as error:
        return None, explain(document, error, kind, loc)


def read_as(path: Path, kind: type[Model]) -> Model:
    """A file as a model. Raises Problems: all that is wrong with it, by file:line:col."""
    document = read_document(path)
    if document.data is None:
        raise Problems(document.problems)
    value, problems = validate(document, kind)
    if document.problems or problems:
        raise Problems([*document.problems, *problems])
    made: Model = value
    return made


def explain(document: Document, error: ValidationError, kind: Any, base: Loc = ()) -> list[Problem]:
    """Every error as a Problem at its line and column. `base`: where in the document the validated part stands."""
    return [_explain_one(document, entry, kind, base) for entry in error.errors(include_url=False) if not _echo(entry)]


def did_you_mean(wrong: object, known: Iterable[str]) -> str:
    """A hint: the nearest known word if one is near, then all of them."""
    words = list(known)
    if not words:
        return ""
    near = difflib.get_close_matches(str(wrong), words, n=1)
    return (f"did you mean `{near[0]}`? " if near else "") + f"known: {', '.join(words)}"


def _echo(error: ErrorDetails) -> bool:
    """Return true if an error only follows from others: pydantic finds a list too short without its wrong entries."""
    return error["type"] == "too_short" and len(error["input"]) >= error["ctx"]["min_length"]


def _explain_one(document: Document, error: ErrorDetails, kind: Any, base: Loc) -> Problem:
    data = document.get(base)
    inner = _without_tags(data, error["loc"])
    loc = (*base, *inner)
    name = str(loc[-1]) if loc else ""
    match error["type"]:
        case "missing" if isinstance(error["loc"][-1], int):
            where = document.where(loc[:-1])
            return Problem(where, f"`{_path(loc[:-1])}`: it ends before its entry {error['loc'][-1] + 1}")
        case "missing":
            model = _model_at(kind, data, inner[:-1])
            return Problem(document.where(loc[:-1], key=True), f"`{name}` is missing", _example(model, name))
        case "extra_forbidden":
            model = _model_at(kind, data, inner[:-1])
            return Problem(document.where(loc, key=True), f"unknown key `{name}`", did_you_mean(name, _keys(model)))
        case "union_tag_not_found":
            hint = f"one of: {', '.join(_tags_at(kind, data, inner))}"
            return Problem(document.where(loc, key=True), "`kind` is missing", hint)
        case "union_tag_invalid":
            wrong = error["ctx"]["tag"]
            hint = did_you_mean(wrong, _tags_at(kind, data, inner))
            return Problem(document.where((*loc, "kind")), f"kind {wrong!r} is not known", hint)
    problem, hint = _fact(error)
    if error["type"] == "invalid_key":
        return Problem(document.where(loc, key=True), problem, hint)
    return Problem(document.where(loc), f"`{_path(loc)}`: {problem}" if loc else problem, hint)


def _fact(error: ErrorDetails) -> tuple[str, str]:
    """Return the fact that is wrong with a value, and how to write it."""
    value, context = _short(error["input"]), error.get("ctx", {})
    match error["type"]:
        case "value_error":
            cause = context["error"]
            return (cause.what, cause.hint) if isinstance(cause, QuantityError) else (str(cause), "")
        case "literal_error":
            return f"{value} is not known", did_you_mean(
                error["input"], _quoted(context["expected"]) or [context["expected"]]
            )
        case "string_pattern_mismatch":
            return (
                f"{value} does not fit the pattern {context['pattern']}",
                "small letters, digits and dashes, as in 'my-experiment'",
            )
        case "string_type":
            return f"{value} is not text", "put it in quotes if it is meant as text"
        case "int_type" | "int_parsing" | "int_from_float" | "int_parsing_size":
            return f"{value} is not a whole number", ""
        case "float_type" | "float_parsing":
            return f"{value} is not a number", ""
        case "bool_type" | "bool_parsing":
            return f"{value} is not true or false", ""
        case "finite_number":
            return f"{value} is not finite", ""
        case "greater_than_equal":
            return f"{value} is too small", f"it must be {context['ge']:g} or more"
        case "greater_than":
            return f"{value} is too small", f"it must be more than {context['gt']:g}"
        case "less_than_equal":
            return f"{value} is too large", f"it must be {context['le']:g} or less"
        case "less_than":
            return f"{value} is too large", f"it must be less than {context['lt']:g}"
        case "multiple_of":
            return f"{value} is not a multiple of {context['multiple_of']:g}", ""
        case "too_short":
            return "it is empty", f"at least {context['min_length']} needed"
        case "tuple_type" | "list_type":
            return f"{value} is not a list", "write [a, b, c], or one `- a` a line"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"{value} is not a mapping", "write `key: value` lines, indented"
        case "invalid_key":
            return f"the key {value} is not text", "put it in quotes (YAML reads yes, no, on, off and numbers as such)"
    return f"{value}: {error['msg']}", ""


def _without_tags(data: Any, loc: Iterable[int | str]) -> Loc:
    """pydantic's location without the union tags and marks that it puts between keys."""
    steps: list[int | str] = []
    given = list(loc)
    for i, step in enumerate(given):
        if step == "[key]":
            continue
        if isinstance(data, dict) and step not in data and i + 1 < len(given) and step == data.get("kind"):
            continue
        steps.append(step)
        data = _item(data, step)
    return tuple(steps)


def _model_at(kind: Any, data: Any, loc: Loc) -> type[BaseModel] | None:
    """The model that the mapping at `loc` was meant to be; None when it is none."""
    for step in loc:
        kind, data = _below(_resolve(kind, data), step), _item(data, step)
    kind = _resolve(kind, data)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _tags_at(kind: Any, data: Any, loc: Loc) -> list[str]:
    """The kinds that the union at `loc` knows."""
    for step in loc:
        kind, data = _below(_resolve(kind, data), step), _item(data, step)
    members = get_args(_bare(kind))
    return [tag for member in members for tag in get_args(member.model_fields["kind"].annotation)]


def _below(kind: Any, step: int | str) -> Any:
    """The type of what stands under a key or position of a value of type `kind`."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {field.alias or name: field.annotation for name, field in kind.model_fields.items()}.get(str(step))
    arguments = get_args(kind)
    return arguments[1 if get_origin(kind) is dict else 0] if arguments else None


def _item(data: Any, step: int | str) -> Any:
    try:
        return data[step]
    except (KeyError, IndexError, TypeError):
        return None


def _bare(kind: Any) -> Any:
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return kind


def _resolve(kind: Any, data: Any) -> Any:
    """Strip Annotated; of a union discriminated by `kind`, take the member that the data names."""
    kind = _bare(kind)
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    for member in get_args(kind):
        field = getattr(member, "model_fields", {}).get("kind")
        if field is not None and isinstance(data, dict) and data.get("kind") in get_args(field.annotation):
            return member
    return None


def _keys(model: type[BaseModel] | None) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


def _example(model: type[BaseModel] | None, key: str) -> str:
    """How a missing key might look, when its kind has an example."""
    field = next((f for name, f in model.model_fields.items() if key in (name, f.alias)), None) if model else None
    if field is None:
        return ""
    functions = {getattr(getattr(part, "func", None), "__name__", "") for part in field.metadata}
    examples = {
        "parse_rate_bps": "100 Mbit/s",
        "parse_size_bytes": "40 kB",
        "parse_duration_s": "5 ms",
        "parse_fraction": "10 %",
    }
    example = next((text for name, text in examples.items() if name in functions), "")
    if example:
        return f"add a line such as `{key}: {example}`"
    words = _quoted(str(get_args(field.annotation))) if str(field.annotation).startswith("typing.Literal") else []
    return f"one of: {', '.join(words)}" if words else field.description or ""


def _quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)


def _path(loc: Loc) -> str:
    """jobs.profile.workers[2], as a person would name it."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc).lstrip(".")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
