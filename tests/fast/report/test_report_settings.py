"""What the runs were made with, in words; and where the fabric did something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from synthetic_results import PROFILE, REAL, make_results

from dlcp.report.analysis.settings import differing_qos, regime_rows
from dlcp.report.data.load import load
from dlcp.report.data.regime_facts import facts_of_jobs, regime_caption, regime_facts

REGIME = {
    "link_rate_bps": 1e8,
    "lab_rate_bps": 1e10,
    "byte_scale": 100.0,
    "time_dilation": 1.0,
    "port_buffer_bytes": 40_000,
    "port_buffer_packets": 26,
    "port_buffer_lab_s": 0.0032,
    "bucket_packets": 30.6,
    "TCP_rto_floor_lab_s": 0.2,
    "TCP tuned_rto_floor_lab_s": 0.005,
    "idle_rtt_s": 0.001,
}


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    return make_results(tmp_path, repeats=2, iterations=2, tensors=1)


def edit(run: Path, **fields: object) -> None:
    file = run / "result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def test_regime__says_what_belongs_together_in_one_fact() -> None:
    assert regime_facts(REGIME) == [
        ("links", "100 Mbit/s"),
        ("lab links", "10 Gbit/s"),
        ("byte scale", "100"),
        ("time dilation", "1"),
        ("port buffer", "40 kB = 26 packets = 3.2 ms of lab line rate"),
        ("buffering", "static: one pool of all queues of a port"),
        ("bucket", "31 packets"),
        ("TCP: RTO floor", "200 ms (lab time)"),
        ("TCP tuned: RTO floor", "5 ms (lab time)"),
        ("idle rtt", "1 ms"),
    ]
    sharing = {
        "buffering": "dynamic",
        "buffer_alpha": 1.0,
        "queue_minimum_bytes": 1514,
        "shared_buffer_bytes": 80_000,
        "shared_buffer_lab_bytes": 8_000_000,
    }
    dynamic = dict(regime_facts(REGIME | sharing))
    assert dynamic["buffering"] == "dynamic: alpha 1 of 80 kB a switch (8 MB in the lab), 1.514 kB of its own a queue"
    assert list(dynamic) == [name for name, _ in regime_facts(REGIME)]
    assert regime_caption({"link_rate_bps": 1e8, "byte_scale": 2.0}) == "links 100 Mbit/s  ·  byte scale 2"


def test_regime_rows__name_the_job_where_jobs_differ(experiment: Path) -> None:
    for run in experiment.glob("*-real-*"):
        edit(run, regime=REGIME)
    rows = dict(regime_rows(load(experiment)))
    assert rows["links"] == "100 Mbit/s"
    assert rows["byte scale"] == f"25 ({PROFILE}), 100 ({REAL})"
    assert f"byte scale 25 ({PROFILE}), 100 ({REAL})" in regime_caption(load(experiment).regime())
    assert "byte scale 100  ·" in regime_caption(load(experiment).regime(REAL))


def test_facts_of_jobs__names_all_jobs_of_a_value() -> None:
    regimes = {"one": {"byte_scale": 25.0}, "two": {"byte_scale": 100.0}, "three": {"byte_scale": 25.0}}
    assert facts_of_jobs(regimes) == [("byte scale", "25 (one, three), 100 (two)")]


def settings(buffer: int | dict[str, int], **sysctls: str) -> dict[str, Any]:
    buffers = buffer if isinstance(buffer, dict) else {"all": buffer}
    return {
        "load_balancing": {"l1": "flow-hash"},
        "hosts": {"all": {"sysctls": sysctls, "rto_min_s": 0.005}},
        "ports": {port: {"port_buffer_bytes": size} for port, size in buffers.items()},
    }


def test_differing_qos__is_empty_when_all_is_as_meant(experiment: Path) -> None:
    assert differing_qos(load(experiment)) == []


def test_differing_qos__looks_at_every_run_and_at_what_is_missing(experiment: Path) -> None:
    edit(experiment / "tcp-profile-1", intended=settings(40_000, sack="1"), effective=settings(39_000))
    assert differing_qos(load(experiment / "tcp-profile-1")) == [
        {"label": "TCP", "path": "hosts.all.sysctls.sack", "intended": "1", "effective": "–", "runs": "1"},
        {"label": "TCP", "path": "ports.all.port_buffer_bytes", "intended": "40 kB", "effective": "39 kB", "runs": "1"},
        {"label": "TCP", "path": "hosts.all.sysctls", "intended": "–", "effective": "{}", "runs": "1"},
    ]


def test_differing_qos__names_only_the_ports_that_differ(experiment: Path) -> None:
    edit(
        experiment / "tcp-profile-1", intended=settings(40_000), effective=settings({"l1-h1": 40_000, "l1-h2": 39_000})
    )
    (row,) = differing_qos(load(experiment / "tcp-profile-1")) or []
    assert (row["path"], row["effective"]) == ("ports.l1-h2.port_buffer_bytes", "39 kB")


def test_differing_qos__knows_when_nothing_was_read_back(experiment: Path) -> None:
    for run in experiment.glob("*-*-*"):
        edit(run, effective={})
    assert differing_qos(load(experiment)) is None
