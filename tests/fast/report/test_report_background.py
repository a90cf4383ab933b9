"""How the background fared, from tables small enough to compute by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from synthetic_results import write_run

from dlcp.model.result import RunResult
from dlcp.model.topology import Star
from dlcp.report.build import report
from dlcp.report.data.background_flows import background
from dlcp.report.data.load import load

TOPOLOGY = Star(kind="star", hosts=4, rate="100 Mbit/s").graph.model_dump(mode="json")
ENTRIES = [{"kind": "poisson", "transport": "tcp"}, {"kind": "incast"}, {"kind": "constant"}]
NAN = float("nan")


def run(folder: Path, flows: list[dict[str, Any]], **fields: Any) -> None:
    given = {
        "run_id": "a",
        "experiment": "tiny",
        "scheme": "dlcp",
        "is_dlcp": True,
        "label": "DLCP",
        "job": "j",
        "repeat": 0,
        "seed": 1,
        "substrate": "emulate",
        "status": "ok",
        "jct_s": 12.0,
        "run": {"background": ENTRIES},
        "topology": TOPOLOGY,
    }
    result = RunResult.model_validate(given | fields)
    blank = {
        "entry": 0,
        "kind": "poisson",
        "src": "h1",
        "dst": "h2",
        "bytes": 1440,
        "planned_s": 0.0,
        "start_s": 0.0,
        "end_s": NAN,
        "delivered_bytes": 0,
    }
    rows = [blank | flow for flow in flows]
    write_run(folder / result.run_id, result, {"flows": {name: [row[name] for row in rows] for name in blank}})


def whole(number: int, slowdown: float, size: int = 1440, **more: Any) -> dict[str, Any]:
    """A flow that took so many times as long as over two idle links of 100 Mbit/s."""
    packets, overhead = -(-size // 1440), 42 if more.get("entry") else 66
    last = size - (packets - 1) * 1440 + overhead
    ideal_s = (size + packets * overhead + last) * 8 / 100e6
    at = 0.1 * number
    return {
        "bytes": size,
        "delivered_bytes": size,
        "planned_s": at,
        "start_s": at,
        "end_s": at + slowdown * ideal_s,
        **more,
    }


def test_slowdown__is_against_an_idle_fabric_at_line_rate(tmp_path: Path) -> None:
    run(tmp_path, [whole(i, 1 + i, size=14_400) for i in range(41)])
    (row,) = background(load(tmp_path)).to_dict("records")
    assert (row["kind"], row["transport"], row["size"]) == ("poisson", "tcp", "2 to 10 packets")
    assert row["p50"] == pytest.approx(21)
    assert row["p50_low"] < 21 < row["p50_high"]
    assert row["p99"] is None
    assert "needs" in row["why"]


def test_flows_that_did_not_come_whole__are_counted_but_have_no_slowdown(tmp_path: Path) -> None:
    lost = {"entry": 1, "kind": "incast", "bytes": 2880, "delivered_bytes": 1440}
    run(tmp_path, [*[whole(i, 2, size=2880, entry=1, kind="incast") for i in range(40)], *[lost] * 40])
    (row,) = background(load(tmp_path)).to_dict("records")
    assert (row["flows"], row["whole"], row["delivered_share"]) == (80, 40, 0.75)
    assert row["p50"] == pytest.approx(2)


def test_sizes_kinds_and_schemes__are_kept_apart_and_suspects_left_out(tmp_path: Path) -> None:
    flows = [whole(0, 1), whole(1, 1, size=200_000), whole(2, 1, size=10_000_000, entry=2, kind="constant")]
    run(tmp_path, flows)
    run(tmp_path, flows, run_id="b", scheme="tcp", is_dlcp=False, label="TCP")
    run(tmp_path, flows, run_id="c", repeat=1, status="suspect")
    found = background(load(tmp_path))
    assert [(row["kind"], row["size"], row["label"], row["flows"]) for row in found.to_dict("records")] == [
        ("constant", "over 100 packets", "TCP", 1),
        ("constant", "over 100 packets", "DLCP", 1),
        ("poisson", "1 packet", "TCP", 1),
        ("poisson", "1 packet", "DLCP", 1),
        ("poisson", "over 100 packets", "TCP", 1),
        ("poisson", "over 100 packets", "DLCP", 1),
    ]
    assert found[found["kind"] == "constant"]["why"].unique().tolist() == ["no flow has a slowdown"]


def test_the_page__tells_what_it_cost_others(tmp_path: Path) -> None:
    run(tmp_path, [whole(i, 3) for i in range(40)])
    page = report(tmp_path).html.read_text(encoding="utf-8")
    assert "What it cost others" in page
    assert "poisson, tcp, 1 packet" in page
    assert (tmp_path / "report-background.csv").read_text().count("\n") == 2


def test_results_without_background__say_nothing_of_it(tmp_path: Path) -> None:
    run(tmp_path, [], run={})
    assert background(load(tmp_path)).empty
    assert "What it cost others" not in report(tmp_path).html.read_text(encoding="utf-8")
