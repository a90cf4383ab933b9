"""What a deployment prints, held as text. After a wanted change: make golden, then read the difference."""

from __future__ import annotations

import io
from contextlib import chdir
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from test_inventory import LAB, write
from test_switch_render import GOLDEN, held

from dlcp.cli.show.deployment import DeployScreen, print_outcome
from dlcp.model.lab.load_inventory import load_inventory
from dlcp.runner.lab.deploy import ENDED, Outcome
from dlcp.runner.lab.fabric_plan import plan_fabric
from dlcp.switches.vendor.files import find_intent, load_intent

SAME = "@@ -1 +1 @@\n-in force [1]\n+wanted\n"


@pytest.fixture
def out() -> Console:
    return Console(file=io.StringIO(), width=160, highlight=False)


def text(out: Console) -> str:
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_a_deployment(tmp_path: Path, out: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = count(0.0, 1.5)
    monkeypatch.setattr("dlcp.cli.show.deployment.time", SimpleNamespace(monotonic=lambda: next(seconds)))
    lab = load_inventory(write(tmp_path, LAB))
    wanted = load_intent(find_intent("dlcp-wred")).model_copy(update={"on_unsupported": "degrade"})
    screen = DeployScreen(out)
    screen.planned(plan_fabric(lab, wanted))
    for phase in ("Preflight", "Compare"):
        screen.begins(phase, 2)
        screen.advances(phase, 2)
    screen.differs({"s1": SAME, "s2": SAME, "s3": ""})
    screen.begins("Apply", 2)
    screen.fails("Apply", "s2", "no answer [from it]\n    plug it in")
    screen.advances("Apply", 1)
    screen.over()
    held(GOLDEN / "deploy" / "deployment.txt", text(out))


@pytest.mark.parametrize("status", ENDED)
@pytest.mark.parametrize("interrupted", [False, True], ids=["", "interrupted"])
def test_an_outcome(tmp_path: Path, out: Console, status: str, interrupted: bool) -> None:
    phase = {"refused": "Preflight", "timers": "Restore", "mixed": "Restore", "restored": "Apply"}.get(status)
    folder = tmp_path / "deployments" / "rack" / "20260102T030405Z-1a2b"
    failed = {phase: {"s2": "no answer [from it]"}} if phase else {}
    with chdir(tmp_path):
        lab = load_inventory(write(Path(), LAB))
        print_outcome(out, lab, Outcome(status, folder, {"s1": SAME, "s2": ""}, failed, interrupted))
    name = f"{status.replace(' ', '-')}{'-interrupted' * interrupted}.txt"
    held(GOLDEN / "deploy" / name, text(out))
