"""Carries a configuration out on the box, changes one in place, takes it off again.

Ports are touched last: their traffic goes into our queues only when all behind them stands, and out of them first.
"""

from __future__ import annotations

import ctypes
import time
from itertools import islice

from dlcp.errors import MachineCannot, Problem
from dlcp.switches import tc
from dlcp.switches.bpf.map_structs import PortConfig
from dlcp.switches.devices import Devices
from dlcp.switches.linux import hooks
from dlcp.switches.linux.commands import read_sysctl, run, write_sysctl
from dlcp.switches.linux.drift import (
    SYSCTLS,
    View,
    asked_offloads,
    changed_offloads,
    differences,
    ends,
    structure,
    waiting_bytes,
)
from dlcp.switches.linux.links import Link, free_pairs, inner_name, links, pair_lines
from dlcp.switches.linux.program import BoxMaps, BoxProgram, attached, object_digest
from dlcp.switches.linux.state import Original, Store
from dlcp.switches.linux.wanted import Wanted

_UP_WITHIN_S = 5.0
_DRAIN_WITHIN_S = 1.0
_POLL_S = 0.01
_SHOWN = 5


def install(store: Store, wanted: Wanted) -> None:
    """Bring the kernel to a configuration, in place where that is possible: then nothing that waits is lost.

    Raises Problem when it is not so in the end; what was begun is known to the store, and `restore` mends it.
    """
    view = View()
    remember(store, wanted, view)
    if not structure(store.state, wanted, view):
        try:
            _change(store, wanted, view)
            if not differences(store.state, wanted):
                return
        except (Problem, KeyError):
            pass  # something is not as it was built: build it anew
    remove(store)
    _build(store, wanted)
    if left := differences(store.state, wanted):
        told = "; ".join(left[:_SHOWN])
        raise Problem("this box", f"is not as told: {told}", "restore it: python -m dlcp.switches.linux restore")


def remember(store: Store, wanted: Wanted, view: View) -> None:
    """Write down how ports and sysctls are before the first change of ours."""
    original, sysctls = dict(store.state.original), dict(store.state.sysctls)
    with Devices("this box") as devices:
        for name in wanted.ports:
            if name not in original and name in view.links:
                clsact = hooks.has_clsact(name)
                original[name] = Original(offloads=asked_offloads(devices.features(name)), clsact=clsact)
    for sysctl in SYSCTLS:
        if sysctl not in sysctls:
            if (value := read_sysctl(sysctl)) is None:
                raise MachineCannot(f"sysctl {sysctl}", "this kernel has none: no multipath routes", "another kernel")
            sysctls[sysctl] = value
    store.write(original=original, sysctls=sysctls)


def remove(store: Store) -> None:
    """Take all programs and inner pairs of ours off, whatever is left of them; ports keep sending all the while."""
    view = View()
    ports = view.hooked_ports()
    for name in ports:
        hooks.detach(name, view.links[name].index, "egress")
    first_ends = [link.name for link in view.inner() if link.index % 2 == 0]
    deadline = time.monotonic() + _DRAIN_WITHIN_S
    while first_ends and waiting_bytes(first_ends) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    for name in ports:
        hooks.detach(name, view.links[name].index, "ingress")
    gone = set(first_ends)
    lone = [link.name for link in view.inner() if link.index % 2 and inner_name(link.index - 1) not in gone]
    run(["ip", "-batch", "-"], [f"link del dev {name}" for name in (*first_ends, *lone)])
    store.write(inner={}, tags={}, program="")


def restore_ports(store: Store, keep: set[str]) -> None:
    """Give ports that are no longer ours their offloads and hooks back, as they were; and with the last port the
    sysctls. A port that is gone needs nothing."""
    found = links()
    with Devices("this box") as devices:
        for name, original in store.state.original.items():
            if name in keep:
                continue
            if name in found:
                _give_back(found[name], original, devices)
            store.write(original={one: what for one, what in store.state.original.items() if one != name})
    if not store.state.original:
        for sysctl, value in store.state.sysctls.items():
            write_sysctl(sysctl, value)
        store.write(sysctls={})


def _give_back(link: Link, original: Original, devices: Devices) -> None:
    if changed_offloads(original, devices.features(link.name)):
        devices.restore(link.name, original.offloads)
    if wrong := changed_offloads(original, devices.features(link.name)):
        what = f"does not take back {', '.join(wrong)}"
        raise MachineCannot(link.name, what, f"ethtool -k {link.name} shows them; before: {original.offloads}")
    places: list[tuple[str, hooks.Hook]] = [(link.name, "ingress"), (link.name, "egress")]
    if not original.clsact and hooks.has_clsact(link.name) and not any(hooks.filters(places)):
        hooks.delete_clsact(link.name)  # unless somebody has put a filter there meanwhile


def _change(store: Store, wanted: Wanted, view: View) -> None:
    """In place: maps, rates, weights, offloads, sysctls."""
    program = next(one.program for name in wanted.ports if (one := view.ours(name, "egress")))
    with attached(program) as maps:
        _write(maps, store, wanted, view.links)
    trees = [wanted.tree(name, inner_name(store.state.inner[name])) for name in wanted.ports]
    run(["tc", "-batch", "-"], [line for tree in trees for line in tc.rate_lines(tree)])
    _switch_off_offloads(wanted)


def _build(store: Store, wanted: Wanted) -> None:
    found = links()
    missing = [name for name in wanted.ports if name not in found]
    if missing:
        raise Problem(missing[0], "there is no such interface", "plug it in, or take it out of the switch's ports")
    first = dict(zip(wanted.ports, islice(free_pairs(found), len(wanted.ports)), strict=True))
    store.write(inner=first, program=object_digest())
    with BoxProgram(pairs=len(first), highest=max(first.values()) + 1) as program:
        store.write(tags=program.tags)
        _write(program.maps, store, wanted, found)
        _make_pairs(wanted, first, found)
        for index in first.values():
            hooks.attach(inner_name(index + 1), index + 1, "ingress", program.programs[hooks.OUT])
        _switch_off_offloads(wanted)
        for name in wanted.ports:
            if not hooks.has_clsact(name):
                hooks.add_clsact(name)
            hooks.attach(name, found[name].index, "ingress", program.programs[hooks.INGRESS])
        for name in wanted.ports:
            hooks.attach(name, found[name].index, "egress", program.programs[hooks.EGRESS])


def _make_pairs(wanted: Wanted, first: dict[str, int], found: dict[str, Link]) -> None:
    """Inner pairs with their queues, up, without IPv6 and super-packets."""
    run(["ip", "-batch", "-"], [line for name, index in first.items() for line in pair_lines(index, found[name].mtu)])
    both = [inner_name(one) for index in first.values() for one in (index, index + 1)]
    with Devices("this box") as devices:
        for device in both:
            ipv6 = f"net/ipv6/conf/{device}/disable_ipv6"
            if read_sysctl(ipv6) is not None:
                write_sysctl(ipv6, "1")
            devices.disable_offloads(device)
        lines = [line for name, index in first.items() for line in tc.port_lines(wanted.tree(name, inner_name(index)))]
        run(["tc", "-batch", "-"], [*lines, *(f"qdisc add dev {inner_name(i + 1)} clsact" for i in first.values())])
        run(["ip", "-batch", "-"], [f"link set dev {device} up" for device in both])
        deadline = time.monotonic() + _UP_WITHIN_S
        while down := [device for device in both if not devices.is_up(device)]:
            if time.monotonic() > deadline:
                raise MachineCannot("this box", f"{', '.join(down)} did not come up within {_UP_WITHIN_S} s")
            time.sleep(_POLL_S)


def _write(maps: BoxMaps, store: Store, wanted: Wanted, found: dict[str, Link]) -> None:
    aqm = wanted.aqm_port()
    maps.switches[ctypes.c_uint32(0)] = wanted.switch_config()
    for name in wanted.ports:
        index = store.state.inner[name]
        config: PortConfig = wanted.port_config(name, aqm)
        config.epoch = store.state.epoch
        maps.ports[ctypes.c_uint32(index)] = config
        for key, value in ends(found[name].index, index).items():
            maps.ends[ctypes.c_uint32(key)] = ctypes.c_uint32(value)


def _switch_off_offloads(wanted: Wanted) -> None:
    with Devices("this box") as devices:
        for name in wanted.ports:
            if devices.offloads(name):
                devices.disable_offloads(name)
    for sysctl, value in SYSCTLS.items():
        write_sysctl(sysctl, value)
