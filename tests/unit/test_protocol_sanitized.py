"""The state machine under AddressSanitizer and UBSan: random schedules, forged and broken datagrams."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "testbed" / "native"
WITH_SOCKETS = {"engine.c", "datagrams.c", "traffic.c"}
SECONDS = 4


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed: apt install gcc")
@pytest.mark.parametrize("seed", [1, 2])
def test_no_datagram_and_no_schedule_harms_memory(tmp_path: Path, seed: int) -> None:
    program = tmp_path / "protocol_fuzz"
    sources = [path for path in NATIVE.glob("*.c") if path.name not in WITH_SOCKETS and ".bpf." not in path.name]
    subprocess.run(
        [
            "gcc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined",
            "-fno-sanitize-recover=all", "-I", NATIVE, HERE / "protocol_fuzz.c", *sources, "-lm", "-o", program,
        ],
        check=True,
    )  # fmt: skip
    done = subprocess.run([program, str(seed), str(SECONDS)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
