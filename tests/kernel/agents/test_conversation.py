"""A request in, messages and problems out; what else prints does not disturb."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from dlcp.errors import ExitCode, MachineCannot, Problem
from dlcp.substrates.json_lines import Say, answer, messages

MESSAGES = 3


def count(request: dict[str, Any], say: Say) -> None:
    """Count up, print beside it, and come to a problem where the request says so."""
    for number in range(MESSAGES):
        print("noise, as Mininet prints it")
        if number == request["problem_at"]:
            raise MachineCannot("s1", "has no more", "another machine")
        say({"number": number})


def child() -> int:
    """What the process is."""
    return answer(count)


def start() -> subprocess.Popen[bytes]:
    code = "import sys, test_conversation; sys.exit(test_conversation.child())"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=__file__.rpartition("/")[0],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def test_messages_come_in_order_until_the_end() -> None:
    with start() as process:
        assert list(messages(process, {"problem_at": None})) == [{"number": number} for number in range(MESSAGES)]
    assert process.returncode == 0


def test_a_problem_inside_is_raised_outside_as_it_was() -> None:
    with start() as process:
        said = messages(process, {"problem_at": 1})
        assert next(said) == {"number": 0}
        with pytest.raises(Problem) as raised:
            next(said)
    assert str(raised.value) == "s1: has no more\n    another machine"
    assert raised.value.exit_code == ExitCode.MACHINE_CANNOT


@pytest.mark.parametrize("request_so_far", [b"", b'{"problem_at": '])
def test_a_caller_that_goes_before_its_request_is_whole_leaves_no_trace(request_so_far: bytes) -> None:
    with start() as process:
        said, _ = process.communicate(request_so_far)
    assert (process.returncode, said) == (ExitCode.INTERRUPTED, b"")
