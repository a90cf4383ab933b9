"""Errors for the person who must act: where it went wrong, what is wrong, what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

from dlcp.paths import install_command


class ExitCode(IntEnum):
    """Exit codes that the `dlcp` command returns to the shell."""

    FINE = 0
    RUN_FAILED = 1
    BAD_INPUT = 2
    MACHINE_CANNOT = 3
    SUSPECT = 4
    INTERRUPTED = 130


class Problem(Exception):  # noqa: N818 - a problem is shown to a person, not raised at a programmer
    """One thing that is wrong.

    where: file:line:col, a host, a switch port, a command; empty when there is no place to name.
    what: the fact, with its numbers.
    hint: the next thing to do; empty when the fact alone says it.
    exit_code: what the command returns when this problem ends it.
    """

    def __init__(self, where: str, what: str, hint: str = "", *, exit_code: ExitCode = ExitCode.BAD_INPUT) -> None:
        super().__init__(where, what, hint)
        self.where = where
        self.what = what
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}\n    {self.hint}" if self.hint else text


class MachineCannot(Problem):
    """This machine lacks what the command needs (root, a kernel feature, a program, CPU)."""

    def __init__(self, where: str, what: str, hint: str = "") -> None:
        super().__init__(where, what, hint, exit_code=ExitCode.MACHINE_CANNOT)


@contextmanager
def needs_extra(extra: str, where: str, what: str = "") -> Iterator[None]:
    """Import modules of an optional part of the package. MachineCannot, with the command that installs it, where one is
    missing.

    extra: its name in pyproject.toml. where, what: of the problem; empty what = which module is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MachineCannot(where, what or f"needs {error.name}", install_command(extra)) from error


class Problems(Exception):  # noqa: N818 - shown to a person, as Problem is
    """Several things are wrong at once; each is a Problem."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


def encode_problem(problem: Problem, *, exit_code: bool = True) -> dict[str, Any]:
    """Return a problem as JSON has it: where, what, hint, and exit_code unless something else tells that."""
    data: dict[str, Any] = {"where": problem.where, "what": problem.what, "hint": problem.hint}
    return data | ({"exit_code": int(problem.exit_code)} if exit_code else {})


def decode_problem(data: Mapping[str, Any], *, at: str = "", exit_code: ExitCode | None = None) -> Problem:
    """Return the problem that `encode_problem` wrote.

    at: where the writer is, such as a switch, to name before its own place. exit_code: instead of the writer's.
    """
    code = ExitCode(data.get("exit_code", ExitCode.BAD_INPUT)) if exit_code is None else exit_code
    where = f"{at}: {data['where']}" if at else data["where"]
    return Problem(where, data["what"], data["hint"], exit_code=code)
