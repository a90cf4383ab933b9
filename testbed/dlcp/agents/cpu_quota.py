"""How much CPU this process may use: its cores, or less where a control group (of a container, a service) limits it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_PROC = Path("/proc/self")


@dataclass(frozen=True)
class _Hierarchy:
    """A mounted hierarchy of control groups. root: the group that is mounted at `mount`. own: that of this process."""

    mount: Path
    root: PurePosixPath
    own: PurePosixPath
    version: int


def usable_cores(proc: Path = _PROC) -> float:
    """Cores that this process may keep busy, a fraction where a quota says so. proc: /proc/self, or a copy of it."""
    quotas = [quota for hierarchy in _hierarchies(proc) for quota in _quotas(hierarchy)]
    return min([float(len(os.sched_getaffinity(0))), *quotas])


def _hierarchies(proc: Path) -> Iterator[_Hierarchy]:
    """Those that can limit CPU: the one of version 2, and of version 1 the one with the controller `cpu`."""
    paths: dict[int, PurePosixPath] = {}
    for line in _lines(proc / "cgroup"):
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            paths[2] = PurePosixPath(path)
        elif "cpu" in controllers.split(","):
            paths[1] = PurePosixPath(path)
    for line in _lines(proc / "mountinfo"):
        place, _, kind = line.partition(" - ")
        fields, (file_system, _, options) = place.split(), kind.split(maxsplit=2)
        version = {"cgroup2": 2, "cgroup": 1}.get(file_system)
        if version in paths and (version == 2 or "cpu" in options.split(",")):
            yield _Hierarchy(Path(fields[4]), PurePosixPath(fields[3]), paths[version], version)


def _quotas(hierarchy: _Hierarchy) -> Iterator[float]:
    """Cores that a group and all those above it may use, where they are limited."""
    try:
        inside = hierarchy.own.relative_to(hierarchy.root)
    except ValueError:  # the process's group lies outside what is mounted here
        return
    for group in (inside, *inside.parents):
        folder = hierarchy.mount / group
        with contextlib.suppress(OSError, ValueError):  # a root has no such file; "max" is no number
            if hierarchy.version == 2:
                quota, period = (int(word) for word in (folder / "cpu.max").read_text(encoding="utf-8").split())
            else:
                quota = int((folder / "cpu.cfs_quota_us").read_text(encoding="utf-8"))
                period = int((folder / "cpu.cfs_period_us").read_text(encoding="utf-8"))
            if quota > 0:
                yield quota / period


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
