"""JSON of files that may be damaged: read within bounds; every refusal is a ValueError that names the place."""

from __future__ import annotations

import json
import re
from typing import Any

MAX_DEPTH = 64
"""Levels of lists and objects. The records of this program have 10 at most; Python's own functions for JSON fail
with RecursionError near 1000, some of them not before the text is written again."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
"""A string, whose brackets do not count, or a bracket."""


def parse_json(text: str) -> Any:
    """Return the data of a JSON text. ValueError when it is not JSON, or is nested deeper than MAX_DEPTH."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise _too_deep(text) from None
    if _is_deep(data):
        raise _too_deep(text)
    return data


def _is_deep(data: Any) -> bool:
    level = [data]
    for _ in range(MAX_DEPTH + 1):
        containers = [value for value in level if isinstance(value, dict | list)]
        if not containers:
            return False
        level = [child for value in containers for child in (value.values() if isinstance(value, dict) else value)]
    return True


def _too_deep(text: str) -> ValueError:
    """The error that names where the first bracket of too deep a level stands."""
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token.group(), 0)
        if depth > MAX_DEPTH:
            line = text.count("\n", 0, token.start()) + 1
            column = token.start() - text.rfind("\n", 0, token.start())
            return ValueError(f"nested deeper than {MAX_DEPTH} levels: line {line} column {column}")
    return ValueError(f"nested deeper than {MAX_DEPTH} levels")
