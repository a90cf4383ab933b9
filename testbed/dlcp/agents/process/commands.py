"""Commands of an agent: the public methods of its roles, one each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")
Command = Callable[..., dict[str, Any]]


def commands_of(roles: Iterable[object]) -> dict[str, Command]:
    """Return the commands of all roles by name. TypeError where two roles have one of the same name."""
    commands: dict[str, Command] = {}
    for role in roles:
        for name, method in vars(type(role)).items():
            if name.startswith("_") or not callable(method):
                continue
            if name in commands:
                raise TypeError(f"two roles of an agent have a command {name!r}")
            commands[name] = getattr(role, name)
    return commands


def earlier(result: T | None, order: str) -> T:
    """Return what an earlier command has left. order: which comes before which, for the error."""
    if result is None:
        raise AssertionError(order)
    return result
