"""The training scripts that show DLCP in PyTorch, as the README starts them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e .[train]")

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("DLCP_DATA", "/usr/share/datasets/fashion-mnist")) / "train-images-idx3-ubyte.gz"
STEPS = 60


@pytest.mark.skipif(not DATA.exists(), reason=f"{DATA} is missing: apt-get install dataset-fashion-mnist")
@pytest.mark.parametrize(
    ("script", "carried"),
    [("ddp_backend.py", "all_reduce"), ("ddp_hook.py", "gradients"), ("parameter_server.py", "push")],
)
def test_script__trains_under_torchrun_and_its_gradients_went_over_dlcp(script: str, carried: str) -> None:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        f"workloads/{script}",
        str(STEPS),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]
    accuracy = re.search(r"accuracy ([0-9.]+)%", done.stdout)
    assert accuracy is not None, done.stdout
    assert float(accuracy[1]) > 60, "chance is 10 %"
    moved = re.search(rf"[0-9]+ {carried} \(([0-9.]+) MB\) over DLCP", done.stdout)
    assert moved is not None, done.stdout
    assert float(moved[1]) > STEPS * 52_138 * 4 / 1e6 * 0.99, "every step's gradients"
