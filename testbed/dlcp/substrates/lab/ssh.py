"""A device of a lab over SSH: commands with a limit, files, agents. Only the lab's own host keys and key count.

Whoever answers with another host key than `known_hosts` holds, or with none there, is refused.
"""

from __future__ import annotations

import shlex
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import fabric
import paramiko

from dlcp.errors import ExitCode, Problem
from dlcp.model.lab.inventory import Login

CONNECT_TIMEOUT_S = 10
"""Of TCP, of the server's banner, and of the proof of the key, each."""
KEEPALIVE_S = 10
"""A peer that is gone is noticed after some of these."""
SHOWN = 2000
"""Characters of what a device said that an error repeats."""


@dataclass(frozen=True)
class Done:
    """What a command on a device left."""

    status: int
    stdout: str
    stderr: str


class Remote:
    """A connection to a device, from open() to close(). Raises Problem that names device, command, what was expected
    and what came."""

    def __init__(self, name: str, login: Login) -> None:
        self.name = name
        self._login = login
        self._connection = fabric.Connection(
            login.address,
            user=login.user,
            port=login.port,
            connect_timeout=CONNECT_TIMEOUT_S,
            config=fabric.Config(ssh_config=paramiko.SSHConfig()),  # nobody's own ~/.ssh/config
            connect_kwargs={
                "key_filename": str(login.key),
                "allow_agent": False,
                "look_for_keys": False,
                "banner_timeout": CONNECT_TIMEOUT_S,
                "auth_timeout": CONNECT_TIMEOUT_S,
                "channel_timeout": CONNECT_TIMEOUT_S,
            },
        )
        self._connection.client.set_missing_host_key_policy(paramiko.RejectPolicy())

    @property
    def where(self) -> str:
        """The device, for an error."""
        return f"{self.name} ({self._login.user}@{self._login.address} port {self._login.port})"

    def open(self) -> Self:
        """Connect, unless it is connected: a device that was away is found again."""
        if self._connection.is_connected:
            return self
        self._connection.close()
        login = self._login
        for file, what in ((login.key, "the private key"), (login.known_hosts, "the lab's known_hosts")):
            if not file.is_file():
                raise Problem(self.where, f"{what}, {file}, is not there", "correct the inventory, or make the file")
        self._connection.client.load_system_host_keys(str(login.known_hosts))
        try:
            self._connection.open()
        except paramiko.BadHostKeyException as error:
            what = (
                f"its host key is {_fingerprint(error.key)}; {login.known_hosts} has {_fingerprint(error.expected_key)}"
            )
            hint = "if the device was set up anew, replace its line there; if not, somebody else answers at its address"
            raise self._problem(what, hint) from error
        except paramiko.AuthenticationException as error:
            raise self._problem(f"it does not take {login.user}'s key {login.key}: {error}") from error
        except paramiko.SSHException as error:
            hint = f"ssh-keyscan its address, compare, and add the line to {login.known_hosts}"
            missing = "not found in known_hosts" in str(error)
            raise self._problem(f"{error}".strip("'\""), hint if missing else "") from error
        except (OSError, EOFError) as error:
            what = f"no connection within {CONNECT_TIMEOUT_S} s: {error or type(error).__name__}"
            raise self._problem(what, "is it up, and are ansible_host and ansible_port right?") from error
        self._transport.set_keepalive(KEEPALIVE_S)
        return self

    def close(self) -> None:
        """Disconnect; what still runs through it ends."""
        self._connection.close()

    def run(self, command: Sequence[str], *, timeout_s: float, stdin: str = "") -> Done:
        """Run a command and wait for its end."""
        line = shlex.join(command)
        deadline_s = time.monotonic() + timeout_s
        channel = self.channel(line)
        try:
            channel.settimeout(timeout_s)
            channel.sendall(stdin.encode())
            channel.shutdown_write()
            stdout = _all(channel.recv, channel, deadline_s)
            stderr = _all(channel.recv_stderr, channel, deadline_s)
            if not channel.status_event.wait(max(0.0, deadline_s - time.monotonic())):
                raise TimeoutError
            return Done(channel.recv_exit_status(), stdout, stderr)
        except (TimeoutError, OSError, EOFError) as error:
            raise self._problem(
                f"`{line}`: expected its end within {timeout_s:g} s, received {_said(error)}"
            ) from error
        finally:
            channel.close()

    def channel(self, line: str) -> Any:
        """A running shell command's channel (paramiko.Channel)."""
        try:
            channel = self._transport.open_session(timeout=CONNECT_TIMEOUT_S)
            channel.exec_command(line)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._problem(f"`{line}`: expected it to start, received {_said(error)}") from error
        return channel

    @property
    def _transport(self) -> Any:
        transport = self._connection.client.get_transport()
        if transport is None or not transport.is_active():
            raise self._problem("the connection has ended")
        return transport

    def _problem(self, what: str, hint: str = "") -> Problem:
        return Problem(self.where, what, hint, exit_code=ExitCode.MACHINE_CANNOT)


def _all(receive: Any, channel: Any, deadline_s: float) -> str:
    parts: list[bytes] = []
    while True:
        channel.settimeout(max(0.001, deadline_s - time.monotonic()))
        if not (part := receive(65_536)):
            return b"".join(parts).decode(errors="replace")
        parts.append(part)


def _said(error: BaseException) -> str:
    if isinstance(error, (TimeoutError, socket.timeout)):
        return "nothing"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _fingerprint(key: Any) -> str:
    return f"{key.get_name()} {key.fingerprint}"
