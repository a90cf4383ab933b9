"""The middle of a link with a delay: two devices that hand on to each other, the delay being the queue of each.

A delay cannot stand before the shaper, where it would need the switch's buffer, nor behind it, where there is only the
far end. So such a link is two pairs of devices, END–inner and inner–END, and every packet is accounted for in the delay
as in any queue (switch.bpf.c, wire_ingress).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dlcp.errors import MachineCannot, Problem
from dlcp.isolation.netns import Namespace
from dlcp.substrates.emulate.wiring_plan import WireEnd
from dlcp.switches.bpf.programs import SwitchProgram
from dlcp.switches.tc import require_no_difference

PROGRAM = "wire_ingress"
_LIMIT_PACKETS = 1_000_000
"""More than any delay holds: nothing is lost here."""
_TICK_S = 1e-6
"""Older kernels count a delay in ticks of 64 ns, and tc prints it cut off."""
_TRIED = "netem0"


def discipline(delay_s: float) -> str:
    """The queueing discipline of an inner end, as tc takes it."""
    return f"netem delay {round(delay_s * 1e9)}ns limit {_LIMIT_PACKETS}"


def require_delays(namespace: Namespace, wires: Sequence[WireEnd]) -> None:
    """Raises MachineCannot when there are delays and the kernel has no netem; leaves nothing behind."""
    if not wires:
        return
    namespace.run(["ip", "link", "add", "name", _TRIED, "type", "veth", "peer", "name", "netem1"])
    try:
        namespace.run(["tc", "qdisc", "add", "dev", _TRIED, "root", *discipline(wires[0].delay_s).split()])
    except Problem as problem:
        what = f"unsupported: links with delays need the kernel's netem; {problem.what}"
        raise MachineCannot("topology", what, "run: modprobe sch_netem; or leave delays out") from problem
    finally:
        namespace.run(["ip", "link", "delete", "dev", _TRIED])


def set_up(namespace: Namespace, wires: Sequence[WireEnd], program: SwitchProgram) -> None:
    """Delay and program of every inner end, link up. Raises Problem when a command fails."""
    if not wires:
        return
    lines = []
    for wire in wires:
        lines.append(f"qdisc add dev {wire.device} root handle 1: {discipline(wire.delay_s)}")
        lines.append(f"qdisc add dev {wire.device} clsact")
        lines.append(f"filter add dev {wire.device} ingress bpf da pinned {program.pins[PROGRAM]}")
    namespace.run(["tc", "-batch", "-"], lines)
    namespace.run(["ip", "-batch", "-"], [f"link set dev {wire.device} up" for wire in wires])


def verify(namespace: Namespace, wires: Sequence[WireEnd], program: SwitchProgram) -> None:
    """Read delays and programs back. Raises Problem that lists what differs from set_up."""
    if not wires:
        return
    qdiscs = json.loads(namespace.run(["tc", "-json", "qdisc", "show"]))
    told = []
    for wire in wires:
        roots = [qdisc for qdisc in qdiscs if qdisc.get("dev") == wire.device and qdisc.get("root")]
        told += [f"{wire.device}: {what}" for what in _delay_differences(wire, roots)]
        shown = namespace.run(["tc", "filter", "show", "dev", wire.device, "ingress"])
        if (ids := re.findall(r"direct-action .*?id (\d+)", shown)) != [str(program.ids[PROGRAM])]:
            told.append(f"{wire.device}: eBPF programs at its ingress have the ids {ids}, not {program.ids[PROGRAM]}")
    require_no_difference(namespace.name, told)


def _delay_differences(wire: WireEnd, roots: Sequence[Mapping[str, Any]]) -> list[str]:
    kind = discipline(wire.delay_s).split()[0]
    if [qdisc["kind"] for qdisc in roots] != [kind]:
        return [f"its queueing discipline is {[qdisc['kind'] for qdisc in roots]}, not {kind}"]
    live_s = roots[0].get("options", {}).get("delay", {}).get("delay")
    if kind == "netem" and (live_s is None or abs(live_s - wire.delay_s) > _TICK_S):
        return [f"its delay is {live_s} s, not {wire.delay_s} s"]
    return []
