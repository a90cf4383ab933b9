"""The stub of the switch in docs/add-a-switch-system.md: `toyctl`, whose state is a file that TOYCTL_STATE names."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def told(running: list[str], lines: list[str]) -> list[str]:
    """Return the configuration that the lines lead to. ValueError at a line that is none of its language."""
    for line in lines:
        word, _, path = line.partition(" ")
        if word == "set":
            running = [*(one for one in running if one != line), line]
        elif word == "unset":
            running = [one for one in running if one != f"set {path}" and not one.startswith(f"set {path} ")]
        else:
            raise ValueError(f"no such line: {line}")
    return running


def answer(state: dict[str, Any], verb: str, lines: list[str]) -> str:
    """Carry out one command. state: running, and before, which is None where nothing waits to be accepted."""
    running, before = state["running"], state["before"]
    state["verbs"].append(verb)
    if verb == "show":
        return "\n".join(running)
    if verb == "compare":
        after = told(running, lines)
        return "\n".join(f"- {one}" for one in running if one not in after) + "\n".join(
            f"+ {one}" for one in after if one not in running
        )
    if verb == "commit":
        state["before"] = running if "--within" in sys.argv else None
        state["running"] = told(running, lines)
    elif verb in ("accept", "reject"):
        state["before"] = None
        state["running"] = running if verb == "accept" or before is None else before
    elif verb == "pending" and before is not None:
        raise ValueError("a change waits to be accepted")
    return "queue 0: sent 7" if verb == "counters" else ""


if __name__ == "__main__":
    file = Path(os.environ["TOYCTL_STATE"])
    kept = json.loads(file.read_text())
    said = [line for line in sys.stdin.read().splitlines() if line] if sys.argv[1] in ("compare", "commit") else []
    try:
        print(answer(kept, sys.argv[1], said))
    except ValueError as error:
        sys.exit(str(error))
    file.write_text(json.dumps(kept))
