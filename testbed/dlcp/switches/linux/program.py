"""The box's program in the kernel: loaded anew, or found again through what is attached."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from dlcp.errors import Problem
from dlcp.switches.bpf.map_structs import FLOWLETS, Backlogs, BoxTurns, PortConfig, PortState, SwitchConfig
from dlcp.switches.bpf.programs import BOX_OBJECT, LoadedObject, Map, maps_of_program, program_information
from dlcp.switches.linux.hooks import EGRESS, INGRESS, OUT

_DESTINATIONS = 1024
"""With round robin, of which the next hops are kept."""

_APPLY = "apply the configuration again: it loads the program anew"


@dataclass
class BoxMaps:
    """The maps that are written and read from outside. ends: see box.bpf.c."""

    switches: Map[ctypes.c_uint32, SwitchConfig]
    ports: Map[ctypes.c_uint32, PortConfig]
    state: Map[ctypes.c_uint32, PortState]
    ends: Map[ctypes.c_uint32, ctypes.c_uint32]


class BoxProgram(LoadedObject):
    """The object, loaded. pairs: how many ports have one. highest: the highest interface index of an inner end."""

    def __init__(self, *, pairs: int, highest: int) -> None:
        entries = highest + 1
        sizes = dict.fromkeys(("ports", "state", "backlogs"), entries) | dict.fromkeys(("switches", "shared"), 1)
        sizes |= {"flowlets": FLOWLETS, "ends": 2 * pairs, "box_turns": _DESTINATIONS}
        super().__init__(BOX_OBJECT, sizes)
        self.open("backlogs", Backlogs)
        self.open("box_turns", BoxTurns)
        self.maps = BoxMaps(
            switches=self.open("switches", SwitchConfig),
            ports=self.open("ports", PortConfig),
            state=self.open("state", PortState, locked=True),
            ends=self.open("ends", ctypes.c_uint32),
        )
        self.programs = {name: self.program(name) for name in (INGRESS, EGRESS, OUT)}
        self.tags = {name: bytes(program_information(fd).tag).hex() for name, fd in self.programs.items()}


@contextmanager
def attached(program_id: int) -> Iterator[BoxMaps]:
    """The maps of a program that runs at a port's egress.

    Raises Problem when it has not the maps of this version: it is an older one's, or not ours.
    """
    found = maps_of_program(program_id)
    try:
        yield BoxMaps(
            switches=_map(found, "switches", SwitchConfig),
            ports=_map(found, "ports", PortConfig),
            state=Map(_descriptor(found, "state", PortState), PortState, locked=True),
            ends=_map(found, "ends", ctypes.c_uint32),
        )
    finally:
        for descriptor, _ in found.values():
            os.close(descriptor)


def object_digest() -> str:
    """Of the object of this version."""
    return hashlib.sha256(BOX_OBJECT.read_bytes()).hexdigest()[:16]


def _map(found: Mapping[str, tuple[int, int]], name: str, value: type) -> Map:  # type: ignore[type-arg]
    return Map(_descriptor(found, name, value), value)


def _descriptor(found: Mapping[str, tuple[int, int]], name: str, value: type) -> int:
    if name not in found:
        raise Problem("eBPF", f"the program that is attached has no map {name}: it is of another version", _APPLY)
    descriptor, size = found[name]
    if size != ctypes.sizeof(value):
        what = f"its map {name} holds {size} B a value, this version expects {ctypes.sizeof(value)} B"
        raise Problem("eBPF", what, _APPLY)
    return descriptor
