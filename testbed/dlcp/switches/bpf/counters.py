"""Counters of a fabric: rows of the table `ports`, what hosts sent and received, what came in astray."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from dlcp.model.qos import PRECEDENCES, QUEUES
from dlcp.switches.bpf.snapshot import Counts, Snapshot

_OWN = (
    "enqueued",
    "sent",
    "dropped_wred",
    "dropped_tail",
    "dropped_shared",
    "dropped_loss",
    "dropped_unrouted",
    "marked_ce",
)


class Counters:
    """From one snapshot to a later one; ports: the ifindexes to tell of. epoch: of the peaks. wired: those of them
    that have a delay before their far end; what a cut cable took before the delay is counted where it would have come
    in."""

    def __init__(
        self, before: Snapshot, now: Snapshot, ports: Sequence[int], epoch: int, wired: Set[int] = frozenset()
    ) -> None:
        port_rows = now.rows(ports)
        far_rows = now.rows(ifindex ^ 1 for ifindex in ports)

        def counted(name: str) -> Counts:
            return now.tally(name) - before.tally(name)

        self._tallies = {name: counted(name)[port_rows] for name in _OWN}
        severed = counted("severed")
        before_delay = severed[now.rows(ifindex ^ 3 if ifindex in wired else ifindex for ifindex in ports)]
        before_delay[[ifindex not in wired for ifindex in ports]] = 0
        self._tallies["received"] = counted("sent")[far_rows] + before_delay
        self._tallies["dropped_down"] = counted("dropped_down")[port_rows] + severed[far_rows] + before_delay
        self._peaks = now.peaks(epoch)[port_rows]
        self._histograms = (now.histograms() - before.histograms())[port_rows]
        self._not_ipv4 = (now.not_ipv4() - before.not_ipv4())[port_rows]

    def rows(self, port: int) -> list[dict[str, Any]]:
        """Return the rows of the port-th port, one for each (queue, precedence).

        The columns are those of TABLES["ports"], without its names.
        """
        return [self._row(port, queue, precedence) for queue in range(QUEUES) for precedence in range(PRECEDENCES)]

    def strays(self, port: int) -> dict[str, int]:
        """Packets that came in at the port-th port and had no egress port."""
        unrouted = self._tallies["dropped_unrouted"][port, ..., 0].sum()
        return {"not_ipv4_packets": int(self._not_ipv4[port]), "unrouted_packets": int(unrouted)}

    def _row(self, port: int, queue: int, precedence: int) -> dict[str, Any]:
        row: dict[str, Any] = {"queue": queue, "precedence": precedence}
        for name, tally in self._tallies.items():
            row[f"{name}_packets"], row[f"{name}_bytes"] = map(int, tally[port, queue, precedence])
        row["peak_backlog_bytes"] = int(self._peaks[port, queue]) if precedence == 0 else 0
        row["backlog_histogram"] = self._histograms[port, queue].tolist() if precedence == 0 else []
        return row
