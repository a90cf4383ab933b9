"""Runs `dlcp bench …` as a shell does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from command import dlcp

LIMIT_S = 90
COMMAND = [sys.executable, "-m", "dlcp.cli.main", "bench"]
"""For what is to run beside the test."""


def bench(*arguments: str, key: str = "") -> subprocess.CompletedProcess[str]:
    return dlcp("bench", *arguments, cwd=Path.cwd(), env={**os.environ, "DLCP_BENCH_KEY": key}, limit_s=LIMIT_S)


def report(*arguments: str, key: str = "") -> dict[str, Any]:
    """The JSON of a bench that must end well."""
    done = bench(*arguments, "--json", key=key)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert_shape(found)
    return found


def figure(found: dict[str, Any], name: str) -> dict[str, Any]:
    (one,) = [one for one in found["figures"] if one["name"] == name]
    return one


def assert_shape(found: dict[str, Any]) -> None:
    """What programs may rely on."""
    assert found["format"] == 1
    assert set(found) == {"format", "bench", "where", "options", "figures", "notes", "machine", "runs"}
    assert {"cpu_busy", "cpu_busy_before", "load_before", "load_after", "quiet", "kernel", "cores"} <= set(
        found["machine"]
    )
    for one in found["figures"]:
        assert {"name", "unit", "better", "values", "best", "median", "repeats", "limit", "why"} == set(one)
        assert one["repeats"] == len(one["values"])
        assert bool(one["values"]) != bool(one["why"])
        if one["values"]:
            assert one["best"] == (min if one["better"] == "lower" else max)(one["values"])
