"""The first command of a newcomer on less than this machine: a comparison whose every run is believed.

On one core, by a quota, with two schemes and two repeats of quickstart. With DLCP_ALL_WAYS=1 the whole of quickstart
(ten minutes each), and beside others' work of a known share, too. Every way begins without a calibration, as a fresh
machine does. One core by affinity is seen as one core, too; a run makes of it what it makes of the quota.
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
import yaml
from quiet import require_quiet, skip_if_stolen

from dlcp.agents.cpu_quota import usable_cores
from dlcp.errors import ExitCode
from dlcp.model.loading.experiment_files import find_experiment
from dlcp.runner.machine.invariance import busy_loop

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.geteuid() != 0, reason="emulates a fabric; run as root")]

WHOLE = "DLCP_ALL_WAYS" in os.environ
"""Quickstart as it is shipped, by every way."""
LIMIT_S = 30 * 60
"""How long one command may take; it hangs if it takes longer. Printed is how long it took."""
SCHEMES, REPEATS = ("TCP tuned", "DLCP"), 2
"""What is left of quickstart otherwise: both of its jobs, eight runs instead of 30."""
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
WAYS: dict[str, Less] = {"one-core": affinity, "quota-of-one-core": quota, "busy-loop": others}
SHOWN = ["quota-of-one-core", "busy-loop"] if WHOLE else ["quota-of-one-core"]


def in_it(words: Sequence[str], code: str) -> str:
    command = [*words, sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("way", ["one-core", "quota-of-one-core"])
def test_less_is_seen_as_less(way: str) -> None:
    """What the planner counts with, in a process that has less than the machine."""
    with WAYS[way]() as words:
        cores = float(in_it(words, "from dlcp.agents.cpu_quota import usable_cores; print(usable_cores())"))
    assert cores == 1.0 < usable_cores() or usable_cores() == 1.0


def experiment(folder: Path) -> str:
    """Quickstart, or the part of it that is run here: its name or its file."""
    if WHOLE:
        return "quickstart"
    written = yaml.safe_load(find_experiment("quickstart").read_text(encoding="utf-8"))
    written |= {"name": "part-of-quickstart", "repeats": REPEATS, "expect": []}
    written["schemes"] = [scheme for scheme in written["schemes"] if scheme["label"] in SCHEMES]
    file = folder / "part-of-quickstart.yaml"
    file.write_text(yaml.safe_dump(written, sort_keys=False), encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("way", SHOWN)
def test_quickstart_ends_with_a_comparison_that_is_believed(way: str, tmp_path: Path) -> None:
    """Where others' work has spoiled runs, what the last lines advise makes up for it, once."""
    program = str(Path(sys.executable).with_name("dlcp"))
    command = [program, "run", experiment(tmp_path)]
    require_quiet()
    with WAYS[way]() as words:
        begun_s = time.monotonic()
        for advice in ([], ["--retry-suspect"]):
            done = subprocess.run(
                [*words, *command, *advice],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
                env=os.environ | {"DLCP_STATE": str(tmp_path / "state")},
                timeout=LIMIT_S,
            )
            if done.returncode != ExitCode.SUSPECT:
                break
        took_s = time.monotonic() - begun_s
    fitted = next((line for line in done.stdout.splitlines() if "this machine: time dilation" in line), "")
    print(f"{way}: exit code {done.returncode} in {took_s:.0f} s, with {advice or 'no advice'}; {fitted}")
    results = [json.loads(file.read_text()) for file in tmp_path.glob("results/*/*/result.json")]
    if done.returncode == ExitCode.SUSPECT:
        suspect = [result["fidelity"] for result in results if result["status"] == "suspect"]
        skip_if_stolen([name for name, one in values.items() if not one["ok"]] for values in suspect)
        require_quiet()
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert len(results) == (30 if WHOLE else 2 * len(SCHEMES) * REPEATS)
    assert {result["status"] for result in results} == {"ok"}
