"""One file = one scheme under comparison. Found by its file's name; no list elsewhere is edited.

A file offers its class as SCHEME, and may offer VARIANTS: names that begin with its own → other classes. Files of
schemes that share much may stand in a folder. A name that begins with `_`, and `base`, is of no scheme.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType

from dlcp.schemes.base import Scheme


def names() -> list[str]:
    """Every scheme's name: its file's name with `-` for `_`, and those of its variants. Imports all of them."""
    return sorted(name for file in _files() for name in (file, *_variants(_module(file))))


def scheme_class(name: str) -> type[Scheme]:
    """The class of a scheme. KeyError when no file and no variant has that name."""
    found = _module(name).SCHEME if name in _files() else _variants(_module(_base_of(name)))[name]
    assert issubclass(found, Scheme), f"schemes: {name} is not a Scheme"
    return found


@cache
def _files() -> dict[str, str]:
    """Scheme → its file's module."""
    modules: dict[str, str] = {}
    for entry in pkgutil.iter_modules(__path__, f"{__name__}."):
        inner = importlib.import_module(entry.name).__path__ if entry.ispkg else ()
        entries = pkgutil.iter_modules(inner, f"{entry.name}.") if entry.ispkg else [entry]
        modules |= {one.name.rpartition(".")[2].replace("_", "-"): one.name for one in entries}
    return {name: module for name, module in modules.items() if name != "base" and not name.startswith("-")}


def _module(file: str) -> ModuleType:
    return importlib.import_module(_files()[file])


def _variants(module: ModuleType) -> dict[str, type[Scheme]]:
    found: dict[str, type[Scheme]] = getattr(module, "VARIANTS", {})
    return found


def _base_of(name: str) -> str:
    """The scheme whose variant has that name, if any: the longest that it begins with."""
    bases = [file for file in _files() if name.startswith(f"{file}-")]
    if not bases:
        raise KeyError(name)
    return max(bases, key=len)
