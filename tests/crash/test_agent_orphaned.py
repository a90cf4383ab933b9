"""An agent ends when its channel does, also when the other end dies with a reply unread (which resets the channel)."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import pytest

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
