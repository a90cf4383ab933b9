"""A fabric of testbed/native/simulate with planned datagrams, for tests. Rates are bit/s, times picoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dlcp.model.frames import FRAME_BYTES
from dlcp.transport._native import ffi, lib

Times = npt.NDArray[np.uint64]

NEVER = 2**64 - 1
PLANNED = np.dtype(
    {
        "names": ["at_ps", "host", "destination", "flow", "bytes", "tos"],
        "formats": ["u8", "u4", "u4", "u4", "u2", "u1"],
        "offsets": [0, 8, 12, 16, 20, 22],
        "itemsize": 24,
    }
)
"""struct dlcp_planned_packet"""
COLUMNS = (
    "received",
    "enqueued",
    "sent",
    "dropped_wred",
    "dropped_tail",
    "dropped_shared",
    "dropped_loss",
    "dropped_down",
    "dropped_unrouted",
    "marked_ce",
)
DROPS = tuple(name for name in COLUMNS if name.startswith("dropped"))
GBIT = 10**9


@dataclass(frozen=True)
class Link:
    """A link between two nodes; hosts are the first nodes."""

    first: int
    second: int
    rate_bps: int = 10 * GBIT
    delay_ps: int = 1_000_000


@dataclass
class Fabric:
    """A built fabric. Port 2k is link k's end at its first node, 2k + 1 the one at its second."""

    hosts: int
    nodes: int
    links: Sequence[Link]
    seed: int = 1
    flags: int = 0
    shift: int = 10
    left_ps: Times = field(default_factory=lambda: np.empty(0, np.uint64))
    arrived_ps: Times = field(default_factory=lambda: np.empty(0, np.uint64))

    def __post_init__(self) -> None:
        config = ffi.new(
            "struct dlcp_fabric_config *",
            {
                "hosts": self.hosts,
                "nodes": self.nodes,
                "links": len(self.links),
                "bucket_shift": self.shift,
                "event_flags": self.flags,
                "full_frame_bytes": FRAME_BYTES,
                "seed": self.seed,
            },
        )
        links = ffi.new("struct dlcp_link[]", [(x.first, x.second, x.rate_bps, x.delay_ps) for x in self.links])
        made = lib.dlcp_fabric_new(config, links)
        assert made != ffi.NULL
        self.native = ffi.gc(made, lib.dlcp_fabric_free)

    def rules(self, port: int, rules: Any) -> None:
        """rules: a rendered intent (its bytes), or a struct dlcp_aqm_port of cffi."""
        if not isinstance(rules, ffi.CData):
            data = bytes(rules)
            assert len(data) == ffi.sizeof("struct dlcp_aqm_port")
            rules = ffi.cast("struct dlcp_aqm_port *", ffi.from_buffer(data))
        assert lib.dlcp_fabric_set_rules(self.native, port, rules) == 0

    def routes(self, node: int, hosts: dict[int, Sequence[int]], balancing: int = 0, shared_bytes: int = 0) -> None:
        """hosts: host → ports towards it."""
        assert lib.dlcp_fabric_set_switch(self.native, node, balancing, shared_bytes) == 0
        for host, ports in hosts.items():
            assert lib.dlcp_fabric_set_route(self.native, node, host, list(ports), len(ports)) == 0

    def plan(self, packets: npt.NDArray[Any]) -> None:
        """Let packets (PLANNED) leave their hosts."""
        assert ffi.sizeof("struct dlcp_planned_packet") == PLANNED.itemsize
        self._packets = np.ascontiguousarray(packets[np.argsort(packets["at_ps"], kind="stable")], PLANNED)
        self.left_ps, self.arrived_ps = (np.empty(len(packets), np.uint64) for _ in range(2))
        planned = lib.dlcp_planned_new(
            self.native,
            self.hosts,
            ffi.cast("struct dlcp_planned_packet *", ffi.from_buffer(self._packets)),
            len(packets),
            ffi.cast("uint64_t *", ffi.from_buffer(self.left_ps)),
            ffi.cast("uint64_t *", ffi.from_buffer(self.arrived_ps)),
        )
        assert planned != ffi.NULL
        self._planned = ffi.gc(planned, lib.dlcp_planned_free)

    @property
    def packets(self) -> npt.NDArray[Any]:
        """The plan, in order of time."""
        return self._packets

    def run(self, until_ps: int = NEVER) -> None:
        assert lib.dlcp_fabric_run(self.native, until_ps) == 0

    def counters(self, port: int) -> bytes:
        """struct dlcp_port_counters."""
        return bytes(ffi.buffer(lib.dlcp_fabric_counters(self.native, port)))

    def tally(self, port: int, name: str, queue: int | None = None) -> npt.NDArray[np.uint64]:
        """(packets, bytes) of one counter, of a queue or of all."""
        words = np.frombuffer(self.counters(port), np.uint64).reshape(8, -1)[:, : 3 * len(COLUMNS) * 2]
        counted = words.reshape(8, 3, len(COLUMNS), 2)[:, :, COLUMNS.index(name)].sum(axis=1)
        total: npt.NDArray[np.uint64] = counted.sum(axis=0) if queue is None else counted[queue]
        return total


def star(sources: int, *, fast_bps: int = 1000 * GBIT, slow_bps: int = GBIT, **settings: Any) -> Fabric:
    """Sources and one sink, the last host, at a switch. Sources' links are fast, the sink's is slow: a queue."""
    links = [Link(host, sources + 1, fast_bps, 0) for host in range(sources)] + [
        Link(sources, sources + 1, slow_bps, 0)
    ]
    fabric = Fabric(sources + 1, sources + 2, links, **settings)
    fabric.routes(sources + 1, {host: [2 * host + 1] for host in range(sources + 1)})
    return fabric


def sink_port(fabric: Fabric) -> int:
    """The slow port of a star."""
    return 2 * len(fabric.links) - 1
