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

import pytest

SILENT = "import os, sys; from dlcp.agents.agent import serve; serve(0, os.dup(1), silence_s=float(sys.argv[1]))"
CODE = "import os, sys; from dlcp.agents.agent import serve; fd = int(sys.argv[1]); serve(fd, os.dup(fd))"


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
    agent = subprocess.Popen([sys.executable, "-c", SILENT, "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert agent.stdin is not None
    assert agent.stdout is not None
    try:
        for _ in range(3):
            agent.stdin.write(b"\n")
            agent.stdin.flush()
            time.sleep(1)
        agent.stdin.write(b'{"command": "status", "id": 1}\n')
        agent.stdin.flush()
        assert json.loads(agent.stdout.readline())["ok"]
        assert agent.wait(timeout=20) == 0  # its stdin is still open
    finally:
        agent.kill()
        agent.wait()
        agent.stdin.close()
        agent.stdout.close()


def test_an_agent_of_stdio_takes_its_folder_with_it() -> None:
    agent = subprocess.Popen([sys.executable, "-m", "dlcp.agents.stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert agent.stdin is not None
    assert agent.stdout is not None
    agent.stdin.write(b'{"command": "hello", "id": 1}\n')
    agent.stdin.flush()
    folder = json.loads(agent.stdout.readline())["result"]["folder"]
    assert os.path.isdir(folder)
    agent.communicate(timeout=20)
    assert agent.returncode == 0
    assert not os.path.exists(folder)
