"""The background on agents of one machine: what the caller is told of every flow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_agents import agents

from dlcp.agents.control.background_session import BackgroundResult, BackgroundSession
from dlcp.agents.control.handles import AgentError, Zygote
from dlcp.model.loading.experiment_files import load_sizes
from dlcp.model.result import TABLES
from dlcp.model.tables import check_table, write_columns
from dlcp.model.workload import Constant, Incast, Poisson
from dlcp.traffic.plan import TrafficSpec, plan_traffic

HOSTS = ("h1", "h2", "h3")
RATE_BPS = 200e6
FIRST_PART = 20 + os.getpid() % 200
"""Of the addresses: several test processes of one machine do not meet."""
ADDRESSES = {host: f"127.{FIRST_PART}.{os.getpid() // 200 % 250}.{i + 1}" for i, host in enumerate(HOSTS)}


def entries(seed: int = 1) -> TrafficSpec:
    table, _ = load_sizes("web-search")
    return TrafficSpec(
        entries=(
            Incast(kind="incast", sources=("h1", "h2"), sinks=("h3",), burst="10 kB", interval="30 ms"),
            Poisson(kind="poisson", sources=HOSTS, sinks=HOSTS, sizes="web-search", load=0.05, table=table),
            Constant(kind="constant", sources=("h3",), sinks=("h1",), rate="5 Mbit/s"),
        ),
        rates_bps=dict.fromkeys(HOSTS, RATE_BPS),
        seed=seed,
        horizon_s=60.0,
        byte_scale=1000.0,
    )


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote.spawn() as running:
        yield running


def carry_out(zygote: Zygote, folder: Path, spec: TrafficSpec, for_s: float) -> tuple[BackgroundResult, float]:
    """The result, and when it began."""
    with agents(zygote, HOSTS) as started:
        session = BackgroundSession(started, spec, ADDRESSES, tos=[0] * len(spec.entries), cookie=5, directory=folder)
        session.prepare()
        start_s = time.monotonic() + 0.05
        session.start(start_s)
        time.sleep(for_s)
        return session.stop(), start_s


def test_every_flow_that_was_due__is_told_of_as_it_was_planned(zygote: Zygote, tmp_path: Path) -> None:
    spec = entries()
    result, start_s = carry_out(zygote, tmp_path, spec, 0.6)
    assert list(tmp_path.iterdir()) == [], "the agents' records are gone"
    flows = {name: np.array(values) for name, values in result.flows.items()}
    assert list(result.flows) == list(TABLES["flows"])
    write_columns(tmp_path, "flows", result.flows)
    assert check_table(tmp_path, "flows") == ""
    assert set(flows["kind"]) == {"incast", "poisson", "constant"}
    plan = plan_traffic(spec).flows
    for entry in range(len(spec.entries)):
        mine, planned = flows["entry"] == entry, plan[plan["entry"] == entry]
        at_s = flows["planned_s"][mine] - start_s
        nearest = np.searchsorted(planned["start_s"], at_s - 1e-7)
        assert planned["start_s"][nearest] == pytest.approx(at_s, abs=1e-6)
        assert (np.diff(nearest) > 0).all() or spec.entries[entry].kind == "incast", "each once"
        surely_due = planned["start_s"] < 0.6 - 0.05
        assert mine.sum() >= surely_due.sum()
        if entry < 2:
            assert (flows["bytes"][mine] == planned["bytes"][nearest]).all()
    whole = np.isfinite(flows["end_s"])
    assert (flows["delivered_bytes"][whole] == flows["bytes"][whole]).all()
    assert (flows["delivered_bytes"][~whole] < flows["bytes"][~whole]).all()
    assert (flows["end_s"][whole] >= flows["start_s"][whole]).all()
    assert whole.mean() > 0.5, "on loopback nothing is lost but what the end cut off"


def test_totals__are_the_sums_of_the_flows_and_of_what_threads_cost(zygote: Zygote, tmp_path: Path) -> None:
    result, _ = carry_out(zygote, tmp_path, entries(), 0.6)
    totals = result.totals
    assert totals["received_bytes"] == sum(result.flows["delivered_bytes"])
    assert totals["strangers"] == totals["refused_bytes"] == 0
    assert totals["offered_bytes"] <= totals["due_bytes"]
    assert 0 < totals["started_flows"] <= totals["due_flows"]
    assert totals["connections"] > 0
    assert totals["cpu_us_per_flow"] * totals["started_flows"] == pytest.approx(
        1e6 * (totals["source_cpu_s"] + totals["sink_cpu_s"])
    )


def test_a_plan_that_no_agent_can_hold__fails_with_its_size(zygote: Zygote, tmp_path: Path) -> None:
    spec = entries()
    many: dict[str, Any] = spec.model_dump() | {"horizon_s": 1e7}
    with agents(zygote, HOSTS) as started:
        session = BackgroundSession(
            started,
            TrafficSpec.model_validate(many | {"entries": many["entries"][1:2]}),
            ADDRESSES,
            tos=[0],
            cookie=5,
            directory=tmp_path,
        )
        with pytest.raises(AgentError, match="is the most"):
            session.prepare()
