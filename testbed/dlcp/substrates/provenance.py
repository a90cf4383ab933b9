"""Where a result comes from: code, versions, kernel, seeds, sysctls by allow-list. Nothing that names a person."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dlcp.paths import REPOSITORY

SYSCTLS = (
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.netdev_max_backlog",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_congestion_control",
)
"""What of the machine's settings may decide a result; nothing else is recorded."""
_PACKAGES = ("dlcp", "numpy", "mininet", "torch", "pyarrow", "pydantic")


def collect(seed: int) -> dict[str, Any]:
    """Commit (empty outside a git checkout), whether the tree that runs depend on differs from it, versions, kernel,
    cores, sysctls, and when this was asked (UTC)."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "absent"
    return {
        "commit": _git("rev-parse", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no", "--", ".", *_NOT_OF_RUNS)),
        "python": platform.python_version(),
        "versions": versions,
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "seed": seed,
        "made_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "sysctls": {name: value for name in SYSCTLS if (value := _sysctl(name)) is not None},
    }


_NOT_OF_RUNS = (":(exclude)analysis", ":(exclude)testbed/experiments/tuned")
"""Where `dlcp paper` and `dlcp tune` write: no run depends on the page, and each carries its part of the record."""


def _git(*arguments: str) -> str:
    # git refuses a checkout of another user, whose configuration could name programs; ours runs this very code.
    command = ["git", "-c", f"safe.directory={REPOSITORY}", "-C", str(REPOSITORY), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _sysctl(name: str) -> str | None:
    path = Path("/proc/sys") / name.replace(".", "/")
    return " ".join(path.read_text().split()) if path.exists() else None
