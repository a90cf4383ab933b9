"""`python -m dlcp.switches.linux VERB [--state FOLDER]`: on a Linux box that is a switch, as root.

A JSON mapping on standard input (none = nothing to say), one on standard output; exit codes are ExitCode's, and a
problem is {"problem": {"where", "what", "hint"}}. Verbs: facts, diff, apply, confirm, restore, read, counters, reset.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from contextlib import suppress
from typing import Any

from dlcp.errors import ExitCode, MachineCannot, Problem, Problems, encode_problem
from dlcp.switches.linux.guard import require_root
from dlcp.switches.linux.state import STATE, STATE_VARIABLE, opened, state_folder
from dlcp.switches.linux.verbs import VERBS, request_from
from dlcp.switches.private_folder import replace_file

_AFTER = "make room on its disk if it is full; `read` tells how the box is, `restore` takes back what was begun"


def main(arguments: list[str]) -> int:
    """One verb."""
    parser = argparse.ArgumentParser(prog="python -m dlcp.switches.linux", description=__doc__.split("\n\n")[0])
    parser.add_argument("verb", choices=VERBS)
    parser.add_argument("--state", help=f"folder of the box's state (default: ${STATE_VARIABLE}, else {STATE})")
    parser.add_argument("--timed", metavar="DEPLOYMENT", help=argparse.SUPPRESS)
    said = parser.parse_args(arguments)
    code, found = answer(said.verb, said.state, said.timed)
    if said.timed:  # nobody listens
        with suppress(OSError):  # a full disk: `read` tells how the box is
            replace_file(str(state_folder(said.state) / "timed.json"), json.dumps(found).encode())
    print(json.dumps(found))
    return int(code)


def answer(verb: str, state: str | None, timed: str | None = None) -> tuple[ExitCode, dict[str, Any]]:
    """What a verb answers to the request on standard input. state: a folder. timed: a deployment whose timer asks."""
    try:
        require_root()
        told = {"deployment": timed, "timed": True} if timed else _request()
        with opened(state_folder(state), *([math.inf] if timed else [])) as store:
            return ExitCode.FINE, VERBS[verb](request_from(told), store)
    except Problem as problem:
        return problem.exit_code, {"problem": encode_problem(problem, exit_code=False)}
    except Problems as found:
        words = [encode_problem(one, exit_code=False) for one in found.problems]
        return found.problems[0].exit_code, {"problem": words[0], "problems": words}
    except OSError as error:
        machine = MachineCannot(str(error.filename or "this box"), f"failed: {error.strerror or error}", _AFTER)
        return machine.exit_code, {"problem": encode_problem(machine, exit_code=False)}


def _request() -> Any:
    text = "" if sys.stdin.isatty() else sys.stdin.read()
    try:
        return json.loads(text) if text.strip() else None
    except ValueError as error:
        raise Problem("request", f"is no JSON: {error}", "one JSON mapping on standard input") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
