"""Substrates by name: a folder here with a `substrate.py` is one. No list elsewhere is edited; see
docs/add-a-substrate.md."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from pathlib import Path

from dlcp import substrates
from dlcp.errors import Problem
from dlcp.model.loading.explain import did_you_mean
from dlcp.substrates.base import Substrate, Traits

USUAL = "emulate"
"""Where runs are made that need a network, unless the caller says otherwise."""


def names() -> list[str]:
    """Return the names of all substrates."""
    return sorted(file.parent.name for folder in substrates.__path__ for file in Path(folder).glob("*/substrate.py"))


def traits_of(name: str) -> Traits:
    """Return what plans need to know of a substrate. Problem when none has that name, TypeError when its folder does
    not say it."""
    if name not in names():
        raise Problem("--on", f"no substrate is called {name!r}", did_you_mean(name, names()))
    module = importlib.import_module(f"{substrates.__name__}.{name}")
    traits = getattr(module, "TRAITS", None)
    if not isinstance(traits, Traits):
        raise TypeError(f"{module.__file__}: TRAITS must be a dlcp.substrates.base.Traits")
    return traits


def names_for(*, needs_network: bool) -> list[str]:
    """Return the names of substrates on which a scheme runs that needs a network, or one that needs none."""
    return [name for name in names() if traits_of(name).has_network == needs_network]


def usual(*, needs_network: bool) -> str:
    """Return where such schemes run unless the caller says otherwise."""
    return next((name for name in names_for(needs_network=needs_network) if traits_of(name).usual), USUAL)


def open_substrate(name: str) -> AbstractContextManager[Substrate]:
    """Return the substrate of that name, to be entered."""
    module = importlib.import_module(f"{substrates.__name__}.{name}.substrate")
    substrate: AbstractContextManager[Substrate] = module.SUBSTRATE()
    return substrate
