"""What an agent says of itself and of its machine before it is given work, for whoever is elsewhere."""

from __future__ import annotations

import os
import platform
import threading
from pathlib import Path
from typing import Any

from dlcp import __version__

_CAPABILITIES = {"net_admin": 12, "net_raw": 13, "sys_nice": 23}
"""Bits of capability(7) that decide what an agent may do."""


def introduction() -> dict[str, Any]:
    """version: of dlcp. folder: where relative paths lie. capabilities: net_admin lets sockets have buffers beyond the
    system's limit; realtime: a thread may have real-time priority, or why not."""
    effective = _effective_capabilities()
    return {
        "version": __version__,
        "pid": os.getpid(),
        "folder": os.getcwd(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "capabilities": {name: bool(effective >> bit & 1) for name, bit in _CAPABILITIES.items()},
        "realtime": _realtime(),
    }


def _effective_capabilities() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return int(value, 16)
    return 0


def _realtime() -> str:
    """Empty when a thread of this process may have real-time priority, else why not: tried in one that ends."""
    refused: list[str] = []

    def attempt() -> None:
        try:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))
        except OSError as error:
            refused.append(error.strerror or str(error))

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return refused[0] if refused else ""
