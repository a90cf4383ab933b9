"""The box's network interfaces, as `ip` tells of them: ports, and the inner pairs that are ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dlcp.switches.linux.commands import run

_FIRST_INDEX = 256
"""Of inner pairs: the program's maps have an entry for every index below the highest, 6 kB each."""

_INNER = re.compile(r"dlcp(\d+)")


@dataclass(frozen=True)
class Link:
    """An interface. kind: "" for a NIC, else what the kernel calls it ("veth", "vlan", …)."""

    name: str
    index: int
    kind: str
    ethernet: bool
    mtu: int
    up: bool
    carrier: bool
    master: str | None
    counted: dict[str, int]
    """What the device itself lost: behind the account."""

    @property
    def is_inner(self) -> bool:
        """Whether it is an end of a pair of ours: nobody else names a veth by its own index."""
        match = _INNER.fullmatch(self.name)
        return self.kind == "veth" and match is not None and int(match[1]) == self.index


def inner_name(index: int) -> str:
    """Of the end of an inner pair with that interface index."""
    return f"dlcp{index}"


def links() -> dict[str, Link]:
    """Every interface of this network namespace, by its name."""
    return {link.name: link for link in map(_link, json.loads(run(["ip", "-json", "-details", "-statistics", "link"])))}


def free_pairs(found: dict[str, Link]) -> Iterator[int]:
    """Even indexes that are free, and the next one with them."""
    taken = {link.index for link in found.values()}
    index = _FIRST_INDEX
    while True:
        if not taken & {index, index + 1}:
            yield index
        index += 2


def pair_lines(index: int, mtu: int) -> list[str]:
    """Lines for `ip -batch` that make an inner pair, down. index: of the end with the queues."""
    ends = [f"name {inner_name(one)} index {one} mtu {mtu} numtxqueues 1 numrxqueues 1" for one in (index, index + 1)]
    return [
        f"link add {ends[0]} type veth peer {ends[1]}",
        *(f"link set dev {inner_name(one)} arp off" for one in (index, index + 1)),
    ]


def _link(told: dict[str, Any]) -> Link:
    flags = told.get("flags", [])
    counters = told.get("stats64", {})
    sent, received = counters.get("tx", {}), counters.get("rx", {})
    return Link(
        name=told["ifname"],
        index=told["ifindex"],
        kind=told.get("linkinfo", {}).get("info_kind", ""),
        ethernet=told.get("link_type") == "ether",
        mtu=told.get("mtu", 0),
        up="UP" in flags,
        carrier="LOWER_UP" in flags,
        master=told.get("master"),
        counted={
            "tx_dropped": sent.get("dropped", 0),
            "tx_errors": sent.get("errors", 0),
            "rx_dropped": received.get("dropped", 0),
            "rx_errors": received.get("errors", 0),
            "rx_missed": received.get("missed_errors", received.get("missed", 0)),
        },
    )
