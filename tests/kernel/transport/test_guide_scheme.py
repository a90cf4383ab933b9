"""docs/add-a-scheme.md, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from guides import added_to, block
from job_in_process import run_job
from test_patterns import spec_of

from dlcp import schemes
from dlcp.model.experiment import Scaling
from dlcp.runner.catalogue import details
from dlcp.runner.planning.check import check
from dlcp.runner.planning.plan import plan
from dlcp.schemes.base import settings_for
from experiments import document, small, write

GUIDE, NAME = "add-a-scheme", "bounded-udp"
LAB = Scaling(lab_rate="10 Gbit/s", byte_scale=100)


@pytest.fixture
def added(tmp_path: Path) -> Iterator[str]:
    """Step 1 of the guide."""
    with added_to(schemes, tmp_path / "schemes") as folder:
        (folder / "bounded_udp.py").write_text(block(GUIDE, "python"), encoding="utf-8")
        yield NAME


def test_guide__its_scheme_is_planned_as_a_rival_and_shown(added: str, tmp_path: Path) -> None:
    cells = plan(small(tmp_path, schemes=yaml.safe_load(block(GUIDE, "yaml")))).cells
    assert {cell.run.scheme.scheme for cell in cells} == {NAME, "tcp-tuned"}
    assert added in schemes.names()
    assert schemes.scheme_class(added).is_dlcp is False
    assert [row["knob"] for row in details("schemes", added)["knobs"]] == ["loss_bound", "control_reserved"]


def test_guide__its_scheme_trains(added: str, tmp_path: Path) -> None:
    knobs = yaml.safe_load(block(GUIDE, "yaml"))[1]["knobs"]
    settings = settings_for(schemes.scheme_class(added).model_validate(knobs), LAB)
    assert settings.loss_bound == 0.1
    spec = spec_of("parameter-server")
    own = tmp_path / "job"
    own.mkdir()
    done = run_job(spec, settings, own)
    assert len(set(done.iterations["parameters_crc32"])) == spec.iterations
    assert max(done.messages["loss_bound"]) == 0.1


def test_guide__jobs_that_do_not_suit_its_scheme_are_refused(added: str, tmp_path: Path) -> None:
    job = {"workload": "small", "workers": ["h1", "h2"], "pattern": "ring", "iterations": 4}
    chosen = [{"scheme": added, "label": "one"}]
    found = check(write(tmp_path, document(jobs={"one": job}, schemes=chosen)), tmp_path / "workloads")
    assert "`loss_bound`: a ring has no servers" in [problem.what for problem in found.problems]
