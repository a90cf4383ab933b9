"""What a part of a host's settings must offer: read them, write them. Python 3.8 and its standard library alone."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

LIMIT_S = 30
"""For one command: a host that hangs in it must not hang the fabric."""


class Refused(Exception):  # noqa: N818 - it is told to a person
    """A value that the host does not take. The text says which, and the host's own words."""


class Absent:
    """A tool or feature that this host does not have. reason: for the manifest."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Part:
    """One kind of settings of one host. tag: the first word of their names."""

    tag = ""

    def __init__(self, interface: str) -> None:
        self.interface = interface

    def wanted(self, settings: Mapping[str, Any]) -> dict[str, str]:
        """Name → value, of what is asked for; empty when nothing is."""
        raise NotImplementedError

    def read(self, names: Sequence[str]) -> dict[str, str | Absent]:
        """Each one's value as the host prints it, or why there is none."""
        raise NotImplementedError

    def write(self, values: Mapping[str, str]) -> None:
        """Set them. Raises Refused."""
        raise NotImplementedError

    def beside(self, names: Sequence[str]) -> list[str]:
        """Others that the host may change on its own when these are written: saved too, and put back."""
        return []

    def settled(self, name: str, value: str, found: str) -> str:
        """A wanted value as the host will print it; `found` is what it prints before."""
        return value


def tool(words: Sequence[str]) -> str | Absent:
    """A command's output, or why there is none."""
    if shutil.which(words[0]) is None:
        return Absent(f"{words[0]} is not installed")
    done = _run(words)
    if done.returncode:
        return Absent("`{}` says: {}".format(" ".join(words), _said(done)))
    return done.stdout


def must(words: Sequence[str], limit_s: float = LIMIT_S) -> str:
    """A command's output. Raises Refused with its own words, or that there is no such command, or no end within the
    limit."""
    done = _run(words, limit_s)
    if done.returncode:
        raise Refused("`{}` failed: {}".format(" ".join(words), _said(done)))
    return done.stdout


def _run(words: Sequence[str], limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
    """What does not start or does not end is a failure like another: a host must not be left half-way for it."""
    try:
        return subprocess.run(
            list(words), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(list(words), 124, "", f"did not end within {limit_s:.0f} s")
    except OSError as error:
        return subprocess.CompletedProcess(list(words), 127, "", f"does not start: {error.strerror}")


def _said(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return lines[-1].strip() if lines else f"status {done.returncode} and no word"
