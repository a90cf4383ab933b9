"""One file = one scheme under comparison. Found by its file's name; no list elsewhere is edited.

A file offers its class as SCHEME, and may offer VARIANTS: names that begin with its own → other classes. `base`, and a
file that begins with `_`, is of no scheme. Every compressor of dlcp.transport.compression is a scheme, too. See
docs/add-a-scheme.md.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from dlcp.schemes._compressed import scheme_of
from dlcp.schemes.base import Scheme
from dlcp.transport import compression


def names() -> list[str]:
    """Every scheme's name: its file's name with `-` for `_`, those of its variants, and those of compressors. Imports
    all files of schemes."""
    named_in_files = [name for file in _files() for name in (file, *_variants(_module(file)))]
    return sorted([*named_in_files, *compression.names()])


def scheme_class(name: str) -> type[Scheme]:
    """Return the class of a scheme. KeyError when no file, no variant and no compressor has that name."""
    if name in compression.names():
        return scheme_of(name)
    scheme = _module(name).SCHEME if name in _files() else _variants(_module(_base_of(name)))[name]
    assert issubclass(scheme, Scheme), f"schemes: {name} is not a Scheme"
    return scheme


def _files() -> list[str]:
    """The schemes that have a file."""
    modules = (module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))
    return [name for name in modules if name != "base" and not name.startswith("-")]


def _module(file: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{file.replace('-', '_')}")


def _variants(module: ModuleType) -> dict[str, type[Scheme]]:
    variants: dict[str, type[Scheme]] = getattr(module, "VARIANTS", {})
    return variants


def _base_of(name: str) -> str:
    """The scheme whose variant has that name, if any: the longest that it begins with."""
    bases = [file for file in _files() if name.startswith(f"{file}-")]
    if not bases:
        raise KeyError(name)
    return max(bases, key=len)
