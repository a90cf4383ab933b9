"""One file = one pattern in which the ranks of a job exchange messages. Found by its file's name; no list elsewhere is
edited. See docs/add-a-pattern.md."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

from dlcp.patterns.base import Pattern


def names() -> list[str]:
    """Return every pattern's name: its file's name with `-` for `_`. A file that several patterns share begins with
    `_`."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name.replace("_", "-") for name in modules if name != "base" and not name.startswith("_"))


def pattern_of(name: str) -> Pattern:
    """Return the pattern of that name: an instance of the class PATTERN of its file. ValueError when no file has that
    name, TypeError when its file has no such class."""
    known = names()
    if name not in known:
        raise ValueError(f"no pattern is called {name!r}; known: {', '.join(known)}")
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    pattern_class = getattr(module, "PATTERN", None)
    if not (isinstance(pattern_class, type) and issubclass(pattern_class, Pattern)):
        raise TypeError(f"{module.__file__}: PATTERN must be a subclass of dlcp.patterns.base.Pattern")
    return pattern_class(name)


def names_where(capable: Callable[[Pattern], bool]) -> str:
    """List the patterns that have a capability, for a hint: "ring, or transpose"."""
    return ", or ".join(name for name in names() if capable(pattern_of(name)))
