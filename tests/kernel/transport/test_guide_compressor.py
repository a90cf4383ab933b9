"""docs/add-a-compressor.md, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from coding import Bench, cosine, normal
from guides import added_to, block
from job_in_process import run_job
from test_patterns import spec_of

from dlcp import schemes
from dlcp.model.experiment import Scaling
from dlcp.runner.planning.check import check
from dlcp.runner.planning.plan import plan
from dlcp.schemes.base import settings_for
from dlcp.transport import compression
from dlcp.transport.compression import compressor_class
from experiments import document, small, write

GUIDE, NAME = "add-a-compressor", "bfloat16"
LAB = Scaling(lab_rate="10 Gbit/s", byte_scale=100)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with added_to(compression, tmp_path / "compression") as own:
        yield own


@pytest.fixture
def added(folder: Path) -> str:
    """Step 1 of the guide."""
    (folder / f"{NAME}.py").write_text(block(GUIDE, "python"), encoding="utf-8")
    return NAME


def test_guide__its_compressor_codes_as_planned(added: str) -> None:
    gradients = [normal(10_000, worker) for worker in range(3)]
    bench = Bench(added, 10_000, 3)
    found = bench.exchange(0, gradients)
    assert bench.pushed == bench.pulled == [20_000]
    assert cosine(found, np.mean(gradients, axis=0)) > 0.9999
    cut = Bench(added, 10_000, 3, rounds=False).exchange(0, gradients)
    assert (cut != found).any()


def test_guide__its_scheme_is_planned_and_trains(added: str, tmp_path: Path) -> None:
    chosen = yaml.safe_load(block(GUIDE, "yaml"))
    cells = plan(small(tmp_path, schemes=chosen)).cells
    assert {cell.run.scheme.scheme for cell in cells} == {NAME}
    settings = settings_for(schemes.scheme_class(added).model_validate(chosen[1]["knobs"]), LAB)
    assert settings.compression is not None
    assert settings.compression.knobs == {"rounds": False}
    own = tmp_path / "job"
    own.mkdir()
    spec = spec_of("parameter-server")
    done = run_job(spec, settings, own)
    assert 2 * sum(done.messages["bytes"]) == sum(done.messages["tensor_bytes"])
    assert len(set(done.iterations["parameters_crc32"])) == spec.iterations


def test_guide__its_scheme_is_refused_where_nothing_merges_codes(added: str, tmp_path: Path) -> None:
    job = {"workload": "small", "workers": ["h1", "h2"], "pattern": "ring", "iterations": 4}
    chosen = [{"scheme": added, "label": "one"}]
    found = check(write(tmp_path, document(jobs={"one": job}, schemes=chosen)), tmp_path / "workloads")
    assert [problem.what for problem in found.problems if "`compression`" in problem.what] == [
        "`compression`: codes are merged by parameter servers, a ring has none"
    ]


def test_an_unknown_compressor__is_told_with_those_that_there_are(added: str) -> None:
    with pytest.raises(ValueError, match=r"no compressor is called 'bfloat'; known: bfloat16, dgc, .*topk"):
        compressor_class("bfloat")


def test_a_file_without_a_compressor__is_told_by_its_name(folder: Path) -> None:
    (folder / "empty.py").write_text('"""Nothing."""\n')
    with pytest.raises(TypeError, match=r"empty\.py: COMPRESSOR must be a subclass"):
        compressor_class("empty")
