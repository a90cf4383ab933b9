"""Agents as on hosts of a lab: processes over pipes, each in a folder and with a clock of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from dlcp.agents.control.handles import AgentHandle

STDIO = [sys.executable, "-m", "dlcp.agents.process.stdio"]


def time_namespaces() -> str:
    """Why there are none here; empty when there are."""
    if os.geteuid() != 0:
        return "a time namespace of one's own needs root"
    tried = subprocess.run(
        ["unshare", "--time", "--monotonic", "1", "true"], capture_output=True, text=True, check=False
    )
    return f"the kernel gives no time namespace: {tried.stderr.strip()}" if tried.returncode else ""


@contextmanager
def far_agents(ahead_s: Mapping[str, int]) -> Iterator[dict[str, AgentHandle]]:
    """An agent for each name whose CLOCK_MONOTONIC is so many seconds ahead (in a time namespace, unless 0)."""
    started: dict[str, AgentHandle] = {}
    processes = []
    try:
        for name, ahead in ahead_s.items():
            ours, theirs = socket.socketpair()
            shifted = ["unshare", "--time", "--monotonic", str(ahead), "--fork", "--kill-child"] if ahead else []
            with theirs:
                processes.append(subprocess.Popen([*shifted, *STDIO], stdin=theirs, stdout=theirs))
            started[name] = AgentHandle(name, ours, far=True)
        yield started
    finally:
        for agent in started.values():
            agent.close()
        for process in processes:
            process.wait(10)
