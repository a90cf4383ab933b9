"""`dlcp` as a shell runs it, many times for the price of one start: a process that has imported what the commands need
forks for each of them.

A command is still a process of its own, with its own working folder, environment, standard streams and exit code. What
a start from nothing is like is tried by tests that start `python -m dlcp.cli.main`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import pkgutil
import shlex
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from select import select
from typing import Any

from extras import absent_module

PRELOADED = ("dlcp.model", "dlcp.schemes", "dlcp.switches", "dlcp.runner", "dlcp.bench")
"""All modules of these packages, which most commands import, but those that need an extra which is not installed."""
LIMIT_S = 60
_COMMAND = [sys.executable, str(Path(__file__))]
_PR_SET_PDEATHSIG = 1
"""prctl(2)."""


def dlcp(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, limit_s: float = LIMIT_S
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; what subprocess.run returns of `python -m dlcp.cli.main ARGUMENTS`, as text."""
    server = _server()
    assert server.stdin
    assert server.stdout
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        request = {
            "arguments": arguments,
            "cwd": str(cwd),
            "env": dict(os.environ if env is None else env),
            "streams": [f"/proc/{os.getpid()}/fd/{stream.fileno()}" for stream in (out, err)],
        }
        with contextlib.suppress(BrokenPipeError):  # it has ended, so that it does not answer either
            server.stdin.write(json.dumps(request).encode() + b"\n")
            server.stdin.flush()
        if not select([server.stdout], [], [], limit_s)[0]:
            os.killpg(server.pid, signal.SIGKILL)
            _server.cache_clear()
            raise subprocess.TimeoutExpired(["dlcp", *arguments], limit_s)
        if not (answer := server.stdout.readline()):
            raise RuntimeError(f"nothing forks commands: {shlex.join(_COMMAND)} ended with status {server.wait()}")
        code = int(answer)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode())
    return subprocess.CompletedProcess(["dlcp", *arguments], code, *texts)


@functools.cache
def _server() -> subprocess.Popen[bytes]:
    """The process that forks. It, and what it runs, end when this one does."""
    return subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True)


def _serve() -> None:
    """Fork for each line of standard input; answer with the exit code."""
    _die_with_the_parent()
    import dlcp.cli.main

    for package in PRELOADED:
        for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            _preload(module.name)
    for line in sys.stdin.buffer:
        child = os.fork()
        if child == 0:
            _die_with_the_parent()
            _become(json.loads(line), dlcp.cli.main.main)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _preload(name: str) -> None:
    """Import a module. What it misses of an extra is for the command to say that needs it."""
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        if absent_module(error) is None:
            raise


def _die_with_the_parent() -> None:
    """Also when it is killed while a command runs, which would go on without anybody who waits for it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _become(request: dict[str, Any], main: Callable[[], None]) -> None:
    """The child: what the shell would have set up, then the command. Does not return."""
    code = 1  # as Python's, of an error that nobody catches
    try:
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        files = [os.open(os.devnull, os.O_RDONLY), *(os.open(path, os.O_WRONLY) for path in request["streams"])]
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        sys.argv = ["dlcp", *request["arguments"]]
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve()
