"""The simulated fabric's lists, pool and event loop under sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[2] / "testbed" / "native"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed; apt-get install gcc")
def test_traffic_faults_and_an_early_end_harm_no_memory(tmp_path: Path) -> None:
    program = tmp_path / "fabric_checked"
    flags = ["-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror"]
    sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    includes = [f"-I{folder}" for folder in (NATIVE, NATIVE / "switch", NATIVE / "simulate")]
    sources = [HERE / "fabric_checked.c", *sorted((NATIVE / "simulate").glob("*.c"))]
    subprocess.run(["gcc", *flags, *sanitize, *includes, *sources, "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    wheel, heap, _ = done.stdout.splitlines()
    assert wheel == heap
