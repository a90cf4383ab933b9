"""The demonstration that `make lab-demo` gives, whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DEMO_LIMIT_S = 900
"""Eight minutes on a quiet machine; on a busy one runs are made again."""


@pytest.mark.long
def test_the_demonstration_leaves_every_node_as_it_was(tmp_path: Path) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("dlcp"), "lab", "demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEMO_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "8 of 8 nodes are as before" in done.stdout
    assert os.listdir(tmp_path) == ["results"]
    assert os.listdir(tmp_path / "results") == ["lab-demo.html"], "runs go with the lab"


@pytest.mark.long
def test_a_shell_s_command_has_the_lab(tmp_path: Path) -> None:
    line = "ssh l1 hostname; ssh h4 ping -c 1 -W 2 198.18.1.2 > ping; dlcp hosts restore --json; exit 7"
    done = subprocess.run(
        [Path(sys.executable).with_name("dlcp"), "lab", "shell", "-c", line],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    assert done.stdout.startswith("l1\n")
    assert '"status": "looked"' in done.stdout
    assert "1 received" in (tmp_path / "ping").read_text()
