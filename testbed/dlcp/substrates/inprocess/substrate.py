"""The substrate `inprocess`: a real job's workers train together in one process, without a network and without root.

It shows what loss does to learning. Nothing in it takes the time that a network takes, so no result has a time: steps
are the measure. Runs do not disturb each other, so one is made on each core; every one has a process to itself while it
lasts, one torch thread, and random numbers from its seed alone, so that the same run has the same bits.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import TypeAdapter

from dlcp.errors import Problem
from dlcp.model.base import OnProgress
from dlcp.model.result import RunResult
from dlcp.model.run import Run
from dlcp.substrates.json_lines import result_of

_REMEDY = "with little memory, run on fewer cores: taskset -c 0 dlcp run …"
MOST_AT_ONCE = 8
"""Each holds torch and a data set of its own: about 0.5 GB."""


def runs_at_once() -> int:
    """How many runs are made at a time on this machine."""
    return min(MOST_AT_ONCE, len(os.sched_getaffinity(0)))


class InProcess:
    """See ManyAtOnce. Its processes are kept from run to run, for loading torch takes as long as a small job."""

    def __init__(self) -> None:
        self.at_once = runs_at_once()
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """See ManyAtOnce."""
        with self._lock:
            self._stopped = True
            for process in self._processes:
                process.kill()
            for process in self._processes:
                process.wait()

    def run(self, run: Run, directory: Path, on_progress: OnProgress) -> RunResult:
        """See Substrate. Problem when the job cannot be run, or its process has died."""
        process = self._process()
        request = {"run": TypeAdapter(Run).dump_python(run, mode="json"), "directory": str(directory.resolve())}
        try:
            result = result_of(process, request, on_progress, "inprocess", _REMEDY)
        except (Problem, BrokenPipeError) as error:
            if self._stopped:
                raise KeyboardInterrupt from error
            if isinstance(error, Problem) and process.poll() is None:
                self._idle.put(process)
            raise
        self._idle.put(process)
        return result

    def _process(self) -> subprocess.Popen[bytes]:
        """One that is idle, or a new one. It ends with its standard input, so not after this process."""
        with self._lock:
            if self._stopped:
                raise KeyboardInterrupt
            try:
                return self._idle.get_nowait()
            except queue.Empty:
                command = [sys.executable, "-m", "dlcp.substrates.inprocess.run"]
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                self._processes.append(process)
                return process


SUBSTRATE = InProcess
