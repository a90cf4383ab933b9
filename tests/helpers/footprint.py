"""What an emulation must not touch: the machine's own network namespace, its mounts, its pinned programs."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from pathlib import Path
from typing import Any

_SYSCTLS = Path("/proc/sys/net")
_COUNTERS = frozenset({"nf_conntrack_count"})
"""Files there that count what happens, and set nothing."""
_VOLATILE = frozenset({"valid_life_time", "preferred_life_time", "expires"})


def footprint() -> dict[str, Any]:
    """Links, addresses, routes, qdiscs, sysctls, mounts and pins, as they are here."""
    shown = {
        " ".join(command): _settled(json.loads(_output(command) or "[]"))
        for command in (
            ["ip", "-json", "link"],
            ["ip", "-json", "address"],
            ["ip", "-json", "route", "show", "table", "all"],
            ["ip", "-json", "rule"],
            ["ip", "-json", "neighbour", "show", "nud", "permanent"],
            ["tc", "-json", "qdisc"],
        )
    }
    return shown | {
        "sysctls": dict(sorted(_sysctls().items())),
        "mounts": Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines(),
        "named namespaces": _listed(Path("/run/netns")),
        "pins": _listed(Path("/sys/fs/bpf")),
        "runtime directory": _listed(Path("/run/dlcp")),
    }


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Name → (before, after) of what is not the same; of sysctls, those that differ."""
    found: dict[str, Any] = {
        name: (before[name], after[name]) for name in before if name != "sysctls" and before[name] != after[name]
    }
    old, new = before["sysctls"], after["sysctls"]
    found |= {name: (old.get(name), new.get(name)) for name in {*old, *new} if old.get(name) != new.get(name)}
    return found


def program_is_loaded(program_id: int) -> bool:
    """Whether the kernel still has an eBPF program of that id; ids are not used again."""
    library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    descriptor = library.bpf_prog_get_fd_by_id(ctypes.c_uint32(program_id))
    if descriptor < 0:
        return False
    os.close(descriptor)
    return True


def _sysctls() -> dict[str, str]:
    found = {}
    for folder, _, names in os.walk(_SYSCTLS):
        for name in names:
            if name in _COUNTERS:
                continue
            try:
                found[f"{folder}/{name}"] = Path(folder, name).read_text(encoding="latin-1")
            except OSError:
                continue  # some may only be written
    return found


def _listed(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*")) if folder.is_dir() else []


def _settled(shown: Any) -> Any:
    if isinstance(shown, list):
        return [_settled(one) for one in shown]
    if isinstance(shown, dict):
        return {key: _settled(value) for key, value in shown.items() if key not in _VOLATILE}
    return shown


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
