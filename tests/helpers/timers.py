"""Timers of devices (dlcp.switches.rollback_timer) that run out when a test says so, not by the clock."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path


def run_out(folder: Path) -> None:
    """Have the timer of a folder, a sleeper, go off by ending its `sleep`; the command follows in its own time."""
    sleeper = json.loads((folder / "timer.json").read_bytes())["pid"]
    children = Path(f"/proc/{sleeper}/task/{sleeper}/children")
    while not (sleeping := children.read_text().split()):  # the shell has only just begun
        pass
    os.kill(int(sleeping[0]), signal.SIGKILL)
