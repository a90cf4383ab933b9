"""docs/add-a-framework.md, step by step."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import job_in_process
import pytest
from guides import added_to, blocks
from loopback import TCP

import dlcp
from dlcp import frameworks
from dlcp.agents import scripts
from dlcp.agents.job_spec import JobSpec, LayerWork
from dlcp.agents.process.inprocess_job import InProcessJob
from dlcp.errors import Problem
from dlcp.frameworks import framework_of
from dlcp.model.transport.masks import MaskSettings
from dlcp.model.transport.settings import TransportSettings

GUIDE, SCRIPT = "add-a-framework", "guide_linear.py"
DLCP = TransportSettings(kind="dlcp", loss_bound=0.1)


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobSpec]:
    """Steps 1 and 2 of the guide, and a job of the script."""
    package, script = blocks(GUIDE, "python")
    monkeypatch.setattr(scripts, "WORKLOADS", tmp_path)
    (tmp_path / SCRIPT).write_text(script, encoding="utf-8")
    with added_to(frameworks, tmp_path / "frameworks") as folder:
        (folder / "linear").mkdir()
        (folder / "linear" / "__init__.py").write_text(package, encoding="utf-8")
        yield JobSpec(
            name="job",
            kind="training",
            workers=("h1", "h2"),
            servers=("s1",),
            iterations=30,
            warmup_iterations=1,
            bucket_bytes=40_000,
            seed=3,
            layers=(LayerWork(name="only", elements=64),),
            script=SCRIPT,
            batch=32,
            learning_rate=1.0,
            momentum=0.5,
            evaluations=3,
        )
    for name in [name for name in sys.modules if name.endswith(Path(SCRIPT).stem)]:
        del sys.modules[name]
    scripts._warm.discard(SCRIPT)


@pytest.mark.parametrize("settings", [TCP, DLCP], ids=["tcp", "dlcp"])
def test_guide__its_framework_trains_over_a_transport(
    settings: TransportSettings, spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings: list[Any] = []

    def worker_call(spec: JobSpec, settings: TransportSettings, rank: int, worker: Any, at: float) -> Any:
        job, framework = scripts.warm_script(SCRIPT).job(spec.options(rank)), scripts.framework_of_script(SCRIPT)
        own = framework.training(job, worker, spec.tensors(settings), spec.iterations, spec.snapshots_of(rank), None)
        trainings.append(own)
        return partial(own.run, at, lambda done: None)

    monkeypatch.setattr(job_in_process, "_worker_call", worker_call)
    done = job_in_process.run_job(spec, settings, tmp_path)
    held = set(zip(done.iterations["iteration"], done.iterations["parameters_crc32"], strict=True))
    assert len(held) == spec.iterations, "all workers hold the same bits, and every iteration changes them"
    last = max(row for training in trainings for row in training.evaluate())
    assert last[0] == spec.iterations - 1
    assert last[3] > 0.95


def test_guide__its_framework_trains_in_one_process(spec: JobSpec) -> None:
    settings = TransportSettings(kind="masked", must_arrive_below_packets=0, mask=MaskSettings(loss=0.1))
    done = InProcessJob(spec, settings).run(lambda done: None)
    assert done.training["accuracy"][-1] > 0.95


def test_a_script_of_no_framework__is_told(tmp_path: Path, spec: JobSpec) -> None:
    (tmp_path / SCRIPT).write_text("import dlcp.errors\n")
    with pytest.raises(Problem, match=r"imports none of dlcp\.frameworks, and needs exactly one; known: linear, py"):
        scripts.framework_of_script(SCRIPT)
    with pytest.raises(ValueError, match="imports linear and pytorch"):
        framework_of("from dlcp.frameworks.pytorch import x\ndef f():\n    import dlcp.frameworks.linear as y")


def test_no_other_part_names_a_framework() -> None:
    """But what measures PyTorch's own backend against another."""
    root = Path(dlcp.__file__).parent
    files = (file for file in root.rglob("*.py") if "frameworks" not in file.relative_to(root).parts)
    naming = {
        file.relative_to(root).as_posix()
        for file in files
        if any(f"frameworks.{name}" in file.read_text(encoding="utf-8") for name in frameworks.names())
    }
    assert naming == {"bench/allreduce/rank.py"}
