"""Tests of parts that need an extra of pyproject.toml: where it is not installed they are skipped, with the command
that installs it.

A test file that imports such a module at its top, itself or by way of the product, needs no word: it is skipped as a
whole. A test that needs one later has the mark `needs`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Generator

import pytest

EXTRA_OF = {
    "mininet": "emulate",
    "ansible": "lab",
    "ansible_runner": "lab",
    "fabric": "lab",
    "jsonpatch": "lab",
    "paramiko": "lab",
    "torch": "train",
    "matplotlib": "report",
    "pandas": "report",
    "scipy": "report",
    "seaborn": "report",
    "ipykernel": "notebooks",
    "nbclient": "notebooks",
    "nbformat": "notebooks",
    "hypothesis": "dev",
    "redis": "dev",
    "xdist": "dev",
    "yamllint": "dev",
}
"""The extra of pyproject.toml that brings a module."""


def reason(module: str) -> str:
    """Return why a test is skipped without a module of EXTRA_OF, and what installs it."""
    return f"{module} is not installed; pip install --editable '.[{EXTRA_OF[module]}]', or all extras: make setup-dev"


def needs(*modules: str) -> pytest.MarkDecorator:
    """Return the mark that skips a test, or as `pytestmark` a file, where one of these modules is absent."""
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    return pytest.mark.skipif(bool(absent), reason=reason(absent[0] if absent else modules[0]))


def absent_module(error: BaseException | None) -> str | None:
    """Return the module of EXTRA_OF for want of which an import failed, here or in what caused this error."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name:
            module = error.name.partition(".")[0]
            if module in EXTRA_OF and importlib.util.find_spec(module) is None:
                return module
        error = error.__cause__
    return None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a file that could not be imported for want of an extra."""
    report = yield
    call = getattr(report, "call", None)
    module = absent_module(call.excinfo.value) if report.failed and call and call.excinfo else None
    if module:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 1, f"Skipped: {reason(module)}")
    return report
