"""A person who has trained on gloo finds no difference: the same cases under gloo and dlcp, with equal results."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conformance import CASE_MODULES, CASES, differences, run_cases
from torch_ranks import ranks

for module in CASE_MODULES:
    importlib.import_module(module)
TOLERANCE = 2e-4
"""Of float32 after a few steps of training: a ring adds in another order than gloo."""


@pytest.fixture(scope="module", params=[pytest.param(2, marks=pytest.mark.long), 3])
def results(request: pytest.FixtureRequest) -> list[dict[str, dict[str, Any]]]:
    """Of all cases, by rank. The ranks are started once: both backends run in the same processes."""
    return ranks(request.param, run_cases, ("gloo", "dlcp"))


@pytest.mark.parametrize("name", CASES)
def test_conformance__dlcp_gives_gloos_result(results: list[dict[str, dict[str, Any]]], name: str) -> None:
    for rank, backends in enumerate(results):
        for backend, by_case in backends.items():
            result = by_case[name]
            if isinstance(result, str) and result.startswith("Traceback"):
                pytest.fail(f"{backend}: {result}")
        assert not differences(backends["gloo"][name], backends["dlcp"][name], TOLERANCE), f"rank {rank}"


RESTARTED = """
import os
import torch
import torch.distributed as dist
import dlcp.frameworks.pytorch

dist.init_process_group("dlcp")
ones = torch.ones(50_000)
dist.all_reduce(ones)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 1:
    os._exit(3)
dist.all_reduce(ones)
text = f"rank {dist.get_rank()} attempt {os.environ['TORCHELASTIC_RESTART_COUNT']} sum {ones[0].item()}"
os.write(1, f"{text}\\n".encode())  # at once: both ranks write to the same pipe
dist.destroy_process_group()
"""


@pytest.mark.long
def test_torchrun__starts_the_ranks_again_after_one_died(tmp_path: Path) -> None:
    script = tmp_path / "restarted.py"
    script.write_text(RESTARTED)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--max-restarts", "1", "--monitor-interval", "0.1", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert f"rank {rank} attempt 1 sum 4.0" in done.stdout
