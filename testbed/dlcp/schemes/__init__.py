"""One file = one scheme under comparison. Found by its file's name; no list elsewhere is edited."""

from __future__ import annotations

import importlib
import pkgutil

from dlcp.schemes.base import Scheme


def names() -> list[str]:
    """Every scheme's name: its file's name with `-` for `_`. What several schemes share begins with `_`."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name.replace("_", "-") for name in found if name != "base" and not name.startswith("_"))


def scheme_class(name: str) -> type[Scheme]:
    """The class SCHEME of a scheme's file. KeyError when no file has that name."""
    if name not in names():
        raise KeyError(name)
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    found = module.SCHEME
    assert issubclass(found, Scheme), f"schemes/{name}: SCHEME is not a Scheme"
    return found  # type: ignore[no-any-return]
