"""Tests in a namespace lab: real nodes under a real sshd, in private namespaces that go away with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import needs_kernel
import pytest
from running_lab import RunningLab, Topology

from dlcp.substrates.namespace_lab.namespace_lab import DEFAULT_TOPOLOGY

HERE = Path(__file__).parent
MAKE_THEIR_OWN = ("test_agent_unit.py", "test_demo.py", "test_deploy.py", "test_deploy_failures.py", "test_lab_run.py")
"""Files whose tests all need a lab that no fixture of this file makes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here that builds a lab needs root and the kernel's features."""
    needs_kernel.mark([item for item in items if HERE in item.path.parents and _needs_a_lab(item)])


@pytest.fixture
def make_lab(tmp_path: Path) -> Iterator[Callable[..., RunningLab]]:
    """Makes labs for one test, of a topology's name or of one written out."""
    with ExitStack() as labs:

        def make(topology: Topology = DEFAULT_TOPOLOGY, folder: str = "lab") -> RunningLab:
            lab = RunningLab(topology, tmp_path / folder)
            labs.callback(lab.stop)
            return lab

        yield make


@pytest.fixture
def lab(make_lab: Callable[..., RunningLab]) -> RunningLab:
    """Two leaves, two spines, four hosts at 20 Mbit/s, fresh (it takes a fraction of a second)."""
    return make_lab()


@pytest.fixture(scope="module")
def module_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """The same, one for a file's tests: for those that leave everything as they found it."""
    lab = RunningLab(DEFAULT_TOPOLOGY, tmp_path_factory.mktemp("lab"))
    yield lab
    lab.stop()


def _needs_a_lab(item: pytest.Item) -> bool:
    makes_its_own = item.path.name in MAKE_THEIR_OWN
    return makes_its_own or bool({"lab", "make_lab", "module_lab"} & set(getattr(item, "fixturenames", ())))
