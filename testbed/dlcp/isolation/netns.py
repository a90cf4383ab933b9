"""Work in the network namespace of another process: commands, sysctls."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dlcp.errors import MachineCannot, Problem

_CLONE_NEWNET = 0x40000000
_SYSCTLS = Path("/proc/sys")


class Namespace:
    """A network namespace, held open. name: whose it is, for messages."""

    def __init__(self, name: str, pid: int) -> None:
        self.name = name
        self.pid = pid
        self._descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Let it go; it lives as long as a process or a descriptor holds it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The calling thread, and what it starts, is inside until the block ends."""
        outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _setns(self._descriptor)
            try:
                yield
            finally:
                _setns(outside)
        finally:
            os.close(outside)

    def run(self, command: Sequence[str], lines: Sequence[str] = ()) -> str:
        """Run a command inside, with `lines` as its standard input; returns its standard output.

        Raises Problem with the command's own words when it fails or complains.
        """
        with self.entered():
            text = "".join(f"{line}\n" for line in lines)
            done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode or done.stderr.strip():
            raise Problem(
                self.name,
                f"`{' '.join(command)}` failed (status {done.returncode}): {done.stderr.strip()}",
                "dlcp doctor shows what this machine lacks",
            )
        return done.stdout

    def read_sysctl(self, name: str) -> str | None:
        """A value as the kernel prints it, words separated by one space; None when it does not exist here."""
        path = _SYSCTLS / name.replace(".", "/")
        with self.entered():
            try:
                return " ".join(path.read_text().split())
            except FileNotFoundError:
                return None

    def write_sysctl(self, name: str, value: str) -> None:
        """Set a value and read it back. Raises MachineCannot when the kernel lacks it or keeps another."""
        path = _SYSCTLS / name.replace(".", "/")
        wanted = " ".join(value.split())
        with self.entered():
            try:
                path.write_text(wanted)
            except OSError as error:
                raise MachineCannot(
                    self.name,
                    f"sysctl {name} = {wanted!r} is refused: {error.strerror}",
                    "the kernel must offer it in a network namespace; dlcp doctor shows this kernel's abilities",
                ) from error
        kept = self.read_sysctl(name)
        if kept != wanted:
            raise MachineCannot(self.name, f"sysctl {name} was set to {wanted!r} but reads {kept!r}")


def _setns(descriptor: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(descriptor, _CLONE_NEWNET):
        error = ctypes.get_errno()
        raise OSError(error, f"setns: {os.strerror(error)}")
