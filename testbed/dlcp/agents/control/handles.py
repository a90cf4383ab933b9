"""The caller's side: start agents on hosts, command them, and never wait without a limit."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dlcp.agents.clock_offset import FarClock
from dlcp.agents.process.fork_server import MAX_MESSAGE_BYTES
from dlcp.errors import decode_problem

LOAD_TIMEOUT_S = 60.0
START_TIMEOUT_S = 10.0
PART_TIMEOUT_S = 60.0
"""For one part of a file."""
TICK_S = 0.25
_STDERR = 2
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
"""Ten agents share the machine's cores: libraries that start threads of their own would fight over them."""


class AgentError(RuntimeError):
    """An agent failed, died or did not answer in time. The text names the host and the command."""


class AgentHandle:
    """One agent. Replies may come in another order than commands; each is found by its id.

    far: it is on another machine, with another clock and a folder of its own; else it has the caller's clock and files.
    """

    def __init__(self, name: str, channel: socket.socket, log: Path | None = None, *, far: bool = False) -> None:
        self.name = name
        self.channel = channel
        self._far = far
        self.clock = FarClock(self._ask_clock if far else None)
        self._log = log
        self._next = 0
        self._received = b""
        self._replies: dict[int, dict[str, Any]] = {}
        self._commands: dict[int, str] = {}
        channel.setblocking(False)

    def send(self, command: dict[str, Any], timeout_s: float = START_TIMEOUT_S) -> int:
        """Hand a command over; returns its id for `result`."""
        self._next += 1
        self._commands[self._next] = command["command"]
        self.channel.settimeout(timeout_s)
        try:
            self.channel.sendall(json.dumps({"id": self._next, **command}).encode() + b"\n")
        except OSError as error:
            raise AgentError(f"{self.name}: {command['command']}: the agent is gone ({error}){self._tail()}") from error
        finally:
            self.channel.setblocking(False)
        return self._next

    def result(self, number: int, timeout_s: float) -> dict[str, Any]:
        """Wait for a command's reply. AgentError when it failed, when the agent died, or when time ran out."""
        return gather({self.name: (self, number)}, timeout_s)[self.name]

    def request(self, command: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a command and wait for its result."""
        return self.result(self.send(command), timeout_s)

    def poll(self, number: int) -> dict[str, Any] | None:
        """The result if it has come. AgentError as in `result`."""
        self._read()
        reply = self._replies.pop(number, None)
        if reply is None:
            return None
        name = self._commands.pop(number)
        if not reply["ok"]:
            raise AgentError(f"{self.name}: {name}: {reply['error']}")
        return dict(reply["result"])

    def place(self, path: Path) -> str:
        """What the agent is to call a file that its caller wants at `path`."""
        return path.name if self._far else str(path)

    def fetch(self, path: Path) -> None:
        """Bring a file that the agent was asked for by the name of `place`; nothing to do where files are shared."""
        if not self._far:
            return
        command = {"command": "hand_over", "name": self.place(path)}
        with path.open("wb") as file:
            whole = False
            while not whole:
                part = self.request({**command, "offset": file.tell()}, PART_TIMEOUT_S)
                data = base64.b64decode(part["data"])
                file.write(data)
                whole = file.tell() >= part["bytes"]
                if not data and not whole:
                    raise AgentError(f"{self.name}: {path.name} ended at {file.tell()} of {part['bytes']} bytes")

    def close(self) -> None:
        """Hang up; the agent exits."""
        self.channel.close()

    def describe(self, number: int) -> str:
        """The command of an id, for an error."""
        return self._commands.get(number, "?")

    def _ask_clock(self) -> dict[str, Any]:
        return self.request({"command": "clock"}, START_TIMEOUT_S)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                try:
                    part = self.channel.recv(65_536)
                except ConnectionResetError:
                    part = b""
                if not part:
                    raise AgentError(f"{self.name}: the agent died{self._tail()}")
                self._received += part
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            reply = json.loads(line)
            self._replies[reply["id"]] = reply

    def _tail(self) -> str:
        """The end of the agent's log, where its last words are."""
        text = self._log.read_text(errors="replace").strip() if self._log and self._log.exists() else ""
        return f"; its log ends:\n{text[-2000:]}" if text else ""


def gather(
    waiting: dict[str, tuple[AgentHandle, int]],
    timeout_s: float,
    on_tick: Callable[[], None] | None = None,
) -> dict[str, dict[str, Any]]:
    """Wait for one reply of each agent. The first failure of any is raised at once: the others wait for it in vain.

    on_tick is called every TICK_S meanwhile.
    """
    deadline_s = time.monotonic() + timeout_s
    tick_s = time.monotonic() + TICK_S if on_tick else math.inf
    results: dict[str, dict[str, Any]] = {}
    with selectors.DefaultSelector() as selector:
        for name, (handle, _) in waiting.items():
            selector.register(handle.channel, selectors.EVENT_READ, name)
        missing = list(waiting)
        while True:
            for name in missing:  # all of them: on_tick may have read a reply that no selector tells of any more
                handle, number = waiting[name]
                if (result := handle.poll(number)) is not None:
                    results[name] = result
                    selector.unregister(handle.channel)
            missing = [name for name in waiting if name not in results]
            if not missing:
                return results
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                handle, number = waiting[missing[0]]
                raise AgentError(f"{', '.join(missing)}: no answer to {handle.describe(number)} in {timeout_s:g} s")
            if on_tick is not None and time.monotonic() >= tick_s:
                on_tick()
                tick_s = time.monotonic() + TICK_S
                continue
            selector.select(max(0.0, min(left_s, tick_s - time.monotonic())))


def request_all(
    agents: dict[str, AgentHandle], commands: dict[str, dict[str, Any]], timeout_s: float
) -> dict[str, dict[str, Any]]:
    """Send each named agent its command, then wait for all."""
    return gather({name: (agents[name], agents[name].send(command)) for name, command in commands.items()}, timeout_s)


def read_clocks(agents: Mapping[str, AgentHandle]) -> None:
    """Measure every agent's clock once more, one after the other: they would disturb each other."""
    for agent in agents.values():
        agent.clock.read()


class Zygote:
    """The process that agents are forked from. Start it once; its loading is what takes seconds."""

    def __init__(self, control: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        self._control = control
        self._process = process
        control.settimeout(START_TIMEOUT_S)

    @classmethod
    def spawn(cls, script: str = "") -> Zygote:
        """Start one. script: a training script of workloads/ whose framework and data it loads beforehand.

        Raises the Problem that loading met, such as a data set that is not there.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "dlcp.agents.process.fork_server", str(theirs.fileno()), script],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **ONE_THREAD},
                start_new_session=True,
            )
        zygote = cls(ours, process)
        zygote._confirm(LOAD_TIMEOUT_S, "load")
        return zygote

    @classmethod
    def adopt(cls, control_fd: int) -> Zygote:
        """Use one that another process spawned and whose control socket this one inherited."""
        return cls(socket.socket(fileno=control_fd))

    def fileno(self) -> int:
        """The control socket, for a child process to inherit and adopt."""
        return self._control.fileno()

    def start(self, hosts: dict[str, int], logs: Path | None = None) -> dict[str, AgentHandle]:
        """Fork one agent for each name, in the network namespace of the process id given for it.

        logs: a directory for one log file an agent; without it they write to the zygote's stderr.
        """
        started: dict[str, AgentHandle] = {}
        try:
            for name, pid in hosts.items():
                started[name] = self._start(name, pid, logs / f"{name}.log" if logs else None)
        except BaseException:
            for handle in started.values():
                handle.close()
            raise
        return started

    def close(self) -> None:
        """End it. Agents that it started go on until their own channels end."""
        self._control.close()
        if self._process is not None:
            self._process.wait(START_TIMEOUT_S)

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, name: str, pid: int, log: Path | None) -> AgentHandle:
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as files:
            namespace = files.enter_context(open(f"/proc/{pid}/ns/net", "rb"))
            output = files.enter_context(log.open("ab")).fileno() if log else _STDERR
            descriptors = [theirs.fileno(), namespace.fileno(), output]
            socket.send_fds(self._control, [json.dumps({"name": name}).encode()], descriptors)
            self._confirm(START_TIMEOUT_S, name)
        return AgentHandle(name, ours, log)

    def _confirm(self, timeout_s: float, what: str) -> None:
        self._control.settimeout(timeout_s)
        try:
            message = self._control.recv(MAX_MESSAGE_BYTES)
        except TimeoutError:
            raise AgentError(f"{what}: the parent process of agents did not answer in {timeout_s:g} s") from None
        if not message:
            raise AgentError(f"{what}: the parent process of agents died")
        report = json.loads(message)
        if not report["ok"]:
            raise decode_problem(report)


def start_agents(hosts: dict[str, int], preload: str = "", logs: Path | None = None) -> dict[str, AgentHandle]:
    """Agents by name, each in the network namespace of its process id; preload: a training script, or "".

    For several runs spawn one Zygote and call its `start`: loading is then paid once.
    """
    with Zygote.spawn(preload) as zygote:
        return zygote.start(hosts, logs)
