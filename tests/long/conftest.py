"""Long proofs: each runs the emulation."""

from __future__ import annotations

from pathlib import Path

import needs_kernel
import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs root and the kernel's features."""
    needs_kernel.mark([item for item in items if HERE in item.path.parents])
