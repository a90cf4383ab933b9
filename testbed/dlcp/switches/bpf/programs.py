"""Loads eBPF objects with libbpf.so.1 (which iproute2 needs anyway) and reads and writes their maps.

No compiler and no bpftool is needed where the switch runs: the object is shipped compiled (dlcp.switches.bpf.build).
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Generic, Self, TypeVar

from dlcp.errors import MachineCannot, Problem
from dlcp.switches.bpf.map_structs import (
    FLOWLETS,
    Backlogs,
    Flowlet,
    PortConfig,
    PortState,
    Route,
    RouteKey,
    SwitchConfig,
)

OBJECT = Path(__file__).with_name("switch.bpf.o")
"""The emulated switch's."""
BOX_OBJECT = Path(__file__).with_name("box.bpf.o")
"""A Linux box's."""
PROGRAMS = ("switch_ingress", "host_ingress", "host_egress", "wire_ingress")

_REBUILD = "run: python -m dlcp.switches.bpf.build"
_UPDATE_OR_CREATE = 0
_LOCKED = 4  # BPF_F_LOCK: the value is read while no program changes it
_PRINT_WARNING = 0  # LIBBPF_WARN
_PRINT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)

Key = TypeVar("Key", ctypes.c_uint32, RouteKey)
Value = TypeVar("Value", bound="ctypes.Structure | ctypes.c_uint64 | ctypes.c_uint32")
Information = TypeVar("Information", "ProgramInformation", "MapInformation")


class Map(Generic[Key, Value]):
    """One map of a loaded object. Keys and values are ctypes; missing keys raise KeyError."""

    def __init__(self, descriptor: int, value: type[Value], *, locked: bool = False) -> None:
        self._descriptor = descriptor
        self._value = value
        self._flags = _LOCKED if locked else 0

    def __getitem__(self, key: Key) -> Value:
        value = self._value()
        lookup = libbpf().bpf_map_lookup_elem_flags
        if lookup(self._descriptor, ctypes.byref(key), ctypes.byref(value), ctypes.c_uint64(self._flags)):
            raise KeyError(key)
        return value

    def __delitem__(self, key: Key) -> None:
        if libbpf().bpf_map_delete_elem(self._descriptor, ctypes.byref(key)):
            raise KeyError(key)

    def __setitem__(self, key: Key, value: Value) -> None:
        update = libbpf().bpf_map_update_elem
        flags = ctypes.c_uint64(_UPDATE_OR_CREATE)
        if update(self._descriptor, ctypes.byref(key), ctypes.byref(value), flags):
            raise OSError(ctypes.get_errno(), "writing a map of a switch failed")


class LoadedObject:
    """An eBPF object in the kernel: its maps, its programs.

    sizes: map → entries, of every map. Raises MachineCannot with libbpf's own words when the kernel refuses it.
    """

    def __init__(self, source: Path, sizes: Mapping[str, int]) -> None:
        library = libbpf()
        self._source = source
        self._log: list[str] = []
        self._printer = _PRINT(self._note)  # must outlive every call into the library
        library.libbpf_set_print(self._printer)
        self._object = library.bpf_object__open_file(os.fsencode(source), None)
        if not self._object:
            raise Problem(str(source), "is not an eBPF object that libbpf can open", _REBUILD)
        for name, entries in sizes.items():
            library.bpf_map__set_max_entries(self._map(name), entries)
        self._load()

    def close(self) -> None:
        """Free the object. Programs that tc holds and their maps live on until their links go."""
        if self._object:
            libbpf().libbpf_set_print(None)  # the printer goes with this object
            libbpf().bpf_object__close(ctypes.c_void_p(self._object))
            self._object = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def program(self, name: str) -> int:
        """The descriptor of a program."""
        found = libbpf().bpf_object__find_program_by_name(ctypes.c_void_p(self._object), name.encode())
        return int(libbpf().bpf_program__fd(ctypes.c_void_p(found)))

    def open(self, name: str, value: type[Value], *, locked: bool = False) -> Map[Key, Value]:
        """A map. Raises Problem when its values are not of that size."""
        found = self._map(name)
        size = libbpf().bpf_map__value_size(found)
        if size != ctypes.sizeof(value):
            raise Problem(
                str(self._source),
                f"map {name} holds {size} B a value, this program expects {ctypes.sizeof(value)} B",
                f"the object is of another version; {_REBUILD}",
            )
        return Map(libbpf().bpf_map__fd(found), value, locked=locked)

    def _load(self) -> None:
        failure = libbpf().bpf_object__load(ctypes.c_void_p(self._object))
        if failure == 0:
            return
        said = "".join(self._log).strip().splitlines()
        self.close()
        raise MachineCannot(
            "eBPF",
            f"the kernel did not take the switch program ({os.strerror(-failure)}): " + " / ".join(said[-3:]),
            "needs Linux 5.13 or later with CONFIG_BPF_SYSCALL, and root; dlcp doctor shows what is missing",
        )

    def _map(self, name: str) -> ctypes.c_void_p:
        found = libbpf().bpf_object__find_map_by_name(ctypes.c_void_p(self._object), name.encode())
        if not found:
            raise Problem(str(self._source), f"has no map {name}", _REBUILD)
        return ctypes.c_void_p(found)

    def _note(self, level: int, form: bytes, arguments: int) -> int:
        """libbpf's log line: format and va_list, which a C function takes as a pointer on x86-64 and aarch64."""
        if level == _PRINT_WARNING:
            text = ctypes.create_string_buffer(4096)
            ctypes.CDLL(None).vsnprintf(text, ctypes.c_size_t(len(text)), form, ctypes.c_void_p(arguments))
            self._log.append(text.value.decode(errors="replace"))
        return 0


class SwitchProgram(LoadedObject):
    """The emulated switch's object: maps to write and read, programs pinned for tc.

    ports: the highest interface index + 1. pins: a directory on a bpffs that must not yet hold the programs;
    they go away with that mount.
    """

    def __init__(self, *, ports: int, switches: int, routes: int, pins: Path, source: Path = OBJECT) -> None:
        sizes = dict.fromkeys(("ports", "state", "backlogs"), ports) | dict.fromkeys(("switches", "shared"), switches)
        sizes |= {"routes": routes, "turns": routes, "flowlets": switches * FLOWLETS}
        super().__init__(source, sizes)
        self.pins = {name: pins / name for name in PROGRAMS}
        self.ids = {name: self._pin(name, path) for name, path in self.pins.items()}
        self.switches: Map[ctypes.c_uint32, SwitchConfig] = self.open("switches", SwitchConfig)
        self.ports: Map[ctypes.c_uint32, PortConfig] = self.open("ports", PortConfig)
        self.state: Map[ctypes.c_uint32, PortState] = self.open("state", PortState, locked=True)
        self.routes: Map[RouteKey, Route] = self.open("routes", Route)
        self.shared: Map[ctypes.c_uint32, ctypes.c_uint64] = self.open("shared", ctypes.c_uint64)
        self.open("turns", ctypes.c_uint64)
        self.open("flowlets", Flowlet)
        self.backlogs = self._mapped("backlogs", ports, Backlogs)

    def _mapped(self, name: str, entries: int, value: type[Value]) -> mmap.mmap:
        """The values of an array map as memory that the program writes and nobody else may."""
        self.open(name, value)
        size = -(-entries * ctypes.sizeof(value) // mmap.PAGESIZE) * mmap.PAGESIZE
        return mmap.mmap(libbpf().bpf_map__fd(self._map(name)), size, mmap.MAP_SHARED, mmap.PROT_READ)

    def _pin(self, name: str, path: Path) -> int:
        """Pins a program and returns its kernel id."""
        library = libbpf()
        found = library.bpf_object__find_program_by_name(ctypes.c_void_p(self._object), name.encode())
        failure = library.bpf_program__pin(ctypes.c_void_p(found), os.fsencode(path))
        if failure:
            raise MachineCannot(str(path), f"cannot pin a program there: {os.strerror(-failure)}")
        return program_information(self.program(name)).id


class ProgramInformation(ctypes.Structure):
    """The head of struct bpf_prog_info (linux/bpf.h)."""

    id: int
    tag: ctypes.Array[ctypes.c_uint8]
    map_count: int
    maps: int
    name: bytes
    _fields_: ClassVar = [
        ("type", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
        ("tag", ctypes.c_uint8 * 8),
        ("lengths", ctypes.c_uint32 * 2),
        ("instructions", ctypes.c_uint64 * 2),
        ("loaded_ns", ctypes.c_uint64),
        ("user", ctypes.c_uint32),
        ("map_count", ctypes.c_uint32),
        ("maps", ctypes.c_uint64),
        ("name", ctypes.c_char * 16),
    ]


class MapInformation(ctypes.Structure):
    """The head of struct bpf_map_info (linux/bpf.h)."""

    value_bytes: int
    name: bytes
    _fields_: ClassVar = [
        ("type", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
        ("key_bytes", ctypes.c_uint32),
        ("value_bytes", ctypes.c_uint32),
        ("entries", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("name", ctypes.c_char * 16),
    ]


_MOST_MAPS = 32


def program_information(descriptor: int) -> ProgramInformation:
    """What the kernel says of a program. Raises MachineCannot when it does not."""
    return _information(descriptor, ProgramInformation())


def maps_of_program(program_id: int) -> dict[str, tuple[int, int]]:
    """Map → (descriptor, bytes a value) of the maps that an attached program uses, by their names cut to 15 letters;
    the descriptors are the caller's to close. Raises Problem when there is no such program."""
    program = libbpf().bpf_prog_get_fd_by_id(ctypes.c_uint32(program_id))
    if program < 0:
        raise Problem("eBPF", f"there is no program {program_id}: {os.strerror(ctypes.get_errno())}")
    try:
        numbers = (ctypes.c_uint32 * _MOST_MAPS)()
        asked = ProgramInformation(map_count=_MOST_MAPS, maps=ctypes.addressof(numbers))
        count = _information(program, asked).map_count
    finally:
        os.close(program)
    found = {}
    for number in numbers[:count]:
        descriptor = libbpf().bpf_map_get_fd_by_id(ctypes.c_uint32(number))
        if descriptor >= 0:
            about = _information(descriptor, MapInformation())
            found[about.name.decode()] = (descriptor, about.value_bytes)
    return found


def _information(descriptor: int, into: Information) -> Information:
    size = ctypes.c_uint32(ctypes.sizeof(into))
    if libbpf().bpf_obj_get_info_by_fd(descriptor, ctypes.byref(into), ctypes.byref(size)):
        raise MachineCannot("eBPF", f"the kernel does not tell of an object: {os.strerror(ctypes.get_errno())}")
    return into


@functools.cache
def libbpf() -> ctypes.CDLL:
    """The library. Raises MachineCannot where it is not installed."""
    try:
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError as error:
        raise MachineCannot("libbpf.so.1", str(error), "run: apt-get install libbpf1") from error
    for function in ("open_file", "find_map_by_name", "find_program_by_name"):
        getattr(library, f"bpf_object__{function}").restype = ctypes.c_void_p
    return library
