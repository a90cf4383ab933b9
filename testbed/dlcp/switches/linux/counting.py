"""The account of a box's ports: rows of the table `ports`, since the last reset."""

from __future__ import annotations

import ctypes
import json
import time
from typing import Any

from dlcp.errors import Problem
from dlcp.switches.bpf.counters import Counters
from dlcp.switches.bpf.map_structs import PortState
from dlcp.switches.bpf.snapshot import Snapshot
from dlcp.switches.linux.drift import View
from dlcp.switches.linux.program import attached
from dlcp.switches.linux.state import Store
from dlcp.switches.private_folder import replace_file

_BASELINE = "baseline.json"


def counters(store: Store, view: View) -> dict[str, Any]:
    """rows: for each (port, queue, precedence), columns as TABLES["ports"] but for `switch`; port: the box's own name.
    monotonic_s: what the box's clock showed. waiting_bytes: by port. behind: what each device lost behind the account,
    since it came up. load: counts begin at zero when it changes. Raises Problem when there is nothing of ours.
    """
    program = _program(store, view)
    states, read_s = _states(store, program), time.monotonic()
    now, inner = Snapshot(states), store.state.inner
    found = Counters(_baseline(store, program), now, list(inner.values()), store.state.epoch)
    waiting = now.tally("enqueued") - now.tally("sent")
    return {
        "load": program,
        "monotonic_s": read_s,
        "rows": [{"port": name} | row for i, name in enumerate(inner) for row in found.rows(i)],
        "strays": [{"port": name} | found.strays(i) for i, name in enumerate(inner)],
        "waiting_bytes": {name: int(waiting[now.rows([index]), ..., 1].sum()) for name, index in inner.items()},
        "behind": {name: view.links[name].counted for name in inner if name in view.links},
    }


def reset(store: Store, view: View) -> None:
    """Count from here, and forget the peaks. Traffic may go on."""
    program = _program(store, view)
    store.write(epoch=store.state.epoch + 1)
    with attached(program) as maps:
        for index in store.state.inner.values():
            config = maps.ports[ctypes.c_uint32(index)]
            config.epoch = store.state.epoch
            maps.ports[ctypes.c_uint32(index)] = config
    states = {index: bytes(state).hex() for index, state in _states(store, program).items()}
    replace_file(str(store.folder / _BASELINE), json.dumps({"load": program, "states": states}).encode())


def _program(store: Store, view: View) -> int:
    ours = (view.ours(name, "egress") for name in store.state.inner if name in view.links)
    program = next((one.program for one in ours if one), None)
    if program is None:
        raise Problem("this box", "counts nothing: no configuration is in force", "deploy one: dlcp switch apply")
    return program


def _states(store: Store, program: int) -> dict[int, PortState]:
    with attached(program) as maps:
        both = [one for index in store.state.inner.values() for one in (index, index ^ 1)]
        return {index: maps.state[ctypes.c_uint32(index)] for index in both}


def _baseline(store: Store, program: int) -> Snapshot:
    """As of the last reset; zero when the program was loaded after it."""
    try:
        told = json.loads((store.folder / _BASELINE).read_bytes())
        kept = {int(index): bytes.fromhex(state) for index, state in told["states"].items()}
    except (OSError, ValueError, KeyError):
        told, kept = {}, {}
    both = [one for index in store.state.inner.values() for one in (index, index ^ 1)]
    if told.get("load") != program or set(kept) != set(both):
        return Snapshot({index: PortState() for index in both})
    return Snapshot({index: PortState.from_buffer_copy(kept[index]) for index in both})
