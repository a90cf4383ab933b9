"""`make emulate` and `make lab-demo` as a shell sees them: a doubt is no error of make's, all else is."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dlcp.paths import REPOSITORY

Make = Callable[[str, int], "subprocess.CompletedProcess[str]"]
OF_MAKE = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
"""What `make test` hands to its tests: a make below another one says so on its standard output."""
WORDS = {"emulate": "run quickstart", "lab-demo": "lab demo"}


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Run a target with a `dlcp` that ends with an exit code, and a set-up that does nothing."""
    (tmp_path / "bin").mkdir()

    def run(target: str, code: int) -> subprocess.CompletedProcess[str]:
        program = tmp_path / "bin" / "dlcp"
        program.write_text(f'#!/bin/sh\necho "dlcp $@"\nexit {code}\n')
        program.chmod(0o755)
        command = ["make", "-f", str(REPOSITORY / "Makefile"), "-o", "setup", target, f"BIN={tmp_path / 'bin'}"]
        shell = {name: value for name, value in os.environ.items() if name not in OF_MAKE}
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=shell)

    return run


@pytest.mark.parametrize("target", WORDS)
@pytest.mark.parametrize("code", [0, 4])
def test_fine_and_doubtful_end_with_0_and_without_an_error(target: str, code: int, make: Make) -> None:
    done = make(target, code)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"dlcp {WORDS[target]}\n"


@pytest.mark.parametrize("target", WORDS)
@pytest.mark.parametrize("code", [1, 2, 3, 130])
def test_every_other_code_is_an_error(target: str, code: int, make: Make) -> None:
    done = make(target, code)
    assert done.returncode == 2, "as make ends with an error"
    assert f"Error {code}" in done.stderr
