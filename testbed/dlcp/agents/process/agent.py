"""The agent: one process on a host, commanded in JSON lines, one reply a command. It dies when its channel ends.

A command is {"id": n, "command": name, ...}, its reply {"id": n, "ok": true, "result": {...}} or
{"id": n, "ok": false, "error": text}. Commands run one after the other; `status` and `clock` are answered at any time.
An empty line is no command, but a sign that the caller lives. The commands are the public methods of its roles.
"""

from __future__ import annotations

import json
import os
import queue
import select
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dlcp.agents.file_transfer import read_part
from dlcp.agents.machine_monitor import MachineMonitor
from dlcp.agents.precise_waits import be_punctual, take_short_turns
from dlcp.agents.process.background import BackgroundTraffic
from dlcp.agents.process.commands import Command, commands_of, earlier
from dlcp.agents.process.hello import introduction
from dlcp.agents.process.job_rank import JobRank
from dlcp.agents.process.probes import Probes
from dlcp.errors import Problem
from dlcp.transport.contract.endpoint import TransportError

READ_BYTES = 65_536


class Host:
    """Commands of every agent: its identity, its machine, its files."""

    def __init__(self) -> None:
        self._folder = Path.cwd()
        self._machine: MachineMonitor | None = None

    def hello(self) -> dict[str, Any]:
        """Identity and abilities of this agent: see `introduction`."""
        return introduction()

    def watch_machine(self) -> dict[str, Any]:
        """Sample how busy this machine is, until stop_watching."""
        self._machine = MachineMonitor().__enter__()
        return {}

    def stop_watching(self) -> dict[str, Any]:
        """Samples, as rows of the table `hosts`, since begun_s. Instants are of CLOCK_MONOTONIC."""
        machine = earlier(self._machine, "watch_machine comes before stop_watching")
        machine.__exit__()
        return {"begun_s": machine.begun_s, "rows": machine.rows}

    def hand_over(self, name: str, offset: int) -> dict[str, Any]:
        """A part of a file that it wrote in the folder it works in: see `read_part`."""
        return read_part(self._folder, name, offset)


def serve(
    read_fd: int, write_fd: int, *, silence_s: float | None = None, on_end: Callable[[], None] = lambda: None
) -> None:
    """Obey the commands that come from read_fd until it ends; then the process exits, whatever it is doing.

    silence_s: a caller that says nothing for so long is taken for gone. on_end: what to do before exiting.
    """
    be_punctual()
    take_short_turns()
    job = JobRank()
    known = commands_of((Host(), job, BackgroundTraffic(), Probes()))
    commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    lock = threading.Lock()
    at_any_time: dict[str, Callable[[], dict[str, Any]]] = {"status": lambda: dict(job.progress), "clock": _clock}

    def reply(message: dict[str, Any]) -> None:
        with lock:
            _write_all(write_fd, json.dumps(message).encode() + b"\n")

    def listen() -> None:
        try:
            for line in _lines(read_fd, silence_s):
                command = json.loads(line)
                if command.get("command") in at_any_time:
                    reply({"id": command["id"], "ok": True, "result": at_any_time[command["command"]]()})
                else:
                    commands.put(command)
        finally:  # the channel ended, or was reset because its other end died with replies unread
            try:
                on_end()
            finally:
                os._exit(0)  # the caller of this agent is gone: nothing it does matters any more

    threading.Thread(target=listen, daemon=True, name="agent-commands").start()
    while True:
        reply(_obey(known, job.progress, commands.get()))


def _lines(read_fd: int, silence_s: float | None) -> Iterator[bytes]:
    """Whole lines that are not empty, until the channel ends or was silent for too long."""
    received = b""
    while select.select([read_fd], [], [], silence_s)[0] and (part := os.read(read_fd, READ_BYTES)):
        *lines, received = (received + part).split(b"\n")
        yield from filter(None, lines)


def _clock() -> dict[str, Any]:
    return {"monotonic_s": time.monotonic(), "real_s": time.time()}


def _obey(known: dict[str, Command], progress: dict[str, Any], command: dict[str, Any]) -> dict[str, Any]:
    """Run one command; whatever goes wrong becomes its reply, and the job's progress says so."""
    number, name = command.pop("id"), command.pop("command")
    try:
        if name not in known:
            raise ValueError(f"there is no command {name!r}")
        return {"id": number, "ok": True, "result": known[name](**command)}
    except (Problem, TransportError) as error:
        progress["state"] = "failed"
        return {"id": number, "ok": False, "error": str(error)}
    except Exception as error:
        progress["state"] = "failed"
        traceback.print_exc(file=sys.stderr)
        return {"id": number, "ok": False, "error": f"{type(error).__name__}: {error}"}


def _write_all(write_fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(write_fd, view) :]
