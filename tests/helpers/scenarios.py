"""Scenarios in private namespaces, each forked from a process that has imported what they need: a start costs a
hundredth of a second instead of half a one.

That process lives in private namespaces itself; a scenario gets its own inside them, and nothing outlives either.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from select import select
from typing import Any

from dlcp.isolation import private_namespaces

HERE = Path(__file__).parent
_NEW_NAMESPACES = 0x00020000 | 0x20000000 | 0x40000000
"""CLONE_NEWNS, CLONE_NEWPID and CLONE_NEWNET of linux/sched.h."""
_MOUNT_FLAGS = 2 | 4 | 8
"""MS_NOSUID, MS_NODEV and MS_NOEXEC of linux/mount.h."""
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Scenarios(threading.local):
    """Runs functions of test modules, one at a time in each thread: the process that forks them dies with the thread
    that started it."""

    _server: private_namespaces.PrivateProcess | None = None

    def run(self, scenario: Callable[..., Any], within_s: float, **arguments: Any) -> Any:
        """What the function returns; arguments and result travel as JSON. An error in it fails the test."""
        server = self._started()
        assert server.stdin
        assert server.stdout
        with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
            call = [scenario.__module__, scenario.__name__, arguments, out.name, err.name]
            server.stdin.write(json.dumps(call).encode() + b"\n")
            if not select([server.stdout], [], [], within_s)[0]:
                self.stop()
                raise AssertionError(f"not done within {within_s:g} s: {err.read().decode()}")
            code = server.stdout.readline().strip()
            if not code:
                self.stop()
            assert code == b"0", err.read().decode()
            return json.loads(out.read().splitlines()[-1])

    def stop(self) -> None:
        """Kill the process, and with it what runs."""
        if self._server:
            self._server.stop()
        self._server = None

    def _started(self) -> private_namespaces.PrivateProcess:
        if self._server is None:
            paths = os.pathsep.join(filter(None, sys.path))
            self._server = private_namespaces.start_private(
                "scenarios:serve",
                env={**os.environ, "PYTHONPATH": paths},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
            )
        return self._server


def serve(_: list[str]) -> int:
    """Inside: run what standard input asks for, a line each; answer with an exit code a line."""
    for line in sys.stdin.buffer:
        module, name, arguments, *streams = json.loads(line)
        with contextlib.suppress(Exception):  # the scenario tries again and tells
            import_module(module)
        child = os.fork()
        if child == 0:
            _die_with_the_parent()
            _isolated(module, name, arguments, streams)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return 0


def _isolated(module: str, name: str, arguments: dict[str, Any], streams: list[str]) -> None:
    """In namespaces of its own, as the first process of one of them. Does not return."""
    _check(_libc.unshare(_NEW_NAMESPACES), "unshare")
    first = os.fork()
    if first:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) & 0xFF)
    _die_with_the_parent()
    code = 1
    for number, path in enumerate([os.devnull, *streams]):
        file = os.open(path, os.O_RDWR)
        os.dup2(file, number)
        os.close(file)
    try:
        _check(_libc.mount(b"proc", b"/proc", b"proc", _MOUNT_FLAGS, None), "mount /proc")
        private_namespaces._furnish()
        result = getattr(import_module(module), name)(**arguments)
        print(json.dumps(result))
        code = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _die_with_the_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), what)
