"""JSON lines between a caller and its process: a request in, messages and problems out."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from dlcp.errors import ExitCode, Problem, decode_problem, encode_problem
from dlcp.model.base import OnProgress
from dlcp.model.result import RunResult

Say = Callable[[dict[str, Any]], None]


def messages(process: subprocess.Popen[bytes], request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Hand a request in and pass on what is said, until the process ends. Its streams are pipes.

    Raises Problem when one was met inside.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()
    for line in process.stdout:
        message = json.loads(line)
        if "problem" in message:
            raise decode_problem(message["problem"])
        yield message


def result_of(
    process: subprocess.Popen[bytes], request: dict[str, Any], on_progress: OnProgress, where: str, hint: str
) -> RunResult:
    """Hand a run in, pass progress on, and return its result. The inside bounds its own time.

    Raises Problem when one was met inside, or, with `where` and `hint`, when the process ended without a word.
    """
    for message in messages(process, request):
        if "progress" in message:
            on_progress(message["progress"], message["text"])
        else:
            return RunResult.model_validate(message["result"])
    what = f"the process of the run ended without a word (status {process.wait()})"
    raise Problem(where, what, f"its last lines are above; {hint}", exit_code=ExitCode.RUN_FAILED)


def answer(work: Callable[[dict[str, Any], Say], None]) -> int:
    """Inside: read the request and do the work, which says its messages; a Problem that it meets is the last one.

    Returns the exit status: INTERRUPTED when the caller went before its request was whole.
    """
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        return ExitCode.INTERRUPTED
    with _replies() as say:
        _do(work, json.loads(line), say)
    return ExitCode.FINE


def answer_all(work: Callable[[dict[str, Any], Say], None]) -> NoReturn:
    """Inside: answer one request after the other until the caller closes its end, then the process exits at once,
    whatever it is doing."""
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            requests.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=listen, daemon=True, name="requests").start()
    with _replies() as say:
        while True:
            _do(work, requests.get(), say)


@contextmanager
def _replies() -> Iterator[Say]:
    """What says our messages on stdout, which carries nothing else: Mininet and others print to stderr."""
    with os.fdopen(os.dup(1), "w", buffering=1) as replies:
        os.dup2(2, 1)

        def say(message: dict[str, Any]) -> None:
            replies.write(json.dumps(message) + "\n")

        yield say


def _do(work: Callable[[dict[str, Any], Say], None], request: dict[str, Any], say: Say) -> None:
    try:
        work(request, say)
    except Problem as problem:
        say({"problem": encode_problem(problem)})
