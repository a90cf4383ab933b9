"""The comparison end to end, of two tiny experiments: planned, run reduced, written; again makes nothing anew."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import dlcp

JOB = {"workload": "resnet50", "workers": ["h1", "h2", "h3"], "servers": ["h4"], "iterations": 3, "bucket": "60 kB"}
TINY: dict[str, Any] = {
    "format": 1,
    "description": "for a test",
    "seed": 3,
    "repeats": 2,
    "time_limit": "30 s",
    "topology": {"kind": "star", "hosts": 4, "rate": "20 Mbit/s"},
    "port_buffer": "40 kB",
    "scaling": {"lab_rate": "10 Gbit/s", "byte_scale": 500},
    "schemes": [{"scheme": "tcp-tuned", "label": "TCP tuned"}, {"scheme": "dlcp", "label": "DLCP"}],
    "expect": [
        {
            "job": "one",
            "metric": "jct_s",
            "scheme": "DLCP",
            "against": "TCP tuned",
            "relation": "not-worse",
            "paper": "a published claim",
            "why": "a mechanism",
        }
    ],
}
BURSTS = {"kind": "incast", "sources": ["h1", "h2"], "sinks": ["h4"], "burst": "10 kB", "interval": "200 ms"}


@pytest.mark.long
def test_two_experiments(tmp_path: Path) -> None:
    calm = TINY | {"name": "calm", "jobs": {"one": JOB, "two": JOB}, "reduced": {"jobs": ["one"]}}
    busy = TINY | {"name": "busy", "jobs": {"one": JOB | {"background": [BURSTS]}}, "reduced": {"repeats": 1}}
    schemes = [TINY["schemes"][0] | {"search": {"rto_min_s": ["5 ms", "10 ms"]}}, TINY["schemes"][1]]
    busy |= {"schemes": schemes}
    for one in (calm, busy):
        (tmp_path / f"{one['name']}.yaml").write_text(yaml.safe_dump(one))
    command = ("paper", "calm.yaml", "busy.yaml", "--out", "page")

    planned = json.loads(dlcp(*command, "--plan", "--json", cwd=tmp_path).stdout)
    assert [(row["experiment"], row["runs"], row["to_make"], row["to_tune"]) for row in planned] == [
        ("calm", 4, 4, 0),
        ("busy", 2, 2, 4),
    ]
    assert not (tmp_path / "results").exists()

    done = dlcp(*command, cwd=tmp_path, limit_s=240)
    assert done.returncode in (0, 4), done.stderr  # 4: a busy machine makes runs suspect, which the page then says
    lacking = 2 if "dlcp tune" in done.stderr else 0  # no run of the search was believed: its experiment is refused
    results = sorted((tmp_path / "results").glob("*/*/result.json"))
    assert len(results) == 6 - lacking
    assert (tmp_path / "tuned" / "busy.yaml").is_file()
    met = {(path.parts[-3], len(json.loads(path.read_text())["run"]["background"])) for path in results}
    assert met == ({("calm", 0)} if lacking else {("calm", 0), ("busy", 1)})
    text = (tmp_path / "page" / "RESULTS.md").read_text(encoding="utf-8")
    assert f"runs: {6 - lacking}, of which" in text
    assert "here: 1 of 2 jobs (without two)" in text
    assert "here: 1 of 2 repeats" in text
    assert len(re.findall("a published claim", text)) == (1 if lacking else 2)
    assert ("Not run:" in text) == bool(lacking)
    for picture in re.findall(r"\]\((images/[^)]+)\)", text):
        assert (tmp_path / "page" / picture).is_file()

    if not lacking:
        before = {path: path.stat().st_mtime_ns for path in results}
        assert "0 of 6 runs to make" in dlcp(*command, cwd=tmp_path).stdout
        assert {path: path.stat().st_mtime_ns for path in (tmp_path / "results").glob("*/*/result.json")} == before

    (tmp_path / "calm.yaml").write_text(yaml.safe_dump(calm | {"schemes": schemes}))
    dlcp(*command, cwd=tmp_path, limit_s=120)
    assert (tmp_path / "tuned" / "calm.yaml").is_file(), "all its runs are there, by the default that was not searched"
