"""One host's part of the background traffic: its source and its sink, made from the plan, what became of each flow, and
the commands for them."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np

from dlcp.agents.process.commands import earlier
from dlcp.model.workload import Constant, Poisson
from dlcp.traffic.native import ARRIVAL, EXPECTED, SENT, Array, Lane, Sink, Source, address_bytes, flow_array
from dlcp.traffic.plan import PLANNED, TrafficPlan, TrafficSpec, plan_traffic

BACKGROUND_PORT = 5700
FIRST_SOURCE_PORT = 6_000
"""First source port, of UDP lanes one each, of TCP flows by number: below the job's own ports (transport.tcp.handshake)
and the kernel's choice. A plan's flows have the same ports in every run: flow-hash switches choose the same paths under
every scheme.
"""


class HostTraffic:
    """Source and sink of one host; the sink counts from the beginning.

    addresses: host → IPv4 address. tos: the IPv4 TOS byte of each entry. cookie: 32 bits that only this run knows.
    """

    def __init__(self, host: str, spec: TrafficSpec, addresses: dict[str, str], tos: list[int], cookie: int) -> None:
        plan = plan_traffic(spec)
        me = plan.hosts.index(host)
        _allow_many_files()
        self._sink: Sink | None = None
        if any(host in entry.sinks for entry in spec.entries):
            coming = plan.flows[plan.flows["sink"] == me]
            expected = _expected(spec, plan, coming, addresses, tos)
            dilation = spec.time_dilation
            self._sink = Sink(addresses[host], BACKGROUND_PORT, cookie, expected, time_dilation=dilation)
        self._rows = [rows for rows in _by_lane(spec, plan.flows, me) if len(rows)]
        lanes = [_lane(spec, rows, spec.rates_bps[host], tos, i) for i, rows in enumerate(self._rows)]
        places = [(addresses.get(other, addresses[host]), BACKGROUND_PORT) for other in plan.hosts]
        self._source = Source(addresses[host], cookie, lanes, places) if lanes else None

    def start(self, at_s: float) -> None:
        """Begin to send; the plan's times count from at_s (CLOCK_MONOTONIC)."""
        if self._source is not None:
            self._source.start(round(at_s * 1e9))

    def stop_sending(self) -> dict[str, int]:
        """End the sending; the source's counters. Nothing for a host that sends nothing."""
        return self._source.stop() if self._source is not None else {}

    def stop_counting(self, path: Path) -> dict[str, int]:
        """End the counting, and leave what became of each flow in a file; the sink's counters."""
        counted = self._sink.stop() if self._sink is not None else {}
        sent = self._source.sent if self._source is not None else []
        with path.open("wb") as file:
            np.savez(
                file,
                sent_number=np.concatenate([rows["number"] for rows in self._rows] or [np.zeros(0, "u4")]),
                sent_sink=np.concatenate([rows["sink"] for rows in self._rows] or [np.zeros(0, "i4")]),
                sent=np.concatenate([*sent, np.zeros(0, SENT)]),
                arrivals=self._sink.arrivals if self._sink is not None else np.zeros(0, ARRIVAL),
            )
        return counted


class BackgroundTraffic:
    """Commands for a host's background traffic."""

    def __init__(self) -> None:
        self._traffic: HostTraffic | None = None

    def background(
        self, host: str, spec: dict[str, Any], addresses: dict[str, str], tos: list[int], cookie: int
    ) -> dict[str, Any]:
        """Get a host's background traffic ready: its part of the plan, which follows from the spec."""
        self._traffic = HostTraffic(host, TrafficSpec.model_validate(spec), addresses, tos, cookie)
        return {}

    def start_background(self, at: float) -> dict[str, Any]:
        """Send from the instant `at` on (CLOCK_MONOTONIC)."""
        earlier(self._traffic, "background comes before start_background").start(at)
        return {}

    def stop_sending(self) -> dict[str, Any]:
        """End the sending; returns what was due until now and what was sent. Nothing for a host that sends nothing."""
        return dict(earlier(self._traffic, "background comes before stop_sending").stop_sending())

    def stop_counting(self, path: str) -> dict[str, Any]:
        """End the counting; returns what arrived, and writes what became of each flow to `path`."""
        return dict(earlier(self._traffic, "background comes before stop_counting").stop_counting(Path(path)))


def _allow_many_files() -> None:
    """Every open connection is one: as many as this process may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _by_lane(spec: TrafficSpec, flows: Array, me: int) -> list[Array]:
    """This host's flows: an entry's share a lane, but each constant stream its own."""
    sent = flows[flows["source"] == me]
    lanes = []
    for i, entry in enumerate(spec.entries):
        rows = sent[sent["entry"] == i]
        lanes += [rows[j : j + 1] for j in range(len(rows))] if isinstance(entry, Constant) else [rows]
    return lanes


def _lane(spec: TrafficSpec, rows: Array, link_rate_bps: float, tos: list[int], index: int) -> Lane:
    """How flows of one entry are sent: paced at the link's rate, or at the stream's own; TCP paces itself."""
    number = int(rows["entry"][0])
    entry = spec.entries[number]
    flows = flow_array(rows["start_s"], rows["bytes"], rows["sink"], rows["number"])
    if isinstance(entry, Poisson) and entry.transport == "tcp":
        return Lane(flows, tos[number], tcp=True, port=FIRST_SOURCE_PORT, time_dilation=spec.time_dilation)
    rate_bps = entry.rate_bps if isinstance(entry, Constant) else link_rate_bps
    port = FIRST_SOURCE_PORT + index
    return Lane(flows, tos[number], rate_bps=rate_bps, port=port, time_dilation=spec.time_dilation)


def _expected(spec: TrafficSpec, plan: TrafficPlan, coming: Array, addresses: dict[str, str], tos: list[int]) -> Array:
    """Flows that a sink expects, by number."""
    assert coming.dtype == PLANNED
    over_tcp = np.array([isinstance(entry, Poisson) and entry.transport == "tcp" for entry in spec.entries])
    known = np.array([address_bytes(addresses.get(host, "0.0.0.0")) for host in plan.hosts], np.uint8)
    expected = np.zeros(len(coming), EXPECTED)
    expected["bytes"], expected["tcp"] = coming["bytes"], over_tcp[coming["entry"]]
    expected["tos"] = np.array(tos, np.uint8)[coming["entry"]]
    expected["source"] = known[coming["source"]]
    return expected
