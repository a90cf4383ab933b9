"""The same experiment in slow motion: every time in it longer, every rate lower, all that is counted unchanged.

An emulated second then stands for less lab time, so the machine has as much more time for each packet. Packets,
buffers, buckets, bursts and shares are the same, and so is what a transport can see of them in units of its own time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from pydantic import BaseModel

from dlcp.model.experiment import Experiment
from dlcp.model.units import parse_duration_s, parse_rate_bps

Kind = Literal["duration", "rate"]

KEPT: Mapping[tuple[str, str], str] = {
    ("Scaling", "lab_rate_bps"): "the lab's, not the emulation's: what the links stand for does not change",
}
"""(model, field) of the durations and rates that dilation leaves alone, with the reason."""

_PARSERS: Mapping[str, Kind] = {parse_duration_s.__name__: "duration", parse_rate_bps.__name__: "rate"}


def dilated(experiment: Experiment, factor: float) -> Experiment:
    """The experiment with its time dilation × factor: durations × factor, rates ÷ factor, as their types say.

    Compute times and the timers of transports follow from `time_dilation`; what is relative to a link (a load, a burst
    at line rate) follows from the link. factor: 1 or more.
    """
    stretched = _stretched(experiment, factor)
    scaling = stretched["scaling"]
    scaling |= {
        "time_dilation": experiment.scaling.time_dilation * factor,
        "dilated_by": experiment.scaling.dilated_by * factor,
    }
    return Experiment.model_validate(stretched)


def kind_of(model: type[BaseModel], name: str) -> Kind | None:
    """Kind of a field, duration or rate, by its type, alone or as one of several; None when it is neither."""
    field = model.model_fields[name]
    return _kind([*field.metadata, field.annotation])


def _stretched(model: BaseModel, factor: float) -> dict[str, Any]:
    """The fields of a model by name, stretched to any depth."""
    values = {}
    for name in type(model).model_fields:
        value = getattr(model, name)
        kind = None if (type(model).__name__, name) in KEPT else kind_of(type(model), name)
        scale = {"duration": factor, "rate": 1 / factor, None: None}[kind]
        values[name] = _deep(value, lambda one: _stretched(one, factor), scale)
    return values


def _deep(value: Any, of_model: Callable[[BaseModel], dict[str, Any]], scale: float | None) -> Any:
    """A field's value: models inside it as `of_model` says, its numbers × scale unless that is None."""
    if isinstance(value, BaseModel):
        return of_model(value)
    if isinstance(value, Mapping):
        return {key: _deep(item, of_model, scale) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return tuple(_deep(item, of_model, scale) for item in value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value * scale if scale is not None and is_number else value


def _kind(parts: Any) -> Kind | None:
    """Search a type's own parts, to any depth, for what reads a duration or a rate; models inside it have their own."""
    for part in parts:
        name = getattr(getattr(part, "func", None), "__name__", "")
        if name in _PARSERS:
            return _PARSERS[name]
        inner = (*get_args(part), *getattr(part, "__metadata__", ()))
        if (kind := _kind(inner)) is not None:
            return kind
    return None
