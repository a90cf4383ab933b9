"""Agents on the hosts of a lab: reached over SSH, commanded as any other, gone with the connection.

The SSH user's own Python is the agent, or it connects to the one that the host's systemd starts for it: the inventory's
word `dlcp_agent` says which, and there is no other way where that one does not work.

A pair of threads passes bytes between an agent's SSH channel and the socket that AgentHandle reads, a third keeps its
standard error as its log. While nothing is said, an empty line every few seconds tells the agent that its caller lives.
"""

from __future__ import annotations

import contextlib
import select
import shlex
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dlcp import __version__
from dlcp.agents.control.handles import ONE_THREAD, AgentError, AgentHandle, gather
from dlcp.agents.process.stdio import SILENCE_S
from dlcp.errors import ExitCode, Problem, Problems
from dlcp.model.lab.inventory import AGENT_SOCKET, Lab, LabHost, Login
from dlcp.substrates.lab.ssh import SHOWN, Remote

HELLO_TIMEOUT_S = 30.0
"""From an agent's start to its first word: the interpreter and what it loads, on a busy host."""
END_TIMEOUT_S = 5.0
SIGN_OF_LIFE_S = SILENCE_S / 6
_CONNECTIONS_AT_A_TIME = 16
_LOST = 255
_STARTS = {"ssh": ("dlcp.agents.process.stdio",), "unit": ("dlcp.agents.process.systemd_bridge", AGENT_SOCKET)}
_HINTS = {
    "ssh": "dlcp_python of {host} must have this dlcp: ansible-playbook playbooks/hosts.yml installs it",
    "unit": "dlcp_agent of {host} is `unit`: ansible-playbook playbooks/hosts.yml -e yes=true installs its unit "
    f"at {AGENT_SOCKET} and lets {{user}} open it; `dlcp_agent: ssh` does without",
}


class LabAgent(AgentHandle):
    """An agent on a host of a lab. said: what it told of itself (agents.process.hello),
    and its way there (see HostWords.dlcp_agent)."""

    def __init__(self, name: str, remote: Remote, host: LabHost, log: Path) -> None:
        ours, self._theirs = socket.socketpair()
        super().__init__(name, ours, log, far=True)
        self.said: dict[str, Any] = {}
        self._remote = remote
        self._host = host
        words = [
            "env",
            *(f"{key}={value}" for key, value in ONE_THREAD.items()),
            host.python,
            "-m",
            *_STARTS[host.agent],
        ]
        self._line = f"exec {shlex.join(words)}"
        self._channel = remote.channel(self._line)
        self._keeping = threading.Thread(target=self._keep_log, args=(log,), daemon=True, name=f"{name}-log")
        self._coming = threading.Thread(target=self._pass_up, args=(log,), daemon=True, name=f"{name}-up")
        self._going = threading.Thread(target=self._pass_down, daemon=True, name=f"{name}-down")
        for thread in (self._keeping, self._coming, self._going):
            thread.start()

    def greet(self, number: int, log: Path) -> None:
        """Take its first answer. Problem when it is no agent of this version."""
        expected = f"`{self._line}`: expected an agent of dlcp {__version__} within {HELLO_TIMEOUT_S:g} s"
        hint = _HINTS[self._host.agent].format(host=self._host.name, user=self._host.login.user)
        try:
            found = gather({self.name: (self, number)}, HELLO_TIMEOUT_S)[self.name]
            self.said = {"way": self._host.agent, **found}
        except (AgentError, ValueError) as error:
            told = log.read_text(errors="replace").strip()[-SHOWN:] if log.exists() else ""
            what = f"{expected}, received {told or error}"
            raise Problem(self._remote.where, what, hint, exit_code=ExitCode.MACHINE_CANNOT) from error
        if self.said["version"] != __version__:
            what = f"{expected}, received one of dlcp {self.said['version']}"
            raise Problem(self._remote.where, what, hint, exit_code=ExitCode.MACHINE_CANNOT)

    def close(self) -> None:
        """See AgentHandle; returns when it has ended, or after a while."""
        super().close()
        self._coming.join(END_TIMEOUT_S)
        self._channel.close()

    def _pass_down(self) -> None:
        """To the agent, until our side hangs up."""
        with contextlib.suppress(OSError):
            while True:
                if not select.select([self._theirs], [], [], SIGN_OF_LIFE_S)[0]:
                    self._channel.sendall(b"\n")
                elif part := self._theirs.recv(65_536):
                    self._channel.sendall(part)
                else:
                    break
        with contextlib.suppress(OSError, EOFError):
            self._channel.shutdown_write()

    def _pass_up(self, log: Path) -> None:
        """From the agent, until it ends."""
        with contextlib.suppress(OSError):
            while part := self._channel.recv(65_536):
                self._theirs.sendall(part)
        self._keeping.join(END_TIMEOUT_S)
        lost = not self._channel.status_event.wait(END_TIMEOUT_S)
        status = _LOST if lost else self._channel.recv_exit_status()
        if status:
            lost_or_killed = "it was killed, or the connection to it is lost"
            ended = lost_or_killed if status in (-1, _LOST) else f"it ended with status {status}"
            with log.open("a", encoding="utf-8") as file:
                file.write(f"{self._remote.where}: {ended}\n")
        with contextlib.suppress(OSError):
            self._theirs.shutdown(socket.SHUT_RDWR)

    def _keep_log(self, log: Path) -> None:
        with log.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while part := self._channel.recv_stderr(65_536):
                file.write(part)


class LabHosts:
    """Connections to some hosts of a lab, from __enter__ to __exit__."""

    def __init__(self, lab: Lab, names: Iterable[str]) -> None:
        self._hosts = {name: lab.hosts[name] for name in names}
        self.remotes: dict[str, Remote] = {}
        """Connections, by host, while the block lasts."""

    def __enter__(self) -> LabHosts:
        self.remotes = connect({name: host.login for name, host in self._hosts.items()})
        return self

    def __exit__(self, *_: object) -> None:
        for remote in self.remotes.values():
            remote.close()

    def addresses(self) -> dict[str, str]:
        """Host → its address on the fabric."""
        return {name: host.address for name, host in self._hosts.items()}

    def start(self, names: Mapping[str, str], logs: Path) -> dict[str, AgentHandle]:
        """An agent for each name, on the host given for it, all at once; each writes logs/NAME.log."""
        started: dict[str, LabAgent] = {}
        try:
            for name, host in names.items():
                started[name] = LabAgent(name, self.remotes[host], self._hosts[host], logs / f"{name}.log")
            numbers = {name: agent.send({"command": "hello"}) for name, agent in started.items()}
            for name, agent in started.items():
                agent.greet(numbers[name], logs / f"{name}.log")
        except BaseException:
            for agent in started.values():
                agent.close()
            raise
        return dict(started)

    @contextmanager
    def agents(self, names: Mapping[str, str], logs: Path) -> Iterator[dict[str, AgentHandle]]:
        """The same for the time of a block."""
        started = self.start(names, logs)
        try:
            yield started
        finally:
            for agent in started.values():
                agent.close()


def connect(logins: Mapping[str, Login]) -> dict[str, Remote]:
    """Connections to devices, some at a time. Raises Problems: all that cannot be reached, and then none is open."""
    remotes = {name: Remote(name, login) for name, login in logins.items()}
    try:
        open_all(remotes.values())
    except Problems:
        for remote in remotes.values():
            remote.close()
        raise
    return remotes


def open_all(remotes: Iterable[Remote]) -> None:
    """Connect those that are not, some at a time. Raises Problems: all that cannot be reached."""

    def attempt(remote: Remote) -> Problem | None:
        try:
            remote.open()
        except Problem as problem:
            return problem
        return None

    with ThreadPoolExecutor(_CONNECTIONS_AT_A_TIME) as pool:
        problems = [problem for problem in pool.map(attempt, remotes) if problem is not None]
    if problems:
        raise Problems(problems)
