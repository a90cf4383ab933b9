"""The demonstration of a lab goes on after a doubt, and tells it at its end; a failure is an exit code."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlcp.errors import ExitCode
from dlcp.runner import lab_demo

Show = Callable[[dict[str, int]], tuple[int, list[str], list[str]]]


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Show:
    """Take the demonstration's steps, each ending with the exit code that is given for its first word."""

    def take(codes: dict[str, int]) -> tuple[int, list[str], list[str]]:
        taken: list[str] = []

        def end(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
            taken.append(" ".join(command[1:3]))
            return subprocess.CompletedProcess(command, codes.get(taken[-1], 0))

        monkeypatch.setattr(lab_demo.subprocess, "run", end)
        return *lab_demo._show(lab_demo.steps(tmp_path), {}), taken

    return take


def test_all_fine(show: Show) -> None:
    code, doubted, taken = show({})
    assert (code, doubted) == (ExitCode.FINE, [])
    assert len(taken) == 5


def test_suspect_runs_are_a_warning_that_is_told_at_the_end(show: Show) -> None:
    code, doubted, taken = show({"run lab-demo": ExitCode.SUSPECT})
    assert code == ExitCode.FINE
    assert len(taken) == 5
    (line,) = doubted
    assert "`dlcp run lab-demo`" in line
    assert "make lab-demo" in line


def test_a_failed_run_is_an_error_and_all_is_put_back(show: Show) -> None:
    code, doubted, taken = show({"run lab-demo": ExitCode.RUN_FAILED})
    assert (code, doubted) == (ExitCode.RUN_FAILED, [])
    assert taken[-2:] == ["hosts restore", "switch rollback"]


def test_what_puts_back_may_not_be_suspect(show: Show) -> None:
    code, doubted, _ = show({"hosts restore": ExitCode.SUSPECT})
    assert (code, doubted) == (ExitCode.SUSPECT, [])
