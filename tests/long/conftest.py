"""Long proofs: each runs the emulation, so that it needs root and the kernel's features."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlcp.substrates.emulate.capabilities import probe

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder, and skip it with the first gap of this machine."""
    ours = [item for item in items if HERE in item.path.parents]
    gaps = [f"{check.name}: {check.detail}; {check.remedy}" for check in probe() if not check.ok] if ours else []
    for item in ours:
        item.add_marker(pytest.mark.root)
        if gaps:
            item.add_marker(pytest.mark.skip(reason=gaps[0]))
