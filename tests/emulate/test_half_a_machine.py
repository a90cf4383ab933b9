"""The first command of a newcomer on less than this machine: the whole comparison, believed, in a time that is said.

One core by a quota, and others' work of known share (with DLCP_ALL_WAYS=1). Every way begins without a calibration, as
a fresh machine does. One core by affinity is seen as one core, too; a run makes of it what it makes of the quota.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from quiet import require_quiet

from dlcp.agents.cpu_quota import usable_cores
from dlcp.errors import ExitCode
from dlcp.runner.machine.invariance import busy_loop

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.geteuid() != 0, reason="emulates a fabric, so it needs root")]

LIMIT_S = 15 * 60
"""On one core of a usual machine, calibration included, set-up of the clone not."""
OTHERS_LIMIT_S = 9 * 60
"""On two cores of one, with a fifth of a core taken by others."""
PERIOD_US = 10_000
"""Of the quota: short, for a throttled group stands still for the rest of a period, which a slow machine does not."""
RT_SHARE = 0.45
"""Of each core for the real-time threads of a group with a quota, which the quota does not hold for."""
BUSY_SHARE = 0.2


@contextmanager
def affinity() -> Iterator[Sequence[str]]:
    """Words before a command that keep it on one core."""
    yield ("taskset", "-c", str(min(os.sched_getaffinity(0))))


@contextmanager
def quota() -> Iterator[Sequence[str]]:
    """Words before a command that put it into a group of its own with a quota of one core."""
    first, second = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
    if first.is_dir():
        limits = {"cpu.cfs_period_us": PERIOD_US, "cpu.cfs_quota_us": PERIOD_US}
        if (first / "cpu.rt_runtime_us").exists():
            limits["cpu.rt_runtime_us"] = round(RT_SHARE * int((first / "cpu.rt_period_us").read_text()))
        parent = first
    elif "cpu" in (second / "cgroup.controllers").read_text().split():
        (second / "cgroup.subtree_control").write_text("+cpu")
        limits, parent = {"cpu.max": f"{PERIOD_US} {PERIOD_US}"}, second
    else:
        pytest.skip("no control group with CPU here; mount cgroup2, or run with the controller `cpu`")
    group = parent / f"dlcp-test-{os.getpid()}"
    group.mkdir()
    try:
        for name, value in limits.items():
            (group / name).write_text(f"{value}\n")
        yield ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "in-group")
    finally:
        for _ in range(50):  # a group may be removed when its last process is
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)


@contextmanager
def others() -> Iterator[Sequence[str]]:
    """Others' work that takes BUSY_SHARE of a core."""
    with busy_loop(BUSY_SHARE):
        yield ()


Less = Callable[[], AbstractContextManager[Sequence[str]]]
WAYS: dict[str, tuple[Less, float]] = {
    "one-core": (affinity, LIMIT_S),
    "quota-of-one-core": (quota, LIMIT_S),
    "busy-loop": (others, OTHERS_LIMIT_S),
}


SHOWN = ["quota-of-one-core", "busy-loop"] if os.environ.get("DLCP_ALL_WAYS") else ["quota-of-one-core"]
"""Ways in which quickstart runs whole; each takes ten minutes, so that `make verify` shows the harder one."""


def in_it(words: Sequence[str], code: str) -> str:
    command = [*words, sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("way", ["one-core", "quota-of-one-core"])
def test_less_is_seen_as_less(way: str) -> None:
    """What the planner counts with, in a process that has less than the machine."""
    with WAYS[way][0]() as words:
        cores = float(in_it(words, "from dlcp.agents.cpu_quota import usable_cores; print(usable_cores())"))
    assert cores == 1.0 < usable_cores() or usable_cores() == 1.0


@pytest.mark.parametrize("way", SHOWN)
def test_quickstart_ends_with_the_whole_comparison(way: str, tmp_path: Path) -> None:
    """Where others' work has spoiled runs, what the last lines advise makes up for it, once, in the same time."""
    less, limit_s = WAYS[way]
    program = str(Path(sys.executable).with_name("dlcp"))
    advice: list[str] = []
    require_quiet()
    with less() as words:
        begun_s = time.monotonic()
        for _ in range(2):
            done = subprocess.run(
                [*words, program, "run", "quickstart", *advice], cwd=tmp_path, capture_output=True, text=True,
                check=False, env=os.environ | {"DLCP_STATE": str(tmp_path / "state")}, timeout=4 * limit_s,
            )  # fmt: skip
            if done.returncode != ExitCode.SUSPECT:
                break
            advice = ["--retry-suspect"]
        took_s = time.monotonic() - begun_s
    fitted = next((line for line in done.stdout.splitlines() if "this machine: time dilation" in line), "")
    print(f"{way}: exit code {done.returncode} in {took_s:.0f} s, with {advice or 'no advice'}; {fitted}")
    if done.returncode == ExitCode.SUSPECT:
        require_quiet()
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    results = [json.loads(file.read_text()) for file in tmp_path.glob("results/quickstart/*/result.json")]
    assert len(results) == 30
    assert {result["status"] for result in results} == {"ok"}
    assert took_s < limit_s
