"""Tests with real packets: each scenario runs in private namespaces of its own and hands back what it saw."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlcp.substrates.private import start_private
from dlcp.substrates.probe import probe

SCENARIO_LIMIT_S = 30
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs root and the kernel's features; says which is missing and what mends it."""
    ours = [item for item in items if HERE in item.path.parents]
    if not ours:
        return
    gaps = [f"{check.name}: {check.detail}; {check.remedy}" for check in probe() if not check.ok]
    for item in ours:
        item.add_marker(pytest.mark.root)
        if gaps:
            item.add_marker(pytest.mark.skip(reason=gaps[0]))


@pytest.fixture(scope="session")
def inside() -> Callable[..., Any]:
    """Calls a function of a test module inside private namespaces, for so many seconds at most; arguments and result
    travel as JSON."""

    def call(scenario: Callable[..., Any], within_s: float = SCENARIO_LIMIT_S, **arguments: Any) -> Any:
        paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        process = start_private(
            "conftest:main",
            [scenario.__module__, scenario.__name__, json.dumps(arguments)],
            env={**os.environ, "PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            out, err = process.communicate(timeout=within_s)
        finally:
            process.stop()
        assert process.returncode == 0, err.decode()
        return json.loads(out.splitlines()[-1])

    return call


def main(arguments: list[str]) -> int:
    """Inside: run a scenario and print its result."""
    module, name, keywords = arguments
    __import__(module)
    result = getattr(sys.modules[module], name)(**json.loads(keywords))
    print(json.dumps(result))
    return 0
