"""Two jobs on one fabric, each under its own scheme: both come to their end, and the result tells them apart."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

JOB = {"workload": "resnet50", "iterations": 4, "bucket": "90 kB"}
EXPERIMENT: dict[str, Any] = {
    "format": 1,
    "name": "pair",
    "description": "for tests",
    "seed": 7,
    "repeats": 1,
    "time_limit": "40 s",
    "topology": {"kind": "star", "hosts": 5, "rate": "24 Mbit/s"},
    "port_buffer": "60 kB",
    "scaling": {"lab_rate": "6 Gbit/s", "byte_scale": 250},
    "jobs": {
        "one": JOB | {"workers": ["h1"], "servers": ["h2"], "beside": ["other"], "beside_scheme": "DLCP"},
        "other": JOB | {"workers": ["h3", "h4", "h5"], "pattern": "transpose", "iterations": 5, "measured": False},
    },
    "schemes": [{"scheme": "tcp-tuned", "label": "TCP tuned"}, {"scheme": "dlcp", "label": "DLCP"}],
}


@pytest.mark.long
def test_two_jobs__run_at_once_and_are_told_apart(tmp_path: Path) -> None:
    """The measured job over TCP, the other one a transpose over DLCP. It may be suspect on a busy machine."""
    (tmp_path / "pair.yaml").write_text(yaml.safe_dump(EXPERIMENT, sort_keys=False))
    command = [sys.executable, "-m", "dlcp.cli.main", "run", "pair.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    found = [json.loads(file.read_text()) for file in tmp_path.glob("results/pair/*/result.json")]
    by_label = {result["label"]: result for result in found}
    assert set(by_label) == {"TCP tuned", "DLCP"}, done.stderr
    for label, result in by_label.items():
        assert result["status"] in {"ok", "suspect"}, result["reason"]
        assert (result["job"], list(result["tenants"])) == ("one", ["other"])
        tenant = result["tenants"]["other"]
        assert (tenant["scheme"], tenant["label"]) == ("dlcp", "DLCP")
        assert tenant["jct_s"] >= tenant["ideal"]["jct_s"]
        assert set(result["statistics"]) >= {"h1", "h2", "h3", "h4", "h5"}
        assert set(result["traffic"]) == {"tcp" if label == "TCP tuned" else "dlcp"}
        (folder,) = {file.parent for file in tmp_path.glob(f"results/pair/*{result['run_id']}*/result.json")}
        iterations = pq.read_table(folder / "iterations.parquet").to_pydict()
        rows = list(zip(iterations["job"], iterations["worker"], iterations["iteration"], strict=True))
        assert sorted(rows) == sorted(
            [("one", "h1", i) for i in range(4)] + [("other", f"h{h}", i) for h in (3, 4, 5) for i in range(5)]
        )
        starts = {
            job: min(s for j, s in zip(iterations["job"], iterations["start_s"], strict=True) if j == job)
            for job in ("one", "other")
        }
        assert starts["one"] == starts["other"], "from one instant on"
        messages = pq.read_table(folder / "messages.parquet").to_pydict()
        ends = {"one": {"h1", "h2"}, "other": {"h3", "h4", "h5"}}
        pairs = zip(messages["job"], messages["src"], messages["dst"], strict=True)
        assert all({source, sink} <= ends[job] for job, source, sink in pairs)
