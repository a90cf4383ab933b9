"""docs/add-a-workload.md, step by step."""

from __future__ import annotations

from pathlib import Path

from guides import block

from dlcp.runner.planning.check import ready
from dlcp.runner.planning.plan import plan
from experiments import document, write


def test_guide__its_workload_is_found_and_is_part_of_a_runs_identity(tmp_path: Path) -> None:
    job = {"workload": "two-layers", "workers": ["h1", "h2"], "servers": ["h4"], "iterations": 4, "bucket": "60 kB"}
    path = write(tmp_path, document(jobs={"one": job}))
    own = tmp_path / "workloads" / "two-layers.yaml"
    own.write_text(block("add-a-workload", "yaml"), encoding="utf-8")
    before = plan(ready(path, own.parent)).run_ids
    assert before
    own.write_text(own.read_text(encoding="utf-8").replace("batch: 8", "batch: 9"), encoding="utf-8")
    assert not before & plan(ready(path, own.parent)).run_ids
