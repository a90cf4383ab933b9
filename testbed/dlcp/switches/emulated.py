"""The emulated switches of one fabric: their eBPF maps, written, read back and counted."""

from __future__ import annotations

import ctypes
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from dlcp.errors import Problem
from dlcp.model.qos import PRECEDENCES, QUEUES, QosIntent
from dlcp.switches.bpf import SwitchProgram
from dlcp.switches.layout import (
    CERTAIN_Q32,
    MAX_NEXT_HOPS,
    PORT_HOST_FACING,
    PortConfig,
    PortState,
    Route,
    RouteKey,
    SwitchConfig,
)
from dlcp.switches.ledger import Ledger
from dlcp.switches.render import LOAD_BALANCING, effective, render

_DRAIN_POLL_S = 0.005


@dataclass(frozen=True)
class SwitchPort:
    """A switch's end of a link. The other end has the interface index ifindex ^ 1."""

    switch: str
    device: str
    neighbour: str
    ifindex: int
    host_facing: bool


def intended(switches: Iterable[str], intent: QosIntent) -> dict[str, Any]:
    """What `effective` says of switches that do all of an intent, and lose nothing."""
    return {
        "load_balancing": dict.fromkeys(sorted(switches), intent.load_balancing),
        "ports": {"all": effective(render(intent)) | {"loss": 0.0}},
    }


class EmulatedSwitches:
    """All switches of a fabric, and the account of its hosts' interfaces (host name → ifindex).

    routes: (switch, destination) → equal-cost egress interface indexes.
    """

    def __init__(
        self,
        ports: Sequence[SwitchPort],
        hosts: Mapping[str, int],
        routes: Mapping[tuple[str, IPv4Address], Sequence[int]],
        pins: Path,
    ) -> None:
        self.ports = tuple(ports)
        self._hosts = dict(hosts)
        self._names = sorted({port.switch for port in ports})
        self._routes = dict(routes)
        highest = max([*(port.ifindex for port in ports), *self._hosts.values()])
        self.program = SwitchProgram(
            ports=highest + 1, switches=len(self._names), routes=max(1, len(self._routes)), pins=pins
        )
        self._configs: dict[int, SwitchConfig] = {}
        self._port_configs: dict[int, PortConfig] = {}
        self._epoch = 0
        self._baseline = self._snapshot()

    def close(self) -> None:
        """Free the program; the devices that run it keep it until they go."""
        self.program.close()

    def configure(self, intent: QosIntent, seed: int) -> None:
        """Write every map, read every value back. Raises Problem at the first difference."""
        draw = random.Random(seed)
        aqm = render(intent)
        balancing = LOAD_BALANCING[intent.load_balancing]
        self._configs = {index: SwitchConfig(balancing, draw.getrandbits(32)) for index in range(len(self._names))}
        for port in self.ports:
            flags = PORT_HOST_FACING if port.host_facing else 0
            index = self._names.index(port.switch)
            self._port_configs[port.ifindex] = PortConfig(switch_index=index, flags=flags, aqm=aqm)
        for index, config in self._configs.items():
            self.program.switches[ctypes.c_uint32(index)] = config
        for port in self.ports:
            self._write(port)
        for (switch, destination), ways in self._routes.items():
            if len(ways) > MAX_NEXT_HOPS:
                raise Problem(switch, f"has {len(ways)} equal-cost next hops to {destination}, at most {MAX_NEXT_HOPS}")
            key, route = self._route(switch, destination, ways)
            self.program.routes[key] = route
        self.verify()

    def verify(self) -> None:
        """Read every map back. Raises Problem at the first value that is not what was written."""
        for index, config in self._configs.items():
            _same(self._names[index], config, self.program.switches[ctypes.c_uint32(index)])
        for port in self.ports:
            live = self.program.ports[ctypes.c_uint32(port.ifindex)]
            _same(port.device, self._port_configs[port.ifindex], live)
        for (switch, destination), ways in self._routes.items():
            key, route = self._route(switch, destination, ways)
            _same(f"{switch} → {destination}", route, self.program.routes[key])

    def set_loss(self, device: str, share: float) -> None:
        """Lose a random share (0 to 1) of what is to leave by a switch port, as a bad cable would."""
        port = self._port(device)
        self._port_configs[port.ifindex].loss_q32 = round(share * CERTAIN_Q32)
        self._write(port)

    def effective(self) -> dict[str, Any]:
        """What the ports really do, from their maps: one entry when all do the same, else one for each device."""
        described: dict[str, dict[str, Any]] = {}
        for port in self.ports:
            config = self.program.ports[ctypes.c_uint32(port.ifindex)]
            described[port.device] = effective(config.aqm) | {"loss": config.loss_q32 / CERTAIN_Q32}
        first = next(iter(described.values()))
        same = all(one == first for one in described.values())
        names = {number: name for name, number in LOAD_BALANCING.items()}
        return {
            "load_balancing": {
                name: names[self.program.switches[ctypes.c_uint32(index)].load_balancing]
                for index, name in enumerate(self._names)
            },
            "ports": {"all": first} if same else described,
        }

    def reset_counters(self) -> None:
        """Count from here: counters by difference, peaks forgotten. Traffic may go on."""
        self._epoch += 1
        for port in self.ports:
            self._port_configs[port.ifindex].epoch = self._epoch
            self._write(port)
        self._baseline = self._snapshot()

    def counters(self) -> list[dict[str, Any]]:
        """One row for each (switch port, queue, precedence), columns as model.result.TABLES["ports"]."""
        return [row for port in self.ports for row in self._rows(port)]

    def strays(self) -> list[dict[str, Any]]:
        """What came in at a switch port and had no egress port: rows of port, not_ipv4 and unrouted packets."""
        rows = []
        for port in self.ports:
            state, before = self._state(port.ifindex), self._baseline[port.ifindex]
            not_ipv4 = state.not_ipv4.packets - before.not_ipv4.packets
            unrouted = state.unrouted.packets - before.unrouted.packets
            rows.append({"port": port.device, "not_ipv4_packets": not_ipv4, "unrouted_packets": unrouted})
        return rows

    def conservation(self, drain_s: float) -> list[str]:
        """Where packets or bytes are not accounted for, since the fabric was made; empty when all are.

        Waits up to drain_s for the queues to run empty. On every link and queue what was enqueued must have been
        dequeued; in every switch what came in must have been enqueued, dropped or unrouted.
        """
        deadline = time.monotonic() + drain_s
        while True:
            ledger = Ledger(self._snapshot(), {port.ifindex: port.switch for port in self.ports})
            if ledger.drained() or time.monotonic() > deadline:
                break
            time.sleep(_DRAIN_POLL_S)
        names = {port.ifindex: port.device for port in self.ports}
        names |= {ifindex: name for name, ifindex in self._hosts.items()}
        return ledger.violations(names)

    def _port(self, device: str) -> SwitchPort:
        for port in self.ports:
            if port.device == device:
                return port
        known = ", ".join(port.device for port in self.ports)
        raise Problem(device, "is not a switch port of this fabric", f"known: {known}")

    def _write(self, port: SwitchPort) -> None:
        self.program.ports[ctypes.c_uint32(port.ifindex)] = self._port_configs[port.ifindex]

    def _route(self, switch: str, destination: IPv4Address, ways: Sequence[int]) -> tuple[RouteKey, Route]:
        key = RouteKey(self._names.index(switch), (ctypes.c_uint8 * 4)(*destination.packed))
        return key, Route(len(ways), (ctypes.c_uint32 * MAX_NEXT_HOPS)(*ways))

    def _state(self, ifindex: int) -> PortState:
        return self.program.state[ctypes.c_uint32(ifindex)]

    def _snapshot(self) -> dict[int, PortState]:
        indexes: Iterable[int] = [*(port.ifindex for port in self.ports), *self._hosts.values()]
        return {ifindex: self._state(ifindex) for ifindex in indexes}

    def _rows(self, port: SwitchPort) -> Iterable[dict[str, Any]]:
        state, before = self._state(port.ifindex), self._baseline[port.ifindex]
        for queue in range(QUEUES):
            now, then = state.queues[queue], before.queues[queue]
            held_bytes = now.enqueued.bytes - now.dequeued.bytes
            peak_bytes = now.peak_bytes if state.epoch == self._epoch else held_bytes
            histogram = [a - b for a, b in zip(now.histogram, then.histogram, strict=True)]
            for precedence in range(PRECEDENCES):
                row = {"switch": port.switch, "port": port.device, "queue": queue, "precedence": precedence}
                row |= _difference(now.precedences[precedence], then.precedences[precedence])
                row["peak_backlog_bytes"] = peak_bytes if precedence == 0 else 0
                row["backlog_histogram"] = histogram if precedence == 0 else []
                yield row


def _difference(now: ctypes.Structure, then: ctypes.Structure) -> dict[str, Any]:
    row = {}
    for name in ("enqueued", "dropped_wred", "dropped_tail", "dropped_loss", "marked_ce"):
        for unit in ("packets", "bytes"):
            row[f"{name}_{unit}"] = getattr(getattr(now, name), unit) - getattr(getattr(then, name), unit)
    return row


def _same(where: str, wanted: ctypes.Structure, live: ctypes.Structure) -> None:
    if bytes(wanted) != bytes(live):
        raise Problem(where, "the switch's map reads back other than it was written", "this is a defect; please report")
