"""Small experiments for tests, written as a person would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from dlcp.runner.planning.check import Ready, ready

WORKLOAD = {
    "kind": "profile",
    "name": "small",
    "source": "made up for tests",
    "source_quality": "derived",
    "device": "none",
    "batch": 1,
    "parameters": 9_000_000,
    "layers": [
        {"name": "first", "parameters": 1_000_000, "forward": "10 ms", "backward": "20 ms"},
        {"name": "last", "parameters": 8_000_000, "forward": "10 ms", "backward": "20 ms"},
    ],
}


LIGHT: dict[str, Any] = {
    "topology": {"kind": "star", "hosts": 4, "rate": "25 Mbit/s"},
    "scaling": {"lab_rate": "10 Gbit/s", "byte_scale": 100, "time_dilation": 4},
}
"""Changes to a document that make its load one that any machine carries."""


def document(**changes: Any) -> dict[str, Any]:
    """A valid experiment, with top-level keys changed."""
    job = {"workload": "small", "workers": ["h1", "h2", "h3"], "servers": ["h4"], "iterations": 4, "bucket": "60 kB"}
    return {
        "format": 1,
        "name": "small",
        "description": "for tests",
        "seed": 7,
        "repeats": 5,
        "time_limit": "30 s",
        "topology": {"kind": "star", "hosts": 4, "rate": "100 Mbit/s"},
        "port_buffer": "40 kB",
        "scaling": {"lab_rate": "10 Gbit/s", "byte_scale": 100},
        "jobs": {"one": job, "two": job | {"iterations": 5}},
        "schemes": [
            {"scheme": "tcp", "label": "TCP"},
            {"scheme": "tcp-tuned", "label": "TCP tuned"},
            {"scheme": "dlcp", "label": "DLCP"},
        ],
    } | changes


def write(folder: Path, content: dict[str, Any], workload: dict[str, Any] | None = None) -> Path:
    """The experiment's file, with a folder `workloads` beside it."""
    (folder / "workloads").mkdir(parents=True, exist_ok=True)
    (folder / "workloads" / "small.yaml").write_text(yaml.safe_dump(workload or WORKLOAD, sort_keys=False))
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def small(folder: Path, **changes: Any) -> Ready:
    """A checked experiment."""
    return ready(write(folder, document(**changes)), folder / "workloads")
