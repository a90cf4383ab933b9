"""Runs a Python entry point in network, mount and process namespaces of its own.

Everything that an emulation makes (links, namespaces of hosts, mounts, eBPF programs, processes) lives inside and goes
away with the first process there. That process dies when its caller does, however the caller ends: setpriv and
unshare ask the kernel for it, and a pipe that only the caller holds covers the moments before they have.
"""

from __future__ import annotations

import functools
import importlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dlcp.errors import ExitCode, MachineCannot, Problem
from dlcp.isolation.process_tree import parents
from dlcp.paths import sudo_command

RUNTIME = Path("/run/dlcp")
"""An empty directory outside; inside, a tmpfs of its own."""

BPF_PINS = RUNTIME / "bpf"
"""A bpffs inside. Not under /sys: Mininet's hosts have another /sys."""

WHY_ROOT = "it makes network namespaces and loads eBPF programs"
"""Reason shown to a person who must run the command as root."""

_UNSHARE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
_KILLED = 137


class PrivateProcess(subprocess.Popen[bytes]):
    """A running entry point. Its death is certain when this object or its caller goes."""

    _lifeline = -1

    def __init__(self, command: Sequence[str], lifeline: int, **options: Any) -> None:
        """Start. lifeline: the caller's end of the pipe; from here on this object's to close, whatever happens."""
        self._lifeline = lifeline
        super().__init__(command, **options)

    def stop(self) -> int:
        """Kill everything inside, wait, and return the exit status."""
        self._let_go()
        self.kill()
        return self.wait()

    def attend(self) -> int:
        """Wait while Ctrl-C is for what runs inside alone, then stop it; returns its exit status."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # after its start: a child would inherit the deafness
        try:
            return self.wait()
        finally:
            signal.signal(signal.SIGINT, before)
            self.stop()

    def inside(self, command: Sequence[str]) -> list[str]:
        """A command line that runs `command` in the namespaces, as one more process. Problem when they have ended."""
        for pid, parent in parents().items():
            if parent == self.pid:
                return ["nsenter", "--target", str(pid), "--net", "--mount", "--pid", *command]
        raise Problem("private namespaces", "they have ended")

    def __del__(self, *arguments: Any) -> None:
        self._let_go()
        super().__del__(*arguments)

    def _let_go(self) -> None:
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:
            os.close(lifeline)


def start_private(entry: str, arguments: Sequence[str] = (), **options: Any) -> PrivateProcess:
    """Start "package.module:function", which takes a list of strings and returns an exit status.

    options: those of subprocess.Popen; the standard streams are the caller's unless they say otherwise. SIGINT from
    a terminal reaches the entry point, as soon as it is loaded, as KeyboardInterrupt. To be called from a thread that
    lives as long as the process is wanted: the kernel takes a thread's end for its parent's death.

    Raises MachineCannot when namespaces cannot be made here.
    """
    _check()
    child_end, our_end = os.pipe()
    command = ["setpriv", "--pdeathsig", "KILL", *_UNSHARE]
    command += [sys.executable, "-m", "dlcp.isolation.private_namespaces", str(child_end), entry, *arguments]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # what it starts inherits it, see _main
    try:
        return PrivateProcess(command, our_end, pass_fds=(*options.pop("pass_fds", ()), child_end), **options)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(child_end)


def run_private(entry: str, arguments: Sequence[str] = (), **options: Any) -> int:
    """start_private, wait, and return the exit status; whatever ends the wait also ends the process."""
    process = start_private(entry, arguments, **options)
    try:
        return process.wait()
    except KeyboardInterrupt:
        return process.wait()  # the terminal has interrupted both; let the inside put its work in order
    finally:
        process.stop()


@functools.cache
def _check() -> None:
    if os.geteuid() != 0:
        raise MachineCannot("emulation", f"needs root: {WHY_ROOT}", f"run it as root: {sudo_command()} …")
    for program, package in (("setpriv", "util-linux"), ("unshare", "util-linux"), ("mount", "mount")):
        if shutil.which(program) is None:
            raise MachineCannot(program, "is not installed", f"run: apt-get install {package}")
    tried = subprocess.run([*_UNSHARE, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        raise MachineCannot(
            "unshare",
            f"private namespaces cannot be made here: {tried.stderr.strip()}",
            "in a container: start it with --privileged",
        )


def _die_with_the_caller(lifeline: int) -> None:
    """Ends this process, and with it all of its namespace, when the other end of the pipe closes."""
    os.set_inheritable(lifeline, False)

    def watch() -> None:
        os.read(lifeline, 1)
        os._exit(_KILLED)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


def _furnish() -> None:
    """A tmpfs and a bpffs that nobody outside sees, and a loopback interface."""
    try:
        RUNTIME.mkdir(exist_ok=True)
    except OSError as error:
        raise MachineCannot(str(RUNTIME), f"cannot be made: {error.strerror}") from error
    _run(["mount", "-t", "tmpfs", "-o", "mode=0700", "dlcp", str(RUNTIME)])
    BPF_PINS.mkdir()
    _run(["mount", "-t", "bpf", "-o", "mode=0700", "bpf", str(BPF_PINS)])
    _run(["ip", "link", "set", "lo", "up"])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MachineCannot(" ".join(command), f"failed: {done.stderr.strip()}", "dlcp doctor shows what is missing")


def _main(lifeline: str, entry: str, *arguments: str) -> int:
    _die_with_the_caller(int(lifeline))
    module, _, name = entry.partition(":")
    try:
        _furnish()
        function: Callable[[list[str]], int] = getattr(importlib.import_module(module), name)
        # Not before: Python makes other errors of an interrupt that falls into a class as a module makes it.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return function(list(arguments))
    except Problem as problem:
        print(problem, file=sys.stderr)
        return int(problem.exit_code)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
