"""All tests: what this machine was calibrated to must not decide whether one passes."""

from __future__ import annotations

import os
import tempfile

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """No calibration is there unless a test makes one."""
    os.environ["DLCP_STATE"] = os.path.join(tempfile.gettempdir(), f"dlcp-tests-without-calibration-{os.getpid()}")
