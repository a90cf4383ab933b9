"""Starts agents in milliseconds: one process loads everything once, then forks a child for every host.

The zygote obeys a SOCK_SEQPACKET socket: one JSON message a child, with its channel, its network namespace and its
log as file descriptors. It ends when that socket ends; its children end when their channels do. A descriptor of the
namespace, not a process id, crosses the socket, so the zygote may live in another PID namespace than the hosts.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from dlcp.errors import Problem, encode_problem

_CLONE_NEWNET = 0x40000000
MAX_MESSAGE_BYTES = 65_536


def main(control_fd: int, script: str) -> None:
    """Load, say whether that went well, then fork on command."""
    control = socket.socket(fileno=control_fd)
    try:
        _load(script)
    except Problem as problem:
        control.send(json.dumps({"ok": False, **encode_problem(problem)}).encode())
        return
    try:
        control.send(json.dumps({"ok": True}).encode())
    except BrokenPipeError:
        return  # who wanted agents has ended meanwhile
    signal.signal(signal.SIGCHLD, _reap)
    gc.freeze()
    while True:
        try:
            message, descriptors, _, _ = socket.recv_fds(control, MAX_MESSAGE_BYTES, 3)
        except ConnectionResetError:
            return  # who wanted agents has ended, an answer unread
        if not message:
            return
        _fork(control, json.loads(message), *descriptors)


def _load(script: str) -> None:
    """Import what every agent needs; for a training script also its framework and data, and run one step."""
    import dlcp.agents.process.agent  # noqa: F401 - so that children find it loaded

    if script:
        from dlcp.agents.scripts import warm_script

        warm_script(script)


def _fork(control: socket.socket, message: dict[str, Any], channel: int, namespace: int, log: int) -> None:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            control.close()
            _become(message["name"], channel, namespace, log)
            status = 0
        except BaseException as error:
            print(f"agent {message['name']}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(status)
    for descriptor in (channel, namespace, log):
        os.close(descriptor)
    control.send(json.dumps({"ok": True, "pid": pid}).encode())


def _become(name: str, channel: int, namespace: int, log: int) -> None:
    """Turn this child into the agent of a host."""
    from dlcp.agents.process.agent import serve

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(log, sys.stderr.fileno())
    os.close(log)
    enter_network_namespace(namespace)
    os.close(namespace)
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(f"agent-{name}"[:15])
    serve(channel, os.dup(channel))


def enter_network_namespace(descriptor: int) -> None:
    """setns(2), which Python offers only from 3.12 on. Nothing to do, and no privilege needed, when this process is
    there already. OSError when it is refused."""
    wanted, current = os.fstat(descriptor), os.stat("/proc/self/ns/net")
    if (wanted.st_dev, wanted.st_ino) == (current.st_dev, current.st_ino):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _reap(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
