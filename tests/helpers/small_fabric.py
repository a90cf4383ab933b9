"""A small fabric for tests of deployments, `dlcp switch` in it, and what its switches hold, by their kernels' words."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from running_lab import RunningLab
from waits import in_time

UNTIL_S = 180
SWITCHES = ("a", "b", "c")
THREE = {
    "kind": "graph",
    "hosts": ["h1", "h2"],
    "switches": list(SWITCHES),
    "links": [
        {"a": "h1", "b": "a", "rate": "100 Mbit/s"},
        {"a": "a", "b": "b", "rate": "100 Mbit/s"},
        {"a": "b", "b": "c", "rate": "100 Mbit/s"},
        {"a": "h2", "b": "c", "rate": "100 Mbit/s"},
    ],
}
"""Three switches in a row between two hosts."""


def standing(folder: Path) -> Iterator[RunningLab]:
    """The fabric while a module's tests run, every switch holding `droptail`, confirmed: the last good state."""
    lab = RunningLab(THREE, folder)
    try:
        code, said = switch(lab, "apply", "droptail", "--yes")
        assert (code, said["status"]) == (0, "deployed"), said
        yield lab
    finally:
        lab.stop()


def switch(lab: RunningLab, *words: str, within_s: float = 120) -> tuple[int, dict[str, Any]]:
    """`dlcp switch … --json` on the controller: its exit code, and what it says."""
    done = command(lab, *words, "--json", within_s=within_s)
    assert done.stdout, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, said


def command(lab: RunningLab, *words: str, within_s: float = 120) -> subprocess.CompletedProcess[str]:
    """The same for a person."""
    return lab.run([sys.executable, "-m", "dlcp.cli.main", "switch", *words], within_s)


def held(lab: RunningLab) -> dict[str, Any]:
    """Switch → what is in force by its own program: digest, differences, pending, and its kernel's queues."""
    return {name: _held(lab, name) for name in SWITCHES}


def settled(lab: RunningLab, good: dict[str, Any]) -> bool:
    """Whether every switch comes to hold what it held, by itself, long after every timer of these tests."""
    return in_time(lambda: held(lab) == good, UNTIL_S, every_s=0.5)


def _held(lab: RunningLab, name: str) -> dict[str, Any]:
    read = json.loads(lab.on(name, f"FAULT_OFF=1 {sys.executable} -m dlcp.switches.linux read </dev/null"))
    queues = lab.on(name, "for d in $(ls /sys/class/net); do tc qdisc show dev $d; tc class show dev $d; done")
    kernel = sorted(line for line in queues.splitlines() if "htb" in line or "clsact" in line)
    return {**{word: read[word] for word in ("digest", "differences", "pending")}, "kernel": kernel}
