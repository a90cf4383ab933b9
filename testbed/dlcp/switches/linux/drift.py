"""How the kernel's state differs from a configuration: every difference is a line for a person, none means none."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dlcp.errors import Problem
from dlcp.switches import tc
from dlcp.switches.bpf.map_structs import PortConfig
from dlcp.switches.devices import Devices, Feature
from dlcp.switches.linux.commands import json_lists, read_sysctl, run
from dlcp.switches.linux.hooks import EGRESS, INGRESS, OUT, Filter, Hook, filters
from dlcp.switches.linux.links import Link, inner_name, links
from dlcp.switches.linux.program import attached, object_digest
from dlcp.switches.linux.state import Original, State
from dlcp.switches.linux.wanted import Wanted

SYSCTLS = {"net/ipv4/fib_multipath_hash_policy": "1"}
"""What is set while anything of ours is there: equal next hops by a flow's addresses, protocol and ports."""

_HOOKS: tuple[Hook, ...] = ("ingress", "egress")


@dataclass
class View:
    """What the kernel says, asked once."""

    links: dict[str, Link] = field(default_factory=links)
    qdiscs: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: tc.by_device(run(["tc", "-json", "qdisc", "show"]))
    )
    hooks: dict[tuple[str, Hook], list[Filter]] = field(init=False)

    def __post_init__(self) -> None:
        hooked = [name for name in self.links if any(one["kind"] == "clsact" for one in self.qdiscs.get(name, []))]
        places = [(name, hook) for name in hooked for hook in _HOOKS]
        self.hooks = dict(zip(places, filters(places), strict=True))

    def ours(self, device: str, hook: Hook) -> Filter | None:
        """Our program there."""
        return next((one for one in self.hooks.get((device, hook), []) if one.is_ours), None)

    def hooked_ports(self) -> list[str]:
        """Ports with a program of ours."""
        return [
            name
            for name, link in self.links.items()
            if not link.is_inner and any(self.ours(name, hook) for hook in _HOOKS)
        ]

    def inner(self) -> list[Link]:
        """The ends of inner pairs."""
        return [link for link in self.links.values() if link.is_inner]


def differences(state: State, wanted: Wanted | None, view: View | None = None) -> list[str]:
    """How the kernel differs from a configuration, or from having nothing of ours."""
    view = view or View()
    if wanted is None:
        return list(_remains(state, view))
    return [*structure(state, wanted, view), *_settings(state, wanted, view)]


def structure(state: State, wanted: Wanted, view: View) -> list[str]:
    """Differences that take building anew: programs, and the inner pairs they stand on."""
    told = [f"{name} has programs of ours and is no port" for name in view.hooked_ports() if name not in wanted.ports]
    known = {index for first in state.inner.values() for index in (first, first + 1)}
    told += [f"{link.name} is left over" for link in view.inner() if link.index not in known]
    told += [f"{name} is not set up" for name in wanted.ports if name not in state.inner and name in view.links]
    told += [f"{name}: there is no such interface" for name in wanted.ports if name not in view.links]
    if state.program != object_digest():
        told.append("the program in the kernel is of another version of dlcp")
    programs = set()
    for name, index in state.inner.items():
        if name not in wanted.ports or name not in view.links:
            continue
        told += _pair(name, index, view)
        for device, hook, program in _places(name, index):
            there = view.ours(device, hook)
            if there is None or there.name != program:
                told.append(f"{device}: no {program} runs at its {hook}")
            elif there.tag != state.tags.get(program):
                told.append(f"{device}: another {program} runs at its {hook} than was put there")
            elif program == EGRESS:
                programs.add(there.program)
    if len(programs) > 1:
        told.append(f"ports run programs of {len(programs)} loads, which share no account")
    return told


def _pair(name: str, index: int, view: View) -> Iterator[str]:
    """An inner pair's two ends."""
    for inner in (inner_name(index), inner_name(index + 1)):
        link = view.links.get(inner)
        if link is None or not link.is_inner:
            yield f"{name}: its inner end {inner} is gone"
        elif not (link.up and link.carrier):
            yield f"{name}: its inner end {inner} is down"
        elif link.mtu != view.links[name].mtu:
            yield f"{name}: its inner end {inner} has an MTU of {link.mtu}, the port {view.links[name].mtu}"


def _places(name: str, index: int) -> list[tuple[str, Hook, str]]:
    return [(name, "ingress", INGRESS), (name, "egress", EGRESS), (inner_name(index + 1), "ingress", OUT)]


def _settings(state: State, wanted: Wanted, view: View) -> Iterator[str]:
    """Differences that can be mended in place."""
    there = [name for name in wanted.ports if name in view.links]
    yield from _trees(state, wanted, view)
    yield from _maps(state, wanted, view)
    with Devices("this box") as devices:
        for name in there:
            if left := devices.offloads(name):
                yield f"{name}: {', '.join(left)} is on: what queues there is not packets"
    for name in there:
        if read_sysctl(f"net/ipv4/conf/{name}/forwarding") != "1":
            yield f"{name} does not forward IPv4"
    for sysctl, value in SYSCTLS.items():
        if (live := read_sysctl(sysctl)) != value:
            yield f"sysctl {sysctl.replace('/', '.')} is {live}, not {value}"


def _trees(state: State, wanted: Wanted, view: View) -> Iterator[str]:
    for name, index in state.inner.items():
        device = inner_name(index)
        if name in wanted.ports and device in view.links:
            tree = wanted.tree(name, device)
            shown = run(["tc", "-details", "-batch", "-"], tc.show_lines(tree))
            yield from (f"{name}: {what}" for what in tc.differences(tree, view.qdiscs.get(device, []), shown))


def _maps(state: State, wanted: Wanted, view: View) -> Iterator[str]:
    program = next((one.program for name in wanted.ports if (one := view.ours(name, "egress"))), None)
    if program is None:
        return
    aqm = wanted.aqm_port()
    try:
        with attached(program) as maps:
            if bytes(maps.switches[ctypes.c_uint32(0)]) != bytes(wanted.switch_config()):
                yield "the program's load balancing or shared buffer is another"
            for name, index in state.inner.items():
                if name not in wanted.ports or name not in view.links:
                    continue
                if not _same(maps.ports[ctypes.c_uint32(index)], wanted.port_config(name, aqm)):
                    yield f"{name}: the program's thresholds are others"
                for key, value in ends(view.links[name].index, index).items():
                    if maps.ends[ctypes.c_uint32(key)].value != value:
                        yield f"{name}: the program leads {key} elsewhere"
    except KeyError as missing:
        yield f"the program's maps have no entry {missing}"
    except Problem as problem:
        yield problem.what


def ends(port: int, inner: int) -> dict[int, int]:
    """Entries of the map `ends` for a port."""
    return {port: inner, inner + 1: port}


def _same(live: PortConfig, wanted: PortConfig) -> bool:
    """The epoch counts resets; it is no setting."""
    wanted.epoch = live.epoch
    return bytes(live) == bytes(wanted)


def _remains(state: State, view: View) -> Iterator[str]:
    """What is of ours, and what is not as it was before."""
    yield from (f"{name} has a program of ours" for name in view.hooked_ports())
    yield from (f"{link.name} is ours" for link in view.inner())
    with Devices("this box") as devices:
        for name, original in state.original.items():
            if name in view.links and (off := changed_offloads(original, devices.features(name))):
                yield f"{name}: {', '.join(off)} is not as it was"
    for sysctl, value in state.sysctls.items():
        if (live_value := read_sysctl(sysctl)) != value:
            yield f"sysctl {sysctl.replace('/', '.')} is {live_value}, it was {value}"


def asked_offloads(features: dict[str, Feature]) -> dict[str, bool]:
    """Which are asked for. One that is asked for may be off, for want of another that it needs."""
    return {name: feature.wanted for name, feature in features.items()}


def changed_offloads(original: Original, features: dict[str, Feature]) -> list[str]:
    """Which are not asked for as they were, of those that the device still has."""
    asked = asked_offloads(features)
    return [name for name, on in original.offloads.items() if asked.get(name, on) != on]


def waiting_bytes(devices: list[str]) -> int:
    """What stands in the queues of inner ends."""
    told = json_lists(["tc", "-statistics", "-json", "-batch", "-"], [f"qdisc show dev {one}" for one in devices])
    return sum(int(one.get("backlog", 0)) for qdiscs in told for one in qdiscs if one["kind"] == "htb")
