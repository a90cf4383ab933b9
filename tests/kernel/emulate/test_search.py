"""A search on a real fabric: every point runs, the record says so, and the runs of the experiment use what it chose."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

JOB = {"workload": "resnet50", "workers": ["h1", "h2"], "servers": ["h3"], "iterations": 3, "bucket": "44 kB"}
EXPERIMENT: dict[str, Any] = {
    "format": 1,
    "name": "searched",
    "description": "for tests",
    "seed": 7,
    "repeats": 1,
    "time_limit": "30 s",
    "topology": {"kind": "star", "hosts": 3, "rate": "50 Mbit/s"},
    "port_buffer": "60 kB",
    "scaling": {"lab_rate": "10 Gbit/s", "byte_scale": 200},
    "jobs": {"train": JOB},
    "schemes": [{"scheme": "bytescheduler", "label": "BS", "search": {"credit": ["88 kB", "176 kB"]}}],
}


def dlcp(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dlcp.cli.main", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=170, check=False)


@pytest.mark.long
def test_search__is_made_recorded_and_used(tmp_path: Path) -> None:
    """By `dlcp run` itself; `dlcp tune` finds nothing left to do. On a busy machine no point may be trusted: then
    nothing is chosen, and the experiment's runs are refused."""
    (tmp_path / "searched.yaml").write_text(yaml.safe_dump(EXPERIMENT, sort_keys=False))
    done = dlcp(tmp_path, "run", "searched.yaml")
    assert "searched: its schemes' knobs are searched first, as by `dlcp tune`" in done.stdout, done.stderr
    (search,) = yaml.safe_load((tmp_path / "tuned" / "searched.yaml").read_text())["searches"]
    for point in search["points"]:
        assert [run["status"] in ("ok", "suspect") and run["jct_s"] > 0 for run in point["runs"]] == [True, True]
    if search.get("chosen") is None:
        assert done.returncode == 2
        assert "dlcp tune searched.yaml" in done.stderr
        return
    (result,) = (json.loads(file.read_text()) for file in tmp_path.glob("results/searched/*/result.json"))
    credit = int(search["chosen"]["credit"].split()[0]) * 1000
    assert result["knobs"]["credit"] == credit
    assert result["tuning"]["chosen"] == search["chosen"]
    sent = result["statistics"]["h1"]["transport"]["most_under_way_bytes"]
    assert 0 < sent <= credit
    again = dlcp(tmp_path, "tune", "searched.yaml", "--json")
    trusted = all(run["status"] == "ok" for point in search["points"] for run in point["runs"])
    assert (json.loads(again.stdout)["made"] == 0) == trusted
