"""JSON lines between a caller and its process in private namespaces: one request in, messages and problems out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from dlcp.errors import ExitCode, Problem

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
            problem = message["problem"]
            raise Problem(problem["where"], problem["what"], problem["hint"], exit_code=ExitCode(problem["exit_code"]))
        yield message


def answer(work: Callable[[dict[str, Any], Say], None]) -> int:
    """Inside: read the request and do the work, which says its messages; a Problem that it meets is the last one."""
    request = json.loads(sys.stdin.readline())
    with os.fdopen(os.dup(1), "w", buffering=1) as replies:
        os.dup2(2, 1)  # stdout carries only our messages: Mininet and others print to stderr

        def say(message: dict[str, Any]) -> None:
            replies.write(json.dumps(message) + "\n")

        try:
            work(request, say)
        except Problem as problem:
            say({"problem": vars(problem) | {"exit_code": int(problem.exit_code)}})
    return 0
