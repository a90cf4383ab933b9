"""`kill -9` and Ctrl-C of a real `dlcp run`: nothing stays, nothing is half-written, the next run finishes the rest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from waits import in_time

from dlcp.runner.running.store import Store

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="emulates, which needs root; run as root"),
]

EXPERIMENT = {
    "format": 1,
    "name": "tiny",
    "description": "two short runs over TCP, to be killed",
    "seed": 3,
    "repeats": 2,
    "time_limit": "30 s",
    "topology": {"kind": "star", "hosts": 3, "rate": "50 Mbit/s"},
    "port_buffer": "40 kB",
    "scaling": {"lab_rate": "10 Gbit/s", "byte_scale": 200},
    "jobs": {
        "one": {"workload": "resnet50", "workers": ["h1", "h2"], "servers": ["h3"], "iterations": 3, "bucket": "60 kB"}
    },
    "schemes": [{"scheme": "tcp", "label": "TCP"}],
}
GONE_WITHIN_S = 5.0
KILLED_AFTER_S = (0.5, 1.5, 2.5, 4.0)
"""Instants of a run of about eight seconds: importing, building the fabric, training, between two runs."""


def start(folder: Path) -> subprocess.Popen[bytes]:
    (folder / "tiny.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    command = [sys.executable, "-m", "dlcp.cli.main", "run", "tiny.yaml"]
    # Files, not pipes: a survivor that held a pipe would make the test hang instead of fail.
    # A shell's background job, such as these tests may be, has SIGINT ignored, and so would what it starts.
    with (folder / "output.txt").open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=folder,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )


def descendants(pid: int) -> set[int]:
    """All processes below `pid`, as ids of this namespace."""
    children: dict[int, set[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), set()).add(int(entry.parent.name))
    found: set[int] = set()
    todo = {pid}
    while todo:
        todo = set().union(*(children.get(one, set()) for one in todo)) - found
        found |= todo
    return found


def alive(pids: set[int]) -> set[int]:
    """Those that still run; a zombie that waits for an init to reap it is gone for all that matters."""
    running = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            running.add(pid)
    return running


def links() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir()}


def mounts() -> set[str]:
    return {line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines() if "dlcp" in line}


def wait_until_gone(pids: set[int]) -> set[int]:
    in_time(lambda: not alive(pids), GONE_WITHIN_S, every_s=0.05)
    return alive(pids)


def finish(folder: Path) -> None:
    """The same command once more makes what is missing. Suspect runs are fine: this machine may be busy."""
    process = start(folder)
    assert process.wait(timeout=90) in (0, 4), (folder / "output.txt").read_text()
    store = Store(folder / "results", "tiny")
    results, invalid = store.load()
    assert sorted(result.repeat for result in results.values()) == [0, 1]
    assert (invalid, store.unfinished()) == ([], [])


@pytest.mark.parametrize("after_s", [*KILLED_AFTER_S[:-1], pytest.param(KILLED_AFTER_S[-1], marks=pytest.mark.long)])
def test_kill(after_s: float, tmp_path: Path) -> None:
    links_before, mounts_before = links(), mounts()
    process = start(tmp_path)
    time.sleep(after_s)
    below = descendants(process.pid)
    process.kill()
    process.wait()
    survivors = wait_until_gone(below)
    assert survivors == set(), [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in survivors]
    assert (links(), mounts()) == (links_before, mounts_before)
    for path in (tmp_path / "results").glob("tiny/*"):
        if not path.name.endswith(".tmp"):
            assert json.loads((path / "result.json").read_text())["run_id"] == path.name
    if after_s == KILLED_AFTER_S[-1]:
        finish(tmp_path)


@pytest.mark.parametrize("after_s", [0.9, 2.5])
def test_ctrl_c_ends_with_130_and_leaves_no_unfinished_run(after_s: float, tmp_path: Path) -> None:
    """The terminal sends SIGINT to every process of the foreground at once."""
    process = start(tmp_path)
    time.sleep(after_s)
    below = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    # A shell calls both 130: Python ends itself by SIGINT when the interrupt fell into a class that was being made.
    assert process.wait(timeout=20) in (130, -signal.SIGINT), (tmp_path / "output.txt").read_text()
    assert wait_until_gone(below) == set()
    assert Store(tmp_path / "results", "tiny").unfinished() == []
    text = (tmp_path / "output.txt").read_text()
    assert "the same command goes on from there" in text
    assert "Traceback" not in text, text
