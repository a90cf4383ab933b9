"""A tc that stays in a network namespace and takes batch lines: microseconds a line instead of a process each."""

from __future__ import annotations

import os
import re
import select
import subprocess
import threading
from collections.abc import Sequence

from dlcp.errors import Problem
from dlcp.substrates.netns import Namespace

_ANSWER_WITHIN_S = 5.0
_MARK = "qdisc show dev lo"
_MARKED = re.compile(rb"^qdisc no\w+ 0: root [^\n]*\n", re.MULTILINE)
"""What tc prints for _MARK: everything before it has been carried out. No line of ours concerns lo."""


class TcSession:
    """Started by its first lines. Any thread may use it. `close` ends it, and so does the end of this process."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def run(self, lines: Sequence[str]) -> list[str]:
        """Carry lines out, return what tc printed for each.

        Raises Problem with tc's own words at the first line that fails; those after it are not carried out.
        """
        with self._lock:
            process = self._running()
            text = "".join(f"{line}\n{_MARK}\n" for line in lines)
            try:
                return self._converse(process, text.encode(), len(lines))
            except BaseException:
                self._end()
                raise

    def close(self) -> None:
        """End tc; it may be started again."""
        with self._lock:
            self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            pipe = subprocess.PIPE
            with self._namespace.entered():
                command = ["tc", "-details", "-batch", "-"]
                self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
            priority = os.sched_param(os.sched_get_priority_min(os.SCHED_RR))
            os.sched_setscheduler(self._process.pid, os.SCHED_RR, priority)  # ahead of what keeps the cores busy
        return self._process

    def _converse(self, process: subprocess.Popen[bytes], text: bytes, answers: int) -> list[str]:
        """Write while reading: neither pipe may fill up."""
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        told, heard, complained = memoryview(text), bytearray(), bytearray()
        found: list[str] = []
        while len(found) < answers:
            ready, writable, _ = select.select(
                [process.stdout, process.stderr], [process.stdin] if told else [], [], _ANSWER_WITHIN_S
            )
            if not ready and not writable:
                raise Problem(self._namespace.name, f"tc did not answer within {_ANSWER_WITHIN_S} s")
            if writable:
                told = told[os.write(process.stdin.fileno(), told[: select.PIPE_BUF]) :]
            for pipe, words in ((process.stdout, heard), (process.stderr, complained)):
                if pipe in ready:
                    words += (piece := os.read(pipe.fileno(), 65536))
                    if not piece or complained:
                        raise Problem(self._namespace.name, f"tc failed: {_last_words(process, complained)}")
            while marked := _MARKED.search(heard):
                found.append(heard[: marked.start()].decode())
                del heard[: marked.end()]
        return found

    def _end(self) -> None:
        if self._process is None:
            return
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._process.kill()
        self._process.wait()
        self._process = None


def _last_words(process: subprocess.Popen[bytes], complained: bytearray) -> str:
    assert process.stderr is not None
    rest = os.read(process.stderr.fileno(), 65536) if select.select([process.stderr], [], [], 0.1)[0] else b""
    return (complained + rest).decode(errors="replace").strip()
