"""The engine's threads and buffers under sanitizers, with a socket that refuses what it is given."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[2] / "testbed" / "native"
INCLUDES = [f"-I{folder}" for folder in sorted({header.parent for header in NATIVE.rglob("*.h")})]
WITHOUT_ENGINE = {"traffic_lanes.c", "traffic_source.c", "traffic_sink.c"}


# R100, R101
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed; apt-get install gcc")
@pytest.mark.parametrize("sanitizers", ["address,undefined", pytest.param("thread", marks=pytest.mark.long)])
def test_a_blocked_socket_harms_neither_memory_nor_liveness(tmp_path: Path, sanitizers: str) -> None:
    program = tmp_path / "engine_blocked"
    sources = [path for path in NATIVE.rglob("*.c") if path.name not in WITHOUT_ENGINE and ".bpf." not in path.name]
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
            HERE / "engine_blocked.c",
            *sources,
            "-Wl,--wrap=sendmsg",
            "-lm",
            "-pthread",
            "-o",
            program,
        ],
        check=True,
    )
    # ThreadSanitizer wants its memory where address space randomisation does not put it
    command = ["setarch", "--addr-no-randomize", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
