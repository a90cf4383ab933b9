"""The training scripts that show DLCP in PyTorch: one as the README starts it, the others as torchrun would."""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch_ranks import ranks

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("DLCP_DATA", "/usr/share/datasets/fashion-mnist")) / "train-images-idx3-ubyte.gz"
STEPS = 60
PARAMETERS = 52_138
README_LINE = re.search(r"`torchrun (--nproc-per-node 2 workloads/\S+)`", (ROOT / "README.md").read_text("utf-8"))

pytestmark = pytest.mark.skipif(not DATA.exists(), reason=f"{DATA} is missing; apt-get install dataset-fashion-mnist")


def judge(said: str, carried: str) -> None:
    accuracy = re.search(r"accuracy ([0-9.]+)%", said)
    assert accuracy is not None, said
    assert float(accuracy[1]) > 60, "chance is 10 %"
    moved = re.search(rf"[0-9]+ {carried} \(([0-9.]+) MB\) over DLCP", said)
    assert moved is not None, said
    assert float(moved[1]) > STEPS * PARAMETERS * 4 / 1e6 * 0.99, "every step's gradients"


@pytest.mark.long
def test_the_readmes_line__trains_and_its_gradients_went_over_dlcp() -> None:
    assert README_LINE is not None
    command = [sys.executable, "-m", "torch.distributed.run", *README_LINE[1].split(), str(STEPS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    judge(done.stdout, "all_reduce")


def _run(store: Any, rank: int, size: int, script: str) -> str:
    """The script as a process of torchrun runs it: the environment says where the others are."""
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": store.host,
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    sys.argv = [script, str(STEPS)]
    sys.path.insert(0, str(ROOT / "workloads"))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        runpy.run_path(str(ROOT / "workloads" / script), run_name="__main__")
    return said.getvalue()


@pytest.mark.parametrize(("script", "carried"), [("ddp_hook.py", "gradients"), ("parameter_server.py", "push")])
def test_script__trains_and_its_gradients_went_over_dlcp(script: str, carried: str) -> None:
    judge(ranks(2, _run, script)[0], carried)
