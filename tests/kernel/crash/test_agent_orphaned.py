"""An agent ends when its channel does, also when the other end dies with a reply unread (which resets the channel).

One that was told to expect signs of life ends when there are none, as when its caller's machine has vanished.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

SILENT = (
    "import os, sys; from dlcp.agents.process.agent import serve; serve(0, os.dup(1), silence_s=float(sys.argv[1]))"
)
CODE = "import os, sys; from dlcp.agents.process.agent import serve; fd = int(sys.argv[1]); serve(fd, os.dup(fd))"


@pytest.mark.parametrize("unread", [False, True])
def test_it_ends(unread: bool) -> None:
    ours, theirs = socket.socketpair()
    agent = subprocess.Popen([sys.executable, "-c", CODE, str(theirs.fileno())], pass_fds=[theirs.fileno()])
    theirs.close()
    try:
        ours.sendall(b'{"command": "status", "id": 1}\n')
        ours.settimeout(20)
        assert ours.recv(1, socket.MSG_PEEK)
        if not unread:
            ours.recv(65536)
            time.sleep(0.1)
        ours.close()
        assert agent.wait(timeout=5) == 0
    finally:
        agent.kill()
        agent.wait()


def test_an_agent_that_hears_nothing_ends_and_an_empty_line_is_a_sign_of_life() -> None:
    agent = subprocess.Popen([sys.executable, "-c", SILENT, "3"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert agent.stdin is not None
    assert agent.stdout is not None
    try:
        for _ in range(8):
            agent.stdin.write(b"\n")
            agent.stdin.flush()
            time.sleep(0.5)
        agent.stdin.write(b'{"command": "status", "id": 1}\n')
        agent.stdin.flush()
        assert json.loads(agent.stdout.readline())["ok"]
        assert agent.wait(timeout=20) == 0  # its stdin is still open
    finally:
        agent.kill()
        agent.wait()
        agent.stdin.close()
        agent.stdout.close()


def start(parent: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """An agent over pipes, and the folder below `parent` that it works in."""
    agent = subprocess.Popen(
        [sys.executable, "-m", "dlcp.agents.process.stdio"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(parent)},
    )
    assert agent.stdin is not None
    assert agent.stdout is not None
    agent.stdin.write(b'{"command": "hello", "id": 1}\n')
    agent.stdin.flush()
    return agent, Path(json.loads(agent.stdout.readline())["result"]["folder"])


def test_an_agent_of_stdio_takes_its_folder_with_it(tmp_path: Path) -> None:
    agent, folder = start(tmp_path)
    assert folder.parent == tmp_path
    assert folder.is_dir()
    agent.communicate(timeout=20)
    assert agent.returncode == 0
    assert not folder.exists()


def test_what_a_killed_agent_leaves_goes_when_the_next_one_comes_and_nothing_of_a_living_one(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "dlcp-agent-link").symlink_to(tmp_path / "elsewhere")
    killed, left = start(tmp_path)
    living, held = start(tmp_path)
    (left / "record").touch()
    killed.kill()
    killed.communicate()
    assert left.is_dir()
    another, own = start(tmp_path)
    assert not left.exists()
    assert held.is_dir()
    assert own.is_dir()
    assert (tmp_path / "elsewhere").is_dir()
    for agent in (living, another):
        agent.communicate(timeout=20)
    assert [path.name for path in tmp_path.glob("dlcp-agent-*")] == ["dlcp-agent-link"]
