"""One file = one gradient compressor and the scheme that sends its codes over TCP. Found by its file's name; no list
elsewhere is edited. See docs/add-a-compressor.md."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from dlcp.transport.compression.base import Compressor


def names() -> list[str]:
    """Return every compressor's name: its file's name with `-` for `_`. A file that several share begins with `_`."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name.replace("_", "-") for name in modules if name != "base" and not name.startswith("_"))


def compressor_class(name: str) -> type[Compressor[Any]]:
    """Return the class COMPRESSOR of a compressor's file. ValueError when no file has that name, TypeError when its
    file has no such class."""
    known = names()
    if name not in known:
        raise ValueError(f"no compressor is called {name!r}; known: {', '.join(known)}")
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    compressor = getattr(module, "COMPRESSOR", None)
    if not (isinstance(compressor, type) and issubclass(compressor, Compressor)):
        raise TypeError(
            f"{module.__file__}: COMPRESSOR must be a subclass of dlcp.transport.compression.base.Compressor"
        )
    return compressor
