"""Whatever fails at whichever step of a deployment, the whole fabric comes back to its last good state."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from faults import ALWAYS, mend, plant
from running_lab import RunningLab
from small_fabric import held, settled, standing, switch
from waits import wait_until

from dlcp.errors import ExitCode

KINDS = ("exits", "killed", "cannot write", "cut off before", "cut off after")
STEPS = {
    "preflight": ("facts", (1, 1)),
    "backup": ("read", (1, 1)),
    "diff": ("diff", (1, 1)),
    "apply": ("apply", (1, 1)),
    "read": ("read", (2, 2)),
    "confirm": ("confirm", ALWAYS),
}
"""Step → what the program is asked there, and which of these calls fail."""
CUT_OFF = ("cut off before", "cut off after")
TIMER_S = {"apply": 15, "read": 15, "confirm": 30}
"""Where a switch that is cut off has to come back by itself; confirm: far above what all steps before take."""


@dataclass(frozen=True)
class Failure:
    """What fails where, and the status that is told at the end."""

    step: str
    kind: str
    node: str
    status: str

    @property
    def alone(self) -> bool:
        """Whether a person must roll back, for a reason that no order of messages mends: the switch has confirmed and
        nobody hears it, or it cannot write down what it is."""
        return (self.step, self.kind) in {
            ("read", "cannot write"),
            ("confirm", "cannot write"),
            ("confirm", "cut off after"),
        }


def status(step: str, kind: str) -> str:
    """How a deployment ends. A state that becomes unwritable is noticed where it is to be written: preflight, apply,
    confirm."""
    if kind == "cannot write":
        return {"preflight": "refused", "read": "mixed", "confirm": "mixed"}.get(step, "restored")
    if step in ("preflight", "backup", "diff"):
        return "refused"
    if kind in CUT_OFF:
        return "mixed" if step == "confirm" else "timers"
    return "restored"


FAILURES = [
    Failure(step, kind, "ab"[(row + column) % 2], status(step, kind))
    for row, step in enumerate(STEPS)
    for column, kind in enumerate(KINDS)
    if "DLCP_ALL_WAYS" in os.environ or step == "confirm" or (row + column) % 4 < 2
]
"""The first switch and the middle one by turns, so that both see every step and every kind.

Half of the pairs, which still have every step and every kind on both, and all of the last step; with DLCP_ALL_WAYS=1
every pair, which takes a quarter of an hour.
"""


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """Three switches that hold `droptail`, confirmed: the last good state."""
    yield from standing(tmp_path_factory.mktemp("lab"))


@pytest.mark.long
@pytest.mark.parametrize("failure", FAILURES, ids=lambda one: f"{one.step}-{one.kind}-on-{one.node}".replace(" ", "-"))
def test_a_failure_leaves_all_on_the_last_good_state(fabric: RunningLab, failure: Failure) -> None:
    good = held(fabric)
    verb, calls = STEPS[failure.step]
    plant(fabric, failure.node, verb, failure.kind, calls=calls)
    timer = ["--within", f"{TIMER_S[failure.step]} s"] if failure.kind in CUT_OFF and failure.step in TIMER_S else []
    code, said = switch(fabric, "apply", "dlcp-wred", "--yes", *([] if failure.alone else timer))
    try:
        assert (code, said["status"]) == (ExitCode.RUN_FAILED, failure.status), said
        if failure.alone:
            mend(fabric, failure.node)
            assert [name for name, one in held(fabric).items() if one != good[name]] == [failure.node]
            code, again = switch(fabric, "rollback", "--deployment", said["deployment"], "--yes")
            assert (code, again["status"]) == (0, "rolled back"), again
        elif timer:
            assert settled(fabric, good), (held(fabric), good)
        assert held(fabric) == good
    finally:
        mend(fabric, failure.node)


@pytest.fixture
def applying(fabric: RunningLab) -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    """Starts a deployment and gives it, and its process's number in the lab, when it is in the middle of apply: two
    switches have applied and wait, the one between them is still at it."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> tuple[subprocess.Popen[str], str]:
        plant(fabric, "b", "apply", "slow")
        dlcp = [sys.executable, "-m", "dlcp.cli.main", "switch", "apply", "dlcp-wred", "--yes", *words]
        shell = ["sh", "-c", 'echo $$; exec "$@"', "sh", *dlcp]
        inside = fabric.process.inside(["env", "-C", str(fabric.folder), f"DLCP_LAB={fabric.path}", *shell])
        process = subprocess.Popen(inside, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        pid = process.stdout.readline().strip()
        assert any(line.startswith("Compare") for line in process.stdout)
        while not all(held(fabric)[name]["pending"] for name in ("a", "c")):
            assert process.poll() is None
        return process, pid

    yield start
    mend(fabric, "b")
    for process in started:
        process.kill()
        process.communicate(timeout=60)


@pytest.mark.long
def test_a_controller_that_is_killed_leaves_the_way_back_to_the_timers(
    fabric: RunningLab, applying: Callable[..., tuple[subprocess.Popen[str], str]]
) -> None:
    good = held(fabric)
    _, pid = applying("--within", "60 s")
    fabric.run(["kill", "-9", pid])
    mend(fabric, "b")
    refused, said = switch(fabric, "apply", "dlcp-wred", "--yes")
    assert (refused, said["status"]) == (ExitCode.RUN_FAILED, "refused"), said
    assert "was never confirmed" in said["failed"]["Preflight"]["a"]
    assert settled(fabric, good), held(fabric)


@pytest.mark.long
def test_an_interrupt_turns_back_and_what_comes_late_is_refused(
    fabric: RunningLab, applying: Callable[..., tuple[subprocess.Popen[str], str]]
) -> None:
    good = held(fabric)
    process, pid = applying()
    fabric.run(["kill", "-INT", pid])
    assert process.stdout is not None
    said = process.stdout.read()
    assert process.wait(60) == ExitCode.INTERRUPTED, said
    assert "interrupted" in said
    assert "every switch is as it was before" in said
    assert held(fabric) == good
    assert not fabric.run(["pgrep", "-f", "ansible-playbook"]).stdout, "Ansible's workers have ended with it"
    mend(fabric, "b")
    applying = "pgrep -f 'switches[.]linux apply' || true"
    wait_until(lambda: not fabric.on("b", applying), "the slow one has ended", 60, every_s=0.1)
    assert held(fabric) == good, "the slow one comes to apply after it was taken back"
