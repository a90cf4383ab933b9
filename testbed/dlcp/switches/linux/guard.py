"""What is refused before anything is touched: not root, ports that are not there, the way by which a person came in."""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from dlcp.errors import MachineCannot, Problem, Problems
from dlcp.switches.devices import Devices
from dlcp.switches.linux.commands import read_sysctl, run
from dlcp.switches.linux.hooks import EGRESS, Hook, filters, tcx_programs
from dlcp.switches.linux.links import Link
from dlcp.switches.linux.wanted import WantedPort

_LONGEST_ANCESTRY = 64
_EGRESS: Hook = "egress"


def require_root() -> None:
    """Raises MachineCannot for anybody else."""
    if os.geteuid() != 0:
        what = f"needs root (this is user {os.geteuid()}): it loads eBPF programs and sets queues"
        raise MachineCannot("this box", what, "log in as root, or with sudo that asks nothing")


def management_interfaces(named: Iterable[str], found: dict[str, Link]) -> dict[str, str]:
    """Interface → why it is never touched: those that the inventory names, and where the SSH session comes in."""
    why = dict.fromkeys(named, "the inventory names it as a management interface")
    why["lo"] = "it is the loopback interface"
    address = _ssh_address()
    if address is not None:
        for told in json.loads(run(["ip", "-json", "address", "show"])):
            if any(one.get("local") == address for one in told.get("addr_info", [])) and told["ifname"] in found:
                why[told["ifname"]] = f"the SSH session that asks comes in there ({address})"
    return why


def check_ports(ports: dict[str, WantedPort], management: Iterable[str], found: dict[str, Link]) -> None:
    """Everything that must hold of ports before they are touched. Raises Problems: all at once."""
    kept_away = management_interfaces(management, found)
    there = [name for name in ports if name in found]
    beside = dict(zip(there, filters([(name, _EGRESS) for name in there]), strict=True))
    problems = []
    with Devices("this box") as devices:
        for name, port in ports.items():
            if name in kept_away:
                what = f"is never touched: {kept_away[name]}"
                problems.append(Problem(name, what, "take it out of the switch's ports"))
            elif name not in found:
                ethernet = ", ".join(sorted(one.name for one in found.values() if one.ethernet and not one.is_inner))
                problems.append(Problem(name, "there is no such interface", f"there are: {ethernet}"))
            else:
                problems += _port_problems(found[name], port, devices)
                problems += [
                    Problem(
                        name,
                        f"{one.kind} {one.name} (preference {one.preference}) decides at its egress already",
                        f"take it off: tc filter del dev {name} egress pref {one.preference}",
                    )
                    for one in beside[name]
                    if not one.is_ours or one.name != EGRESS
                ]
    if problems:
        raise Problems(problems)


def _port_problems(link: Link, port: WantedPort, devices: Devices) -> Sequence[Problem]:
    told = []
    if not link.ethernet or link.is_inner:
        told.append(Problem(link.name, "is no Ethernet port", "name NICs, or veth ends that stand for them"))
    if link.master is not None:
        what = f"belongs to {link.master}: this switch routes, it has no bridges and bonds of ports"
        told.append(Problem(link.name, what, f"ip link set dev {link.name} nomaster, or name {link.master}"))
    if read_sysctl(f"net/ipv4/conf/{link.name}/forwarding") != "1":
        told.append(
            Problem(link.name, "does not forward IPv4: the box is no router", "sysctl -w net.ipv4.ip_forward=1")
        )
    if link.kind != "veth" and not port.overhead_bytes:
        what = "is no virtual link, but is to be shaped as one: its queue would stand in the NIC"
        told.append(Problem(link.name, what, "dlcp_chip: cpu in the inventory, not veth"))
    if count := tcx_programs(link.index, _EGRESS):
        what = f"{count} program(s) of somebody else run at its egress by tcx, before any of ours"
        told.append(Problem(link.name, what, f"look at them: bpftool net show dev {link.name}"))
    speed_bps = devices.speed_bps(link.name) if not link.kind else None
    if speed_bps is not None and speed_bps < port.rate_bps:
        what = f"runs at {speed_bps / 1e9:g} Gbit/s, the topology says {port.rate_bps / 1e9:g}: the NIC would queue"
        told.append(Problem(link.name, what, "the rate in the topology, or the cable"))
    return told


def _ssh_address() -> str | None:
    """This box's own address in the SSH session that this process belongs to; sudo hides it, its parents still know."""
    pid = os.getpid()
    for _ in range(_LONGEST_ANCESTRY):
        words = dict(entry.partition(b"=")[::2] for entry in _read(f"/proc/{pid}/environ").split(b"\0"))
        told = words.get(b"SSH_CONNECTION", b"").decode(errors="replace").split()
        if len(told) == 4:
            try:
                address = ipaddress.ip_address(told[2])
            except ValueError:
                return None
            return str(getattr(address, "ipv4_mapped", None) or address)
        stat = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        pid = int(stat[1]) if len(stat) > 1 else 0
        if pid < 1:
            return None
    return None


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
