"""An optional part that is not installed: named, with the command that installs it."""

from __future__ import annotations

import pytest

from dlcp.errors import ExitCode, MachineCannot, needs_extra
from dlcp.paths import install_command


def test_a_missing_module_is_named_with_the_command_that_installs_its_extra() -> None:
    with pytest.raises(MachineCannot) as caught, needs_extra("report", "dlcp report"):
        import module_of_nobody  # type: ignore[import-not-found] # noqa: F401
    problem = caught.value
    assert (problem.where, problem.what) == ("dlcp report", "needs module_of_nobody")
    assert problem.hint == install_command("report")
    assert problem.exit_code is ExitCode.MACHINE_CANNOT


def test_an_error_of_another_kind_passes() -> None:
    with pytest.raises(ImportError, match="cannot import name 'nothing'"), needs_extra("report", "dlcp report"):
        from json import nothing  # type: ignore[attr-defined] # noqa: F401
