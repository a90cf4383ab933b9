"""Costs that a scheme causes to others: the completion of background flows that run at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from dlcp.model.frames import PAYLOAD_BYTES, TCP_OVERHEAD_BYTES, UDP_OVERHEAD_BYTES
from dlcp.model.topology import Graph
from dlcp.report.data.load import Results
from dlcp.report.data.run import Run
from dlcp.report.data.statistics import Estimate, quantile_interval

SIZES = ((1, "1 packet"), (10, "2 to 10 packets"), (100, "11 to 100 packets"), (np.inf, "over 100 packets"))
"""Up to so many packets' payload."""
FRAME_OVERHEAD = {"tcp": TCP_OVERHEAD_BYTES, "udp": UDP_OVERHEAD_BYTES}
"""Bytes of Ethernet, IPv4 and the transport around a packet's payload; TCP's with time stamps."""
BLOCK_S = 0.1
"""Flows planned in the same tenth of a second meet the same queues: they are drawn again together."""
SEED = 20
COLUMNS = (
    "job",
    "label",
    "kind",
    "transport",
    "size",
    "flows",
    "whole",
    "delivered_share",
    "p50",
    "p50_low",
    "p50_high",
    "p99",
    "p99_low",
    "p99_high",
    "why",
)


def background(results: Results) -> pd.DataFrame:
    """Flows of the background by job, kind, size and scheme, over trusted runs.

    flows: that were due before the job ended; whole: of these, all bytes came by then. delivered_share: of their bytes.
    p50, p99: quantiles of the slowdown of the whole ones, with 95 % intervals: time from the first byte sent to the
    last one there over that of an idle fabric at line rate. TCP's handshake counts as slowdown. Flows that the job's
    end cut off have no slowdown: where `whole` is far below `flows`, the quantiles are those of the lucky. A constant
    stream has none either. A shaper's token bucket lets a first packet pass at once, so a flow of one packet may be
    below 1. why: why a quantile is not given.
    """
    return results.made("background", lambda: _background(results))


def _background(results: Results) -> pd.DataFrame:
    rows = []
    for job in results.jobs:
        for label in results.labels(job):
            flows = [_flows(run) for run in results.of(job, label) if run.trusted]
            pooled = pd.concat(flows, ignore_index=True) if flows else pd.DataFrame()
            rows += [{"job": job, "label": label, **row} for row in _summed(pooled)]
    sizes = [size for _, size in SIZES]
    rows.sort(key=lambda row: (results.jobs.index(row["job"]), row["kind"], row["transport"], sizes.index(row["size"])))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _flows(run: Run) -> pd.DataFrame:
    """A run's flows with their transport, size class, slowdown and block."""
    file = run.path / "flows.parquet"
    entries = run.result.run.get("background")
    if not file.is_file() or not entries:
        return pd.DataFrame()
    table = pd.read_parquet(file)
    transports = [str(entry.get("transport", "udp")) for entry in entries]
    table["transport"] = [transports[entry] for entry in table["entry"]]
    packets = np.ceil(table["bytes"] / PAYLOAD_BYTES)
    table["size"] = np.select([packets <= most for most, _ in SIZES], [name for _, name in SIZES], "")
    ideal_s = _ideal_s(Graph.model_validate(run.result.topology), table, packets)
    slowdown = (table["end_s"] - table["start_s"]) / ideal_s
    table["slowdown"] = slowdown.where(table["kind"] != "constant")
    table["block"] = [f"{run.result.run_id}/{int(at / BLOCK_S)}" for at in table["planned_s"]]
    return table


def _ideal_s(graph: Graph, table: pd.DataFrame, packets: pd.Series) -> pd.Series:
    """From the first byte's leaving to the last one's coming over an idle fabric: all packets at the rate of the slower
    of the two hosts' links, then the last one over the links that are left, at that rate too."""
    path: dict[tuple[str, str], tuple[float, int]] = {}
    distances = {sink: graph.distances_to(sink) for sink in set(table["dst"])}
    for source, sink in set(zip(table["src"], table["dst"], strict=True)):
        rate_bps = min(graph.host_link(source).rate_bps, graph.host_link(sink).rate_bps)
        path[source, sink] = rate_bps, distances[sink][source] - 1
    ideals = [path[pair] for pair in zip(table["src"], table["dst"], strict=True)]
    rate = np.array([rate_bps for rate_bps, _ in ideals])
    further = np.array([links for _, links in ideals])
    overhead = table["transport"].map(FRAME_OVERHEAD)
    last = table["bytes"] - (packets - 1) * PAYLOAD_BYTES + overhead
    ideal: pd.Series = (table["bytes"] + packets * overhead + further * last) * 8 / rate
    return ideal


def _summed(flows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """One row for each kind, transport and size, in their order."""
    if flows.empty:
        return
    for (kind, transport), group in flows.groupby(["kind", "transport"], sort=True):
        for _, size in SIZES:
            some = group[group["size"] == size]
            if len(some):
                median, tail = (_quantile(some, q) for q in (0.5, 0.99))
                yield {
                    "kind": kind,
                    "transport": transport,
                    "size": size,
                    "flows": len(some),
                    "whole": int(some["end_s"].notna().sum()),
                    "delivered_share": float(some["delivered_bytes"].sum() / some["bytes"].sum()),
                    "p50": median.value,
                    "p50_low": median.low,
                    "p50_high": median.high,
                    "p99": tail.value,
                    "p99_low": tail.low,
                    "p99_high": tail.high,
                    "why": tail.why,
                }


def _quantile(flows: pd.DataFrame, q: float) -> Estimate:
    known = flows[flows["slowdown"].notna()]
    if known.empty:
        return Estimate(None, None, None, 0, "bootstrap", "no flow has a slowdown")
    blocks = np.unique(known["block"], return_inverse=True)[1].astype(np.int64)
    interval = quantile_interval(known["slowdown"].to_numpy(np.float64), blocks, q, seed=SEED)
    why = interval.why.replace("iterations", "tenths of a second")
    return Estimate(interval.value, interval.low, interval.high, interval.n, interval.method, why)
