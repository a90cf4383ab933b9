"""A bench inside a private world: options go in as JSON, the report comes out as JSON, progress on stderr."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from dlcp.isolation.private_namespaces import start_private

Say = Callable[[str], None]
"""Callback that gets one line of progress a step."""


def in_private_world(entry: str, options: dict[str, Any]) -> dict[str, Any]:
    """Run "package.module:function" there, which prints its report; SystemExit with its code when it fails.

    Raises MachineCannot when namespaces cannot be made here.
    """
    process = start_private(entry, [json.dumps(options)], stdout=subprocess.PIPE)
    try:
        out, _ = process.communicate()
    finally:
        process.stop()
    if process.returncode:  # the inside has said why
        raise SystemExit(process.returncode)
    report: dict[str, Any] = json.loads(out)
    return report


def to_stderr(line: str) -> None:
    """Progress, where standard output is the report's."""
    print(line, file=sys.stderr, flush=True)
