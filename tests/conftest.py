"""All tests: what this machine was calibrated to must not decide whether one passes, nor which extras are installed;
what was skipped is listed at the end."""

from __future__ import annotations

import contextlib
import os
import tempfile

import extras
import pytest
import skips

with contextlib.suppress(ImportError):
    import hypothesis

    # How long one case takes says how busy the machine is.
    hypothesis.settings.register_profile("any machine", deadline=None)
    hypothesis.settings.load_profile("any machine")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """No calibration is there unless a test makes one."""
    config.pluginmanager.register(extras)
    config.pluginmanager.register(skips)
    os.environ["DLCP_STATE"] = os.path.join(tempfile.gettempdir(), f"dlcp-tests-without-calibration-{os.getpid()}")
