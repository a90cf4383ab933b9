"""What an agent hands over of its folder, whole, and what it never does; the bridge between a caller and its socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from far_agents import far_agents

from dlcp.agents.control.handles import AgentError, AgentHandle
from dlcp.agents.file_transfer import PART_BYTES, read_part
from dlcp.agents.process.systemd_bridge import END_S

CONNECT = [sys.executable, "-m", "dlcp.agents.process.systemd_bridge"]


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, 2 * PART_BYTES + 1])
def test_a_file_comes_whole_in_parts(size: int, tmp_path: Path) -> None:
    content = os.urandom(size)
    with far_agents({"h1": 0}) as agents:
        folder = Path(agents["h1"].request({"command": "hello"}, 20)["folder"])
        (folder / "table.npz").write_bytes(content)
        agents["h1"].fetch(tmp_path / "table.npz")
    assert (tmp_path / "table.npz").read_bytes() == content


@pytest.mark.parametrize("name", ["", ".", "..", "../secret", "/etc/hostname", "in/side", "link", "pipe", "folder"])
def test_no_name_leads_out_of_its_folder_or_to_what_is_no_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "agent"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "side").touch()
    (folder / "folder").mkdir()
    (folder / "link").symlink_to("../secret")
    os.mkfifo(folder / "pipe")
    with pytest.raises((ValueError, OSError)):
        read_part(folder, name, 0)


def test_a_file_that_is_not_there_is_the_agents_error(tmp_path: Path) -> None:
    with far_agents({"h1": 0}) as agents, pytest.raises(AgentError, match=r"h1: hand_over: .*no\.npz"):
        agents["h1"].fetch(tmp_path / "no.npz")


def listening(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen()
    made.settimeout(20)
    return made


def test_bridge__passes_both_ways_and_ends_with_its_caller(tmp_path: Path) -> None:
    with listening(tmp_path / "sock") as server:
        bridge = subprocess.Popen(
            [*CONNECT, str(tmp_path / "sock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        agent, _ = server.accept()
        with agent:
            assert bridge.stdin is not None
            assert bridge.stdout is not None
            bridge.stdin.write(b"down")
            bridge.stdin.flush()
            assert agent.recv(10) == b"down"
            agent.sendall(b"up")
            assert bridge.stdout.read(2) == b"up"
            bridge.stdin.close()
            assert agent.recv(10) == b"", "the agent is told that its caller has ended"
            agent.sendall(b"last")
        assert bridge.stdout.read() == b"last"
        assert bridge.wait(20) == 0
        bridge.stdout.close()


def test_bridge__says_that_an_agent_ended_before_its_caller(tmp_path: Path) -> None:
    with listening(tmp_path / "sock") as server:
        bridge = subprocess.Popen([*CONNECT, str(tmp_path / "sock")], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        server.accept()[0].close()
        assert bridge.wait(20) == 1, "while its caller's side is still open"
        _, said = bridge.communicate()
    assert b"ended" in said
    assert b"journalctl" in said


def test_bridge__does_not_wait_for_an_agent_that_hangs(tmp_path: Path) -> None:
    with listening(tmp_path / "sock") as server:
        bridge = subprocess.Popen([*CONNECT, str(tmp_path / "sock")], stdin=subprocess.DEVNULL)
        agent, _ = server.accept()
        with agent:
            assert bridge.wait(END_S + 20) == 0


def test_bridge__names_the_socket_that_is_not_there(tmp_path: Path) -> None:
    done = subprocess.run([*CONNECT, str(tmp_path / "none")], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"no agent at {tmp_path}/none: No such file or directory\n"


def test_an_agent_that_shares_files_is_not_asked_for_any(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        handle = AgentHandle("h1", ours)
        assert handle.place(tmp_path / "x") == str(tmp_path / "x")
        handle.fetch(tmp_path / "x")
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)
