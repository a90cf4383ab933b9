"""A tc that stays in a network namespace and takes batch lines: microseconds a line instead of a process each."""

from __future__ import annotations

import os
import re
import select
import subprocess
import threading
from collections.abc import Sequence

from dlcp.agents.precise_waits import put_ahead
from dlcp.errors import Problem
from dlcp.isolation.netns import Namespace

_ANSWER_WITHIN_S = 5.0
_MARK = "end"
_MARKED = re.compile(rb'Object "end" is unknown[^\n]*\nCommand failed -:\d+\n')
"""What tc says of a line that is no command, at no cost: everything before it has been carried out and is printed."""
_FAILED = re.compile(r"^Command failed -:\d+\n", re.MULTILINE)


class TcSession:
    """Started by its first lines. Any thread may use it. `close` ends it, and so does the end of this process."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def run(self, lines: Sequence[str]) -> None:
        """Carry out lines that change something. Raises Problem with tc's own words when it complains of one; it
        carries out the others all the same."""
        for line, said in zip(lines, self.ask(lines), strict=True):
            if said:
                raise Problem(self._namespace.name, f"`tc {line}` failed: {said.strip()}")

    def ask(self, lines: Sequence[str]) -> list[str]:
        """What tc prints for each of some lines. Raises Problem with its own words when one fails."""
        with self._lock:
            try:
                said = self._converse(self._running(), "".join(f"{line}\n{_MARK}\n" for line in lines), len(lines))
            except BaseException:
                self._end()
                raise
        for line, words in zip(lines, said, strict=True):
            if _FAILED.search(words):
                raise Problem(self._namespace.name, f"`tc {line}` failed: {_FAILED.sub('', words).strip()}")
        return said

    def close(self) -> None:
        """End tc; it may be started again."""
        with self._lock:
            self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            with self._namespace.entered():
                self._process = subprocess.Popen(
                    ["tc", "-force", "-details", "-batch", "-"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    bufsize=0,
                )
            put_ahead(self._process.pid)  # of what keeps the cores busy
        return self._process

    def _converse(self, process: subprocess.Popen[bytes], text: str, answers: int) -> list[str]:
        """Write while reading: neither pipe may fill up."""
        assert process.stdin is not None
        assert process.stdout is not None
        left, heard, found = memoryview(text.encode()), b"", list[str]()
        while len(found) < answers:
            told = [process.stdin] if left else []
            readable, writable, _ = select.select([process.stdout], told, [], _ANSWER_WITHIN_S)
            if not readable and not writable:
                raise Problem(self._namespace.name, f"tc did not answer within {_ANSWER_WITHIN_S} s")
            if writable:
                left = left[os.write(process.stdin.fileno(), left[: select.PIPE_BUF]) :]
            if readable:
                piece = os.read(process.stdout.fileno(), 65536)
                if not piece:
                    raise Problem(self._namespace.name, f"tc ended: {heard.decode(errors='replace').strip()}")
                heard += piece
                *whole, heard = _MARKED.split(heard)
                found += [words.decode() for words in whole]
        return found

    def _end(self) -> None:
        if self._process is None:
            return
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.kill()
        self._process.wait()
        self._process = None
