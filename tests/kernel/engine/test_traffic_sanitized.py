"""The background's threads and buffers under sanitizers, with strangers and an end in the middle."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[2] / "testbed" / "native"
INCLUDES = [f"-I{folder}" for folder in sorted({header.parent for header in NATIVE.rglob("*.h")})]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed; apt-get install gcc")
@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_plans_strangers_and_ends_harm_no_memory(tmp_path: Path, sanitizers: str) -> None:
    program = tmp_path / "traffic_checked"
    subprocess.run(
        [
            "gcc",
            "-std=gnu11",
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            f"-fsanitize={sanitizers}",
            "-fno-sanitize-recover=all",
            *INCLUDES,
            HERE / "traffic_checked.c",
            *sorted(NATIVE.rglob("traffic_*.c")),
            "-pthread",
            "-o",
            program,
        ],
        check=True,
    )
    # ThreadSanitizer wants its memory where address space randomisation does not put it
    command = ["setarch", "--addr-no-randomize", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
