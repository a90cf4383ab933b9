"""The hosts' own counts of packets, apart from the switches' account: whether any vanished from end to end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlcp.model.result import DROP_CAUSES
from dlcp.substrates.emulate.fabric import Fabric

SILENCE_TRIES = 50
SILENCE_S = 0.002


@dataclass(frozen=True)
class HostLinks:
    """Packets that every host's interface has sent and received since it was made, as the kernel counts them there:
    apart from the switches' own account."""

    sent: int
    received: int

    @classmethod
    def read(cls, fabric: Fabric) -> HostLinks:
        """Of all hosts together."""
        sent = received = 0
        for host, pid in fabric.pids().items():
            for line in Path(f"/proc/{pid}/net/dev").read_text(encoding="ascii").splitlines()[2:]:
                name, _, rest = line.partition(":")
                if name.strip() == f"{host}-eth0":
                    counts = rest.split()
                    received, sent = received + int(counts[1]), sent + int(counts[9])
        return cls(sent, received - fabric.fillers)

    def __sub__(self, before: HostLinks) -> HostLinks:
        return HostLinks(self.sent - before.sent, self.received - before.received)

    @classmethod
    def read_with(cls, fabric: Fabric, other: Callable[[], Any]) -> tuple[HostLinks | None, Any]:
        """These and something else, read while no packet leaves or comes in; None when hosts never fell silent."""
        for _ in range(SILENCE_TRIES):
            before, found = cls.read(fabric), other()
            if before == cls.read(fabric):
                return before, found
            time.sleep(SILENCE_S)
        return None, found


def conserved_packets(
    before: HostLinks | None, after: HostLinks | None, ports: list[dict[str, Any]], strays: tuple[int, int]
) -> dict[str, float]:
    """The monitors of packets from end to end (fidelity.BOUNDS); without the hosts' own counts those of the switches.

    strays: packets that were not IPv4, and those for nobody.
    """
    found = {"stray_packets": float(sum(strays))}
    if before is not None and after is not None:
        missing = vanished_packets(after - before, ports, DROP_CAUSES, strays[0])
        found |= {"vanished_packets": max(0.0, missing), "duplicated_packets": max(0.0, -missing)}
    return found


def vanished_packets(hosts: HostLinks, ports: list[dict[str, Any]], causes: Collection[str], strays: int) -> int:
    """What hosts sent, less what hosts received, less every drop that a switch counted: 0 when all is accounted for."""
    dropped = sum(int(row[f"dropped_{cause}_packets"]) for row in ports for cause in causes)
    return hosts.sent - hosts.received - dropped - strays
