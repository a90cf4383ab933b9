"""What a box is and can: asked before anything is changed, tried where nothing remains of it."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from typing import Any

from dlcp.errors import MachineCannot, Problem
from dlcp.model.frames import MTU_BYTES
from dlcp.switches import tc
from dlcp.switches.devices import Devices
from dlcp.switches.linux.commands import read_sysctl, run
from dlcp.switches.linux.links import Link, inner_name, pair_lines
from dlcp.switches.linux.program import BoxProgram, object_digest

_TRIAL_INDEX = 2
_TRIAL = 'printf "%s\\n" "$0" | ip -batch - && printf "%s\\n" "$1" | tc -batch -'


def facts(names: Iterable[str], found: dict[str, Link]) -> dict[str, Any]:
    """Kernel, program and ports. Raises MachineCannot where this kernel lacks what a switch needs, Problem where a port
    is not there."""
    _try_queues()
    BoxProgram(pairs=1, highest=_TRIAL_INDEX).close()
    ports = {}
    with Devices("this box") as devices:
        for name in names:
            if name not in found:
                raise Problem(name, "there is no such interface", f"there are: {', '.join(sorted(found))}")
            link = found[name]
            ports[name] = {
                "driver": devices.driver(name),
                "kind": link.kind,
                "speed_bps": devices.speed_bps(name),
                "mtu": link.mtu,
                "up": link.up,
                "carrier": link.carrier,
                "forwarding": read_sysctl(f"net/ipv4/conf/{name}/forwarding") == "1",
                "offloads": [one for one, feature in devices.features(name).items() if feature.active],
            }
    return {"system": "linux", "kernel": platform.release(), "program": object_digest(), "ports": ports}


def _try_queues() -> None:
    """An inner pair with its queues, in a network namespace that goes away at once."""
    tree = tc.Port(inner_name(_TRIAL_INDEX), 1e9, cuts=False, filters=(), overhead_bytes=24)
    lines = "\n".join(pair_lines(_TRIAL_INDEX, MTU_BYTES)), "\n".join(tc.port_lines(tree))
    try:
        run(["unshare", "--net", "sh", "-c", _TRIAL, *lines])
    except MachineCannot as problem:
        what = f"this kernel does not take a switch's queues: {problem.what}"
        raise MachineCannot(
            "this box", what, "modprobe veth sch_htb sch_ingress cls_bpf, and bfifo (sch_fifo)"
        ) from None
