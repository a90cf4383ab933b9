"""A timer on a device that undoes what is not confirmed: by systemd where it runs, else a process in its own session.

Between the moment that it runs out and its command's first step somebody may confirm; and what is killed as it arms one
leaves a timer that nobody knows. So the command takes the lock that `start` and `stop` are called under, and then does
nothing unless it is still waited for: timer.json (or a file of the caller's) must name its deployment.

Standard library alone, Python 3.9 or later, to run with any Python of a device. The folder holds `timer.json`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from typing import Any

from .private_folder import replace_file

FILE = "timer.json"


def start(folder: str, delay_s: float, argv: list[str], name: str) -> None:
    """Run a command after a delay in seconds, unless `stop` comes before; in place of an earlier timer of this folder.

    name: of this timer, in words that a unit's name may hold. Raises OSError or subprocess.CalledProcessError when it
    cannot be armed; then all is as it was.
    """
    earlier = _told(folder)
    told: dict[str, Any] = {"name": name, "until_s": _now_s() + delay_s, "argv": argv}
    told.update(_by_systemd(delay_s, argv, name) if _systemd_is_ours() else _by_sleeper(delay_s, argv))
    try:
        replace_file(os.path.join(folder, FILE), json.dumps(told).encode())
    except OSError:
        _disarm(told)
        raise
    if earlier is not None:  # not before: at every moment one of them is armed
        _disarm(earlier)


def stop(folder: str) -> bool:
    """Disarm. False where none was armed, or it had run out. What the timer runs may call it of itself."""
    told = _told(folder)
    if told is None:
        return False
    running = left_s(folder) is not None
    os.remove(os.path.join(folder, FILE))
    if running or "unit" in told:
        _disarm(told)
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
    left = float(told["until_s"]) - _now_s()
    return left if armed and left > 0 else None


def armed_for(folder: str) -> str | None:
    """The name of the timer that is armed, or has run out and been disarmed by nobody; None where there is none."""
    told = _told(folder)
    return None if told is None else str(told["name"])


def ran_out(folder: str) -> bool:
    """Whether one was armed that nobody disarmed in time, or that a reboot swept away."""
    return _told(folder) is not None and left_s(folder) is None


def _by_systemd(delay_s: float, argv: list[str], name: str) -> dict[str, Any]:
    """A transient timer. By itself systemd may be a minute late; and what failed would keep its name taken."""
    unit = f"dlcp-restore-{name}-{os.getpid()}"  # an earlier one of that name may still wait
    words = ["--collect", "--timer-property=AccuracySec=100ms", "--on-active", str(max(1, round(delay_s)))]
    subprocess.run(["systemd-run", "--unit", unit, *words, "--", *argv], check=True, capture_output=True)
    return {"unit": unit}


def _by_sleeper(delay_s: float, argv: list[str]) -> dict[str, Any]:
    sleeper = subprocess.Popen(
        ["/bin/sh", "-c", 'sleep "$0"; exec "$@"', str(delay_s), *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )
    return {"pid": sleeper.pid, "began": _began(sleeper.pid)}


def _disarm(told: dict[str, Any]) -> None:
    if "unit" in told:
        subprocess.run(["systemctl", "stop", told["unit"] + ".timer"], check=False, capture_output=True)
    elif told["pid"] != os.getpid():
        _kill_group(told["pid"], told["began"])


def _kill_group(leader: int, began: str | None) -> None:
    """Kill a sleeper and its `sleep`. Once stopped through its own handle it cannot end, so that its number, which is
    its group's, cannot become another's before the group is killed."""
    try:
        handle = os.pidfd_open(leader)
    except OSError:
        return
    try:
        if _began(leader) == began is not None:
            signal.pidfd_send_signal(handle, signal.SIGSTOP)
            os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has just ended
    finally:
        os.close(handle)


def _now_s() -> float:
    """Since the machine was started, sleep included: a clock that is set meanwhile means nothing here."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _systemd_is_ours() -> bool:
    """Whether a unit would run where this process does: systemd is process 1, and in the same network namespace."""
    try:
        with open("/proc/1/comm", encoding="utf-8") as file:
            first = file.read().strip()
        same = os.readlink("/proc/1/ns/net") == os.readlink("/proc/self/ns/net")
    except OSError:
        return False
    return first == "systemd" and same and shutil.which("systemd-run") is not None


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
