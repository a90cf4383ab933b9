"""The interfaces of a fabric in their namespaces: links, offloads, queues, addresses; set in batches, read back."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlcp.errors import MachineCannot, Problem
from dlcp.isolation.netns import Namespace
from dlcp.substrates.emulate.device_names import Devices
from dlcp.substrates.emulate.tc_session import TcSession
from dlcp.substrates.emulate.wiring_plan import Wiring
from dlcp.switches import tc

_UP_WITHIN_S = 5.0
_UP_POLL_S = 0.002

_KNOWN_CONGESTION_CONTROLS = "net.ipv4.tcp_available_congestion_control"


def disable_ipv6(namespace: Namespace) -> None:
    """Before any link is up: neighbour discovery would put frames on the links that no account knows."""
    for scope in ("all", "default"):
        name = f"net.ipv6.conf.{scope}.disable_ipv6"
        if namespace.read_sysctl(name) is not None:  # a kernel without IPv6 is as good
            namespace.write_sysctl(name, "1")


def make_links(switches: Namespace, wiring: Wiring, pids: Mapping[str, int]) -> None:
    """All veth pairs at once, each end with its own interface index, hosts' ends in their namespaces."""
    lines = []
    in_hosts = {end.ifindex for end in wiring.host_ends.values()}
    for a, b in wiring.pairs:
        ends = [
            f"name {end.device} index {end.ifindex} address {end.mac} numrxqueues 1 numtxqueues 1"
            + (f" netns {pids[end.node]}" if end.ifindex in in_hosts else "")
            for end in (a, b)
        ]
        lines.append(f"link add {ends[0]} type veth peer {ends[1]}")
    switches.run(["ip", "-batch", "-"], lines)


def set_up(namespace: Namespace, ports: Sequence[tc.Port], session: TcSession) -> None:
    """Offloads off, queues and programs on; the links stay down. Raises Problem when something fails."""
    with Devices(namespace) as devices:
        for port in ports:
            devices.disable_offloads(port.device)
    session.run([line for port in ports for line in tc.port_lines(port)])


def up_lines(ports: Sequence[tc.Port]) -> list[str]:
    """Lines for `ip -batch` that take a namespace's links up."""
    return [f"link set dev {name} up" for name in ("lo", *(port.device for port in ports))]


def wait_until_up(namespace: Namespace, ports: Sequence[tc.Port]) -> None:
    """Until both ends of every link are up and carry: a device that was up first drops what it is given before.

    Raises Problem when one does not come up in time.
    """
    deadline = time.monotonic() + _UP_WITHIN_S
    with Devices(namespace) as devices:
        while missing := [port.device for port in ports if not devices.is_up(port.device)]:
            if time.monotonic() > deadline:
                raise Problem(namespace.name, f"{', '.join(missing)} did not come up within {_UP_WITHIN_S} s")
            time.sleep(_UP_POLL_S)


def verify(namespace: Namespace, ports: Sequence[tc.Port], session: TcSession) -> None:
    """Compare the live state of ports with what set_up asked for. Raises Problem that lists what differs."""
    qdiscs = tc.by_device(namespace.run(["tc", "-json", "qdisc", "show"]))
    told = []
    shown = iter(session.ask([line for port in ports for line in tc.show_lines(port)]))
    with Devices(namespace) as devices:
        for port in ports:
            words = "".join(next(shown) for _ in tc.show_lines(port))
            told += [f"{port.device}: {what}" for what in tc.differences(port, qdiscs.get(port.device, []), words)]
            told += [f"{port.device}: {name} is not off" for name in devices.offloads(port.device)]
    tc.require_no_difference(namespace.name, told)


@dataclass(frozen=True)
class TcpMetrics:
    """What a host's connected route says to TCP. rto_min_ms: the floor of its retransmission timer; None = Linux's own.

    The route names the congestion control, not a sysctl: in a network namespace that sysctl takes only algorithms which
    the machine's own namespace has allowed to everyone.
    """

    congestion_control: str
    rto_min_ms: int | None

    def words(self) -> str:
        """As `ip route` takes them."""
        floor = "" if self.rto_min_ms is None else f" rto_min {self.rto_min_ms}ms"
        return f"congctl {self.congestion_control}{floor}"


def address_host(namespace: Namespace, wiring: Wiring, host: str, metrics: TcpMetrics, before: Sequence[str]) -> None:
    """Address, connected route and static neighbours of a host: no ARP on the links. before: lines for `ip -batch` to
    carry out first. Reads all of it back."""
    known = (namespace.read_sysctl(_KNOWN_CONGESTION_CONTROLS) or "").split()
    if metrics.congestion_control not in known:
        raise MachineCannot(
            host,
            f"this kernel has no TCP congestion control {metrics.congestion_control}, only {', '.join(known)}",
            f"run: modprobe tcp_{metrics.congestion_control}",
        )
    own = wiring.address(host)
    device = wiring.host_ends[host].device
    route = f"{own.network} dev {device} proto kernel scope link src {own.ip}"
    lines = [*before, f"address add {own} dev {device}", f"route change {route} {metrics.words()}"]
    lines += [
        f"neighbour add {ip} lladdr {mac} nud permanent dev {device}" for ip, mac in _others(wiring, host).items()
    ]
    namespace.run(["ip", "-batch", "-"], lines)
    verify_addresses(namespace, wiring, host, metrics)


def verify_addresses(namespace: Namespace, wiring: Wiring, host: str, metrics: TcpMetrics) -> None:
    """Compare a host's routes and neighbours with what address_host asked for. Raises Problem."""
    own = wiring.address(host)
    device = wiring.host_ends[host].device
    wanted = [(str(own.network), device, str(own.ip))]
    told = []
    lines = ["route show", f"neighbour show dev {device} nud permanent"]
    routes, shown = json_lists(namespace.run(["ip", "-json", "-batch", "-"], lines), len(lines))
    if [(route.get("dst"), route.get("dev"), route.get("prefsrc")) for route in routes] != wanted:
        told.append(f"routes are {routes}, not {own.network} on {device} alone")
    elif (live := _metrics(namespace.name, routes[0])) != metrics:
        told.append(f"the route says {live.words()}, not {metrics.words()}")
    others = _others(wiring, host)
    if {entry["dst"]: entry["lladdr"] for entry in shown} != others:
        told.append(f"its static neighbours are {shown}, not {others}")
    tc.require_no_difference(namespace.name, told)


def tcp_metrics(namespace: Namespace, device: str) -> TcpMetrics:
    """What a device's connected route really says. Raises Problem when it says nothing of congestion control."""
    (route,) = json.loads(namespace.run(["ip", "-json", "route", "show", "dev", device, "proto", "kernel"]))
    return _metrics(namespace.name, route)


def json_lists(text: str, count: int) -> list[list[dict[str, Any]]]:
    """What `ip -json -batch` prints for `count` lines, lists one after the other. Raises Problem if it is not that."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        at += len(text[at:]) - len(text[at:].lstrip())
        found.append(value)
    if len(found) != count:
        raise Problem("ip -json -batch", f"printed {len(found)} lists for {count} lines", "this iproute2 is not known")
    return found


def _others(wiring: Wiring, host: str) -> dict[str, str]:
    """Address → MAC of every other host."""
    return {ip: mac for other, (ip, mac) in wiring.neighbours.items() if other != host}


def _metrics(where: str, route: Mapping[str, Any]) -> TcpMetrics:
    """ip prints metrics as a list of objects; iproute2 calls congctl "congestion"."""
    live: dict[str, Any] = {}
    for metric in route.get("metrics", []):
        live |= metric
    name = live.get("congestion", live.get("congctl"))
    if name is None:
        raise Problem(where, f"its route {route} names no congestion control", "this is a defect; please report it")
    return TcpMetrics(str(name), live.get("rto_min"))
