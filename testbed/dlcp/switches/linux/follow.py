"""`python -m dlcp.switches.linux.follow`: what the box counts, as often as it is asked for, without a new process each
time: a JSON line for every line that comes, as the verb `counters` answers, until there are no more."""

from __future__ import annotations

import json
import sys
from typing import Any

from dlcp.errors import Problem, encode_problem
from dlcp.switches.linux.state import opened, state_folder
from dlcp.switches.linux.verbs import Request, counters


def main() -> None:
    """Answer until standard input ends."""
    for _ in sys.stdin:
        print(json.dumps(_answer()), flush=True)


def _answer() -> dict[str, Any]:
    try:
        with opened(state_folder(None)) as store:
            return counters(Request(), store)
    except Problem as problem:
        return {"problem": encode_problem(problem, exit_code=False)}


if __name__ == "__main__":
    main()
