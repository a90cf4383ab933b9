"""Tests with real packets: each scenario runs in private namespaces of its own and hands back what it saw."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import needs_kernel
import pytest
from quiet import measured
from scenarios import Scenarios

SCENARIO_LIMIT_S = 30
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs root and the kernel's features."""
    needs_kernel.mark([item for item in items if HERE in item.path.parents])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Tests that measure rates or times to a per cent are made again where a hypervisor took CPU from them."""
    if pyfuncitem.get_closest_marker("measures") is None:
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    measured(lambda: pyfuncitem.obj(**arguments))
    return True


@pytest.fixture(scope="session")
def inside() -> Iterator[Callable[..., Any]]:
    """Calls a function of a test module inside private namespaces of its own, for so many seconds at most; arguments
    and result travel as JSON."""
    scenarios = Scenarios()

    def call(scenario: Callable[..., Any], within_s: float = SCENARIO_LIMIT_S, **arguments: Any) -> Any:
        return scenarios.run(scenario, within_s, **arguments)

    yield call
    scenarios.stop()
