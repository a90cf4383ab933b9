"""A timer on a device that undoes what is not confirmed: by systemd where it runs, else a process in its own session.

Standard library alone, Python 3.9 or later: it runs with the device's own Python. The folder holds `timer.json`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from typing import Any

FILE = "timer.json"


def start(folder: str, delay_s: float, argv: list[str], name: str) -> None:
    """Run a command after a delay, unless `stop` comes before. name: of this timer, in words that a unit's name may
    hold. Raises OSError or subprocess.CalledProcessError when it cannot be armed."""
    stop(folder)
    told: dict[str, Any] = {"until_s": time.time() + delay_s, "argv": argv}
    if os.path.isdir("/run/systemd/system") and shutil.which("systemd-run"):
        told["unit"] = f"dlcp-restore-{name}"
        subprocess.run(
            ["systemd-run", "--unit", told["unit"], "--on-active", str(max(1, round(delay_s))), "--", *argv],
            check=True,
            capture_output=True,
        )
    else:
        sleeper = subprocess.Popen(
            ["/bin/sh", "-c", 'sleep "$0"; exec "$@"', str(delay_s), *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        told.update(pid=sleeper.pid, began=_began(sleeper.pid))
    path = os.path.join(folder, FILE)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(told, file)
    os.replace(path + ".new", path)


def stop(folder: str) -> bool:
    """Disarm. False where none was armed, or it had run out."""
    told = _told(folder)
    if told is None:
        return False
    running = left_s(folder) is not None
    if "unit" in told:
        subprocess.run(["systemctl", "stop", told["unit"] + ".timer"], check=False, capture_output=True)
    elif running:
        os.killpg(told["pid"], signal.SIGKILL)
    os.remove(os.path.join(folder, FILE))
    return running


def left_s(folder: str) -> float | None:
    """Seconds until it runs out; None where none is armed, or it has run out."""
    told = _told(folder)
    if told is None:
        return None
    if "unit" in told:
        state = subprocess.run(["systemctl", "is-active", "--quiet", told["unit"] + ".timer"], check=False)
        armed = state.returncode == 0
    else:
        armed = _began(told["pid"]) == told["began"] is not None
    left = told["until_s"] - time.time()
    return left if armed and left > 0 else None


def ran_out(folder: str) -> bool:
    """Whether one was armed that nobody disarmed in time, or that a reboot swept away."""
    return _told(folder) is not None and left_s(folder) is None


def _told(folder: str) -> dict[str, Any] | None:
    try:
        with open(os.path.join(folder, FILE), encoding="utf-8") as file:
            told: dict[str, Any] = json.load(file)
            return told
    except FileNotFoundError:
        return None


def _began(pid: int) -> str | None:
    """When a process was started: with its id it names it for good. None where it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            state, *rest = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else rest[18]
