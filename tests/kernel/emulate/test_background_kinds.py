"""Background of every kind through a small fabric: what is planned goes into its queue, and arrives."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from traffic import plain, star

from dlcp.agents.control.background_session import BackgroundSession
from dlcp.agents.control.handles import start_agents
from dlcp.model.frames import UDP_OVERHEAD_BYTES
from dlcp.model.loading.experiment_files import load_sizes
from dlcp.model.workload import Constant, Incast, Poisson
from dlcp.traffic.native import DATAGRAM_BYTES
from dlcp.traffic.plan import TrafficSpec
from dlcp.transport.contract.codepoint import tos_of_queue

RATE_MBIT = 100.0
HOSTS = ("h1", "h2", "h3", "h4")
PLANNED_S = 1.0
SETTLES_S = 20.0
"""Longest wait for TCP flows that began last."""


def every_kind() -> dict[str, Any]:
    """Each entry in a queue of its own, queue = entry + 1; all that was planned, then stopped."""
    table, _ = load_sizes("web-search")
    common = {"sources": HOSTS, "sinks": HOSTS}
    entries = (
        Incast(kind="incast", sources=("h1", "h2"), sinks=("h3", "h4"), burst="15 kB", interval="100 ms", queue=1),
        Poisson(kind="poisson", **common, sizes="web-search", load=0.05, transport="udp", queue=2, table=table),
        Poisson(kind="poisson", **common, sizes="web-search", load=0.05, queue=3, table=table),
        Constant(kind="constant", sources=("h1",), sinks=("h2", "h3"), rate="2 Mbit/s", queue=4),
    )
    spec = TrafficSpec(
        entries=entries, rates_bps=dict.fromkeys(HOSTS, RATE_MBIT * 1e6), seed=3, horizon_s=PLANNED_S, byte_scale=100
    )
    with star([RATE_MBIT] * 4, plain(400_000)) as fabric, tempfile.TemporaryDirectory() as folder:
        agents = start_agents(fabric.pids())
        addresses = {host: fabric.address(host) for host in HOSTS}
        session = BackgroundSession(
            agents, spec, addresses, tos=[tos_of_queue(e.queue) for e in entries], cookie=99, directory=Path(folder)
        )
        session.prepare()
        fabric.reset_counters()
        session.start(time.monotonic() + 0.1)
        time.sleep(0.1 + PLANNED_S)
        before, deadline_s = -1, time.monotonic() + SETTLES_S
        while before != (now := sum(row["enqueued_packets"] for row in fabric.counters())) and (
            time.monotonic() < deadline_s
        ):
            before = now
            time.sleep(0.5)
        found = session.stop()
        unaccounted = fabric.conservation()
        return {"totals": found.totals, "flows": found.flows, "ports": fabric.counters(), "unaccounted": unaccounted}


def test_every_kind__goes_into_its_queue_and_arrives_whole(inside: Callable[..., Any]) -> None:
    seen = inside(every_kind)
    totals, flows = seen["totals"], seen["flows"]
    rows = [dict(zip(flows, values, strict=True)) for values in zip(*flows.values(), strict=True)]
    assert seen["unaccounted"] == []
    assert totals["strangers"] == totals["rx_overflow"] == totals["refused_bytes"] == totals["failed_flows"] == 0
    assert totals["offered_bytes"] == totals["due_bytes"] == sum(row["bytes"] for row in rows)
    assert totals["received_bytes"] == sum(row["delivered_bytes"] for row in rows)
    assert totals["started_flows"] == totals["due_flows"] == len(rows)
    for entry, kind in enumerate(("incast", "poisson", "poisson", "constant")):
        mine = [row for row in rows if row["entry"] == entry]
        assert mine, kind
        assert {row["kind"] for row in mine} == {kind}
        assert all(row["delivered_bytes"] == row["bytes"] for row in mine)
        assert all(row["planned_s"] <= row["start_s"] < row["end_s"] for row in mine)
        packets, size = in_queue(seen["ports"], entry + 1)
        data = sum(row["bytes"] for row in mine)
        if entry == 2:  # TCP: data, acknowledgements, openings and closings, all in one queue
            assert totals["connections"] == len(mine)
            assert size > data + 2 * len(mine) * 54
            assert packets >= sum(math.ceil(row["bytes"] / 1448) for row in mine) + 5 * len(mine)
        else:
            datagrams = sum(math.ceil(row["bytes"] / DATAGRAM_BYTES) for row in mine)
            assert packets == datagrams
            assert size == data + datagrams * UDP_OVERHEAD_BYTES
    assert in_queue(seen["ports"], 0) == (0, 0), "nothing of it goes unmarked"


def in_queue(ports: list[dict[str, Any]], queue: int) -> tuple[int, int]:
    """Packets and bytes that the switch put into a queue, over all ports."""
    rows = [row for row in ports if row["queue"] == queue]
    assert sum(row["dropped_tail_packets"] for row in rows) == 0
    return sum(row["enqueued_packets"] for row in rows), sum(row["enqueued_bytes"] for row in rows)
