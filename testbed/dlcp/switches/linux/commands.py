"""ip and tc, which a box has; their words when they fail."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dlcp.errors import MachineCannot, Problem

_LIMIT_S = 30
_SYSCTLS = Path("/proc/sys")


def run(command: Sequence[str], lines: Sequence[str] = ()) -> str:
    """Run a command with lines as its standard input; returns what it prints. Raises Problem with its own words."""
    if shutil.which(command[0]) is None:
        raise MachineCannot(command[0], "is not installed", "run: apt-get install iproute2")
    text = "".join(f"{line}\n" for line in lines)
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise Problem(" ".join(command), f"did not end within {_LIMIT_S} s") from error
    if done.returncode:
        stderr_end = " / ".join(done.stderr.strip().splitlines()[-3:])
        raise MachineCannot(
            " ".join(command), f"failed: {stderr_end}", "`python -m dlcp.switches.linux facts` tries it all"
        )
    return done.stdout


def json_lists(command: Sequence[str], lines: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Return the JSON that a command prints for a batch, one list per line."""
    if not lines:
        return []
    text, decoder, lists, at = run(command, lines), json.JSONDecoder(), list[Any](), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        value, at = decoder.raw_decode(text, at)
        lists.append(value)
    if len(lists) != len(lines):
        raise MachineCannot(" ".join(command), f"printed {len(lists)} lists for {len(lines)} lines")
    return lists


def read_sysctl(name: str) -> str | None:
    """A value; None where this kernel has none. name: with dots, but of a device's name."""
    try:
        return _path(name).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def write_sysctl(name: str, value: str) -> None:
    """Set a value and read it back. Raises MachineCannot when the kernel refuses it."""
    try:
        _path(name).write_text(value, encoding="utf-8")
    except OSError as error:
        raise MachineCannot(f"sysctl {name}", f"{value} is refused: {error.strerror}") from error
    if (kept := read_sysctl(name)) != value:
        raise MachineCannot(f"sysctl {name}", f"was set to {value} but reads {kept}")


def _path(name: str) -> Path:
    """net/ipv4/conf/eth0.10/forwarding has a dot in a device's name: so names have slashes here."""
    return _SYSCTLS / name
