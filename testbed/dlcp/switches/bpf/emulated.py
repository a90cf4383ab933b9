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

import numpy as np
import numpy.typing as npt

from dlcp.errors import Problem
from dlcp.model.frames import FRAME_BYTES
from dlcp.model.qos import QUEUES, QosIntent
from dlcp.switches.bpf.aqm_words import LOAD_BALANCING, averages, effective, render
from dlcp.switches.bpf.conservation import violations
from dlcp.switches.bpf.counters import Counters
from dlcp.switches.bpf.map_structs import (
    CERTAIN_Q32,
    MAX_NEXT_HOPS,
    PORT_AVERAGES,
    PORT_DOWN,
    PORT_HOST_FACING,
    PORT_SHARES,
    PortConfig,
    PortState,
    Route,
    RouteKey,
    SwitchConfig,
)
from dlcp.switches.bpf.programs import SwitchProgram
from dlcp.switches.bpf.snapshot import Snapshot

_DRAIN_POLL_S = 0.005

_DEFECT = "this is a defect; please report it"

_NO_SWITCH = 2**32 - 1
"""The switch_index of a host's interface."""


@dataclass(frozen=True)
class LinkEnd:
    """A node's end of a link. The other end has the interface index ifindex ^ 1."""

    node: str
    device: str
    ifindex: int
    rate_bps: float


@dataclass(frozen=True)
class SwitchPort(LinkEnd):
    """A switch's end."""

    host_facing: bool


def intended(switches: Iterable[str], intent: QosIntent) -> dict[str, Any]:
    """What `effective` says of switches that do all of an intent, and lose nothing."""
    names = sorted(switches)
    return {
        "load_balancing": {name: intent.switch_load_balancing.get(name, intent.load_balancing) for name in names},
        "flowlet_gap_s": round(intent.flowlet_gap_s * 1e9) / 1e9,
        "shared_buffer_bytes": intent.shared_buffer_bytes,
        "ports": {"all": effective(render(intent)) | {"loss": 0.0, "up": True}},
    }


class EmulatedSwitches:
    """All switches of a fabric, and the account of its hosts' interfaces.

    routes: (switch, destination) → equal-cost egress interface indexes. wires: the inner ends of links with delays, as
    ifindex ^ 1 of the outer ones, and ifindex ^ 3 of the outer ones at the far side.
    """

    def __init__(
        self,
        ports: Sequence[SwitchPort],
        hosts: Sequence[LinkEnd],
        routes: Mapping[tuple[str, IPv4Address], Sequence[int]],
        pins: Path,
        *,
        wires: Sequence[LinkEnd] = (),
    ) -> None:
        self.ports = tuple(ports)
        self.hosts = tuple(hosts)
        self._wires = tuple(wires)
        self._ends = {end.ifindex: end for end in (*self.ports, *self.hosts, *self._wires)}
        self._by_device = {end.device: end for end in self._ends.values()}
        self._names = sorted({port.node for port in ports})
        self._turns = {key: turn for turn, key in enumerate(routes)}
        self._routes = dict(routes)
        self.program = SwitchProgram(
            ports=max(self._ends) + 1, switches=len(self._names), routes=max(1, len(self._routes)), pins=pins
        )
        self._configs: dict[int, SwitchConfig] = {}
        self._port_configs: dict[int, PortConfig] = {}
        self._port_rows = [port.ifindex for port in self.ports]
        self._epoch = 0
        self._baseline = self._snapshot()

    def close(self) -> None:
        """Free the program; the devices that run it keep it until they go."""
        self.program.close()

    def configure(self, intent: QosIntent, seed: int) -> None:
        """Write every map, read every value back. Raises Problem at the first difference, or when the intent names a
        switch that is not there."""
        if unknown := set(intent.switch_load_balancing) - set(self._names):
            missing = ", ".join(sorted(unknown))
            raise Problem(f"QoS intent {intent.name}", f"names switches that are not there: {missing}")
        draw = random.Random(seed)
        self._configs = {
            index: SwitchConfig(
                load_balancing=LOAD_BALANCING[intent.switch_load_balancing.get(name, intent.load_balancing)],
                seed=draw.getrandbits(32),
                flowlet_gap_ns=round(intent.flowlet_gap_s * 1e9),
                shared_bytes=intent.shared_buffer_bytes or 0,
            )
            for index, name in enumerate(self._names)
        }
        self._port_configs = {end.ifindex: self._port_config(end, intent) for end in self._ends.values()}
        for index, config in self._configs.items():
            self.program.switches[ctypes.c_uint32(index)] = config
        for ifindex in self._ends:
            self._write(ifindex)
        self._write_routes()
        self.verify()

    def verify(self) -> None:
        """Read every map back. Raises Problem at the first value that is not what was written."""
        for index, config in self._configs.items():
            _same(self._names[index], config, self.program.switches[ctypes.c_uint32(index)])
        for ifindex, end in self._ends.items():
            _same(end.device, self._port_configs[ifindex], self.program.ports[ctypes.c_uint32(ifindex)])
        self._verify_routes()

    def set_loss(self, device: str, share: float) -> None:
        """Lose a random share (0 to 1) of what is to leave by a port, as a bad cable would; of what a host sends, as it
        comes in at its switch."""
        end = self._end(device)
        delayed = end.ifindex ^ 1 in {wire.ifindex for wire in self._wires}
        ifindex = end.ifindex ^ 2 if delayed and end in self.hosts else end.ifindex
        self._port_configs[ifindex].loss_q32 = round(share * CERTAIN_Q32)
        self._write(ifindex)

    def set_link(self, devices: Iterable[str], *, up: bool) -> None:
        """Cut or mend a link, named by its two ends: a cut one takes nothing, and what waits for it is lost."""
        wires = {wire.ifindex for wire in self._wires}
        ends = [self._end(device).ifindex for device in devices]
        for ifindex in [*ends, *(end ^ 1 for end in ends if end ^ 1 in wires)]:
            config = self._port_configs[ifindex]
            if up:
                config.flags &= ~PORT_DOWN
            elif not config.flags & PORT_DOWN:
                config.flags |= PORT_DOWN
                config.cuts += 1
            self._write(ifindex)

    def set_rate(self, device: str, rate_bps: float) -> None:
        """Tell a port the rate at which its shaper runs."""
        ifindex = self._end(device).ifindex
        self._port_configs[ifindex].frame_ns = _frame_ns(rate_bps)
        self._write(ifindex)

    def set_routes(self, routes: Mapping[tuple[str, IPv4Address], Sequence[int]]) -> None:
        """Write other routes for the same destinations, and read them back; those that are not named go away."""
        gone = self._routes.keys() - routes.keys()
        self._routes = dict(routes)
        self._write_routes()
        for switch, destination in gone:
            del self.program.routes[self._route(switch, destination, ())[0]]
        self._verify_routes()

    def effective(self) -> dict[str, Any]:
        """What the ports really do, from their maps: one entry when all do the same, else one for each device."""
        described: dict[str, dict[str, Any]] = {}
        for port in self.ports:
            config = self.program.ports[ctypes.c_uint32(port.ifindex)]
            live = {"loss": config.loss_q32 / CERTAIN_Q32, "up": not config.flags & PORT_DOWN}
            described[port.device] = effective(config.aqm) | live
        first = next(iter(described.values()))
        same = all(one == first for one in described.values())
        names = {number: name for name, number in LOAD_BALANCING.items()}
        switches = {name: self.program.switches[ctypes.c_uint32(index)] for index, name in enumerate(self._names)}
        one = next(iter(switches.values()))
        return {
            "load_balancing": {name: names[config.load_balancing] for name, config in switches.items()},
            "flowlet_gap_s": one.flowlet_gap_ns / 1e9,
            "shared_buffer_bytes": one.shared_bytes or None,
            "ports": {"all": first} if same else described,
        }

    def reset_counters(self) -> None:
        """Count from here: counters by difference, peaks forgotten. Traffic may go on."""
        self._epoch += 1
        for ifindex in self._ends:
            self._port_configs[ifindex].epoch = self._epoch
            self._write(ifindex)
        self._baseline = self._snapshot()

    def counters(self) -> list[dict[str, Any]]:
        """One row for each (switch port, queue, precedence), columns as model.result.TABLES["ports"]."""
        found = self._counters(self.ports)
        return [
            {"switch": port.node, "port": port.device} | row
            for i, port in enumerate(self.ports)
            for row in found.rows(i)
        ]

    def host_counters(self) -> list[dict[str, Any]]:
        """One row for each (host, queue, precedence): what its interface received, sent, and what died under way to it
        on a cut cable (dropped_down, of the received), packets and bytes."""
        found = self._counters(self.hosts)
        names = (
            "queue",
            "precedence",
            *(f"{what}_{unit}" for what in ("received", "sent", "dropped_down") for unit in ("packets", "bytes")),
        )
        return [
            {"host": host.node} | {name: row[name] for name in names}
            for i, host in enumerate(self.hosts)
            for row in found.rows(i)
        ]

    def strays(self) -> list[dict[str, Any]]:
        """What came in at a switch port and had no egress port: rows of port, not_ipv4 and unrouted packets."""
        found = self._counters(self.ports)
        return [{"port": port.device} | found.strays(i) for i, port in enumerate(self.ports)]

    def backlogs(self) -> npt.NDArray[np.uint64]:
        """[port, queue] in bytes, the ports as in self.ports: read from the switches' own memory, without a call."""
        live = np.frombuffer(self.program.backlogs, np.uint64).reshape(-1, QUEUES)
        return live[self._port_rows]

    def conservation(self, drain_s: float) -> list[str]:
        """Where packets or bytes are not accounted for, since the fabric was made; empty when all are.

        Waits up to drain_s for the queues to run empty and the account to be closed: a late acknowledgement that
        crosses a switch while its counters are read is in one of them and not yet in the other.
        """
        deadline = time.monotonic() + drain_s
        live = np.frombuffer(self.program.backlogs, np.uint64)
        while live.any() and time.monotonic() < deadline:
            time.sleep(_DRAIN_POLL_S)
        names = {end.ifindex: end.device for end in self.ports} | {end.ifindex: end.node for end in self.hosts}
        names |= {wire.ifindex: f"delay from {wire.node} at {wire.device}" for wire in self._wires}
        while found := violations(self._snapshot(), names, {port.ifindex: port.node for port in self.ports}):
            if time.monotonic() >= deadline:
                break
            time.sleep(_DRAIN_POLL_S)
        return found

    def _counters(self, ends: Sequence[LinkEnd]) -> Counters:
        wired = {wire.ifindex ^ 1 for wire in self._wires}
        return Counters(self._baseline, self._snapshot(), [end.ifindex for end in ends], self._epoch, wired)

    def _end(self, device: str) -> LinkEnd:
        try:
            return self._by_device[device]
        except KeyError:
            raise Problem(device, "is not a port of this fabric", f"known: {', '.join(self._by_device)}") from None

    def _port_config(self, end: LinkEnd, intent: QosIntent) -> PortConfig:
        frame_ns = _frame_ns(end.rate_bps)
        if not isinstance(end, SwitchPort):
            return PortConfig(switch_index=_NO_SWITCH, frame_ns=frame_ns)
        aqm = render(intent)
        flags = PORT_HOST_FACING if end.host_facing else 0
        flags |= PORT_AVERAGES if averages(aqm) else 0
        flags |= PORT_SHARES if intent.shared_buffer_bytes else 0
        index = self._names.index(end.node)
        return PortConfig(switch_index=index, flags=flags, frame_ns=frame_ns, aqm=aqm)

    def _write(self, ifindex: int) -> None:
        self.program.ports[ctypes.c_uint32(ifindex)] = self._port_configs[ifindex]

    def _verify_routes(self) -> None:
        for switch, destination in self._turns:
            where = f"{switch} → {destination}"
            ways = self._routes.get((switch, destination), ())
            key, route = self._route(switch, destination, ways)
            try:
                live = self.program.routes[key]
            except KeyError:
                if ways:
                    raise Problem(where, "has no route in the switch's map", _DEFECT) from None
                continue
            if not ways:
                raise Problem(where, "has a route in the switch's map that was taken away", _DEFECT)
            _same(where, route, live)

    def _write_routes(self) -> None:
        for (switch, destination), ways in self._routes.items():
            if len(ways) > MAX_NEXT_HOPS:
                raise Problem(switch, f"has {len(ways)} equal-cost next hops to {destination}, at most {MAX_NEXT_HOPS}")
            key, route = self._route(switch, destination, ways)
            self.program.routes[key] = route

    def _route(self, switch: str, destination: IPv4Address, ways: Sequence[int]) -> tuple[RouteKey, Route]:
        key = RouteKey(self._names.index(switch), (ctypes.c_uint8 * 4)(*destination.packed))
        turn = self._turns[switch, destination]
        return key, Route(len(ways), turn, (ctypes.c_uint32 * MAX_NEXT_HOPS)(*ways))

    def _snapshot(self) -> Snapshot:
        return Snapshot({ifindex: self._state(ifindex) for ifindex in self._ends})

    def _state(self, ifindex: int) -> PortState:
        return self.program.state[ctypes.c_uint32(ifindex)]


def _same(where: str, wanted: ctypes.Structure, live: ctypes.Structure) -> None:
    if bytes(wanted) != bytes(live):
        raise Problem(where, "the switch's map reads back other than it was written", _DEFECT)


def _frame_ns(rate_bps: float) -> int:
    return min(round(FRAME_BYTES * 8e9 / rate_bps), 2**32 - 1)
