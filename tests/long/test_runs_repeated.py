"""The same experiment three times, once alone and twice at once: the same plan, the same sums, nothing shared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
import yaml

pytestmark = [
    pytest.mark.root,
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="emulates, which needs root; run as root"),
]

JOB = {"workload": "resnet50", "workers": ["h1", "h2"], "servers": ["h3"], "iterations": 6, "bucket": "60 kB"}
EXPERIMENT = {
    "format": 1,
    "name": "again",
    "description": "a short job over TCP and over DLCP, to be run again",
    "seed": 11,
    "repeats": 1,
    "time_limit": "60 s",
    "topology": {"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts": 4, "rate": "40 Mbit/s"},
    "port_buffer": "60 kB",
    "scaling": {"lab_rate": "10 Gbit/s", "byte_scale": 250},
    "jobs": {"one": JOB},
    "schemes": [{"scheme": "tcp", "label": "TCP"}, {"scheme": "dlcp", "label": "DLCP"}],
}
BYTES_BAND = 0.03
"""Of all bytes that all ports enqueued. The same gradients cross in every run: what differs is what was lost and sent
again, and acknowledgements; at twice the load of the machine too."""

LIMIT_S = 150


def start(folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir()
    (folder / "again.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    with (folder / "output.txt").open("wb") as output:
        command = [sys.executable, "-m", "dlcp.cli.main", "run", "again.yaml"]
        return subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)


def finished(process: subprocess.Popen[bytes], folder: Path) -> dict[str, dict[str, Any]]:
    """Label → result, with the sums of its ports. 4: suspect, on a busy machine."""
    try:
        assert process.wait(timeout=LIMIT_S) in (0, 4), (folder / "output.txt").read_text()
    finally:
        process.kill()
        process.wait()
    found = {}
    for path in (folder / "results" / "again").glob("*/result.json"):
        result = json.loads(path.read_text())
        rows = parquet.read_table(path.with_name("ports.parquet")).to_pylist()
        result["bytes"] = sum(row["enqueued_bytes"] for row in rows)
        result["rows"] = len(rows)
        del result["run"]["attempt"]  # a suspect one is tried again
        result["iterations"] = parquet.read_table(path.with_name("iterations.parquet")).num_rows
        found[result["label"]] = result
    return found


def test_one_seed_gives_one_plan_and_the_same_sums(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("alone", "left", "right")]
    alone = finished(start(folders[0]), folders[0])
    processes = [start(folder) for folder in folders[1:]]
    try:
        together = [finished(process, folder) for process, folder in zip(processes, folders[1:], strict=True)]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert set(alone) == {"TCP", "DLCP"}
    for other in together:
        for label, first in alone.items():
            second = other[label]
            for key in ("run_id", "run", "seed", "intended", "rows", "iterations"):
                assert second[key] == first[key], (label, key)
            assert second["fidelity"]["unaccounted_packets"]["value"] == 0
            print(label, first["bytes"], second["bytes"])
            assert second["bytes"] == pytest.approx(first["bytes"], rel=BYTES_BAND), label
