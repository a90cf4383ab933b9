"""Hello of an agent: facts about itself and its machine, sent before it is given work."""

from __future__ import annotations

import os
import platform
import pwd
import socket
import threading
from pathlib import Path
from typing import Any

from dlcp import __version__

_CAPABILITIES = {"net_admin": 12, "net_raw": 13, "sys_nice": 23}
"""Bits of capability(7) that decide what an agent may do."""
_BUFFER_BYTES = 64 << 20
"""More than any system's limit is by default: what an agent gets of it says whether it is held to one."""
_SO_RCVBUFFORCE, _SO_SNDBUFFORCE = 33, 32


def introduction() -> dict[str, Any]:
    """version: of dlcp. folder: where relative paths lie. capabilities: net_admin lets sockets have buffers beyond the
    system's limit; realtime: empty when a thread may have real-time priority, or why not; send_buffer_bytes,
    receive_buffer_bytes: what a socket got that asked for _BUFFER_BYTES (the kernel counts twice what is asked for)."""
    effective = _effective_capabilities()
    return {
        "version": __version__,
        "pid": os.getpid(),
        "user": _user(),
        "folder": os.getcwd(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "capabilities": {name: bool(effective >> bit & 1) for name, bit in _CAPABILITIES.items()},
        "realtime": _realtime(),
        "send_buffer_bytes": _buffer_bytes(_SO_SNDBUFFORCE, socket.SO_SNDBUF),
        "receive_buffer_bytes": _buffer_bytes(_SO_RCVBUFFORCE, socket.SO_RCVBUF),
    }


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a user of a container that no file names
        return str(os.geteuid())


def _buffer_bytes(force: int, option: int) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as tried:
        try:
            tried.setsockopt(socket.SOL_SOCKET, force, _BUFFER_BYTES)
        except PermissionError:
            tried.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
        return tried.getsockopt(socket.SOL_SOCKET, option)


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
