"""Tests that need root and the kernel's features: marked, and skipped with the first gap of this machine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dlcp.substrates.emulate.capabilities import probe


def mark(items: Sequence[pytest.Item]) -> None:
    """Mark tests with `root`; where the machine lacks something, skip them with what is missing and the remedy."""
    gaps = [f"{check.name}: {check.detail}; {check.remedy}" for check in probe() if not check.ok] if items else []
    for item in items:
        item.add_marker(pytest.mark.root)
        if gaps:
            item.add_marker(pytest.mark.skip(reason=gaps[0]))
