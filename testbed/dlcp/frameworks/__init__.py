"""Training frameworks: one folder = how one framework's training goes over this transport. Found by the folder's name;
no list elsewhere is edited. See docs/add-a-framework.md."""

from __future__ import annotations

import ast
import importlib
import pkgutil

from dlcp.frameworks.base import Framework


def names() -> list[str]:
    """Return every framework's name: that of its folder."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)


def framework_of(source: str) -> Framework:
    """Return the framework that a training script's text imports from this package: the object FRAMEWORK of its folder.
    ValueError when it imports none, or several; ImportError when the framework is not installed."""
    imported = {module.split(".")[2] for module in _imports(source) if module.startswith(f"{__name__}.")}
    used = sorted(imported & set(names()))
    if len(used) != 1:
        imports = " and ".join(used) or "none"
        raise ValueError(f"it imports {imports} of {__name__}, and needs exactly one; known: {', '.join(names())}")
    module = importlib.import_module(f"{__name__}.{used[0]}")
    framework = getattr(module, "FRAMEWORK", None)
    if not isinstance(framework, Framework):
        raise TypeError(f"{module.__file__}: FRAMEWORK must be a {Framework.__module__}.Framework")
    return framework


def _imports(source: str) -> list[str]:
    """The modules that a Python text imports, anywhere in it."""
    nodes = list(ast.walk(ast.parse(source)))
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return plain + [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
