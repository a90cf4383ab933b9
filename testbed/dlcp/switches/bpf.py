"""Loads the emulated switch's eBPF object with libbpf.so.1 (which iproute2 needs anyway), and reads its maps.

No compiler and no bpftool is needed where the switch runs: the object is shipped compiled (dlcp.switches.build).
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

from dlcp.errors import MachineCannot, Problem
from dlcp.switches.layout import (
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
PROGRAMS = ("switch_ingress", "host_ingress", "host_egress", "wire_ingress")

_REBUILD = "run: python -m dlcp.switches.build"
_UPDATE_OR_CREATE = 0
_LOCKED = 4  # BPF_F_LOCK: the value is read while no program changes it
_PRINT_WARNING = 0  # LIBBPF_WARN
_PRINT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)

Key = TypeVar("Key", ctypes.c_uint32, RouteKey)
Value = TypeVar("Value", bound="ctypes.Structure | ctypes.c_uint64")


class Map(Generic[Key, Value]):
    """One map of a loaded object. Keys and values are ctypes; missing keys raise KeyError."""

    def __init__(self, descriptor: int, value: type[Value], *, locked: bool = False) -> None:
        self._descriptor = descriptor
        self._value = value
        self._flags = _LOCKED if locked else 0

    def __getitem__(self, key: Key) -> Value:
        value = self._value()
        lookup = _libbpf().bpf_map_lookup_elem_flags
        if lookup(self._descriptor, ctypes.byref(key), ctypes.byref(value), ctypes.c_uint64(self._flags)):
            raise KeyError(key)
        return value

    def __delitem__(self, key: Key) -> None:
        if _libbpf().bpf_map_delete_elem(self._descriptor, ctypes.byref(key)):
            raise KeyError(key)

    def __setitem__(self, key: Key, value: Value) -> None:
        update = _libbpf().bpf_map_update_elem
        flags = ctypes.c_uint64(_UPDATE_OR_CREATE)
        if update(self._descriptor, ctypes.byref(key), ctypes.byref(value), flags):
            raise OSError(ctypes.get_errno(), "writing a map of the emulated switch failed")


class SwitchProgram:
    """The loaded object: maps to write and read, programs pinned for tc.

    ports: the highest interface index + 1. pins: a directory on a bpffs that must not yet hold the programs;
    they go away with that mount. Raises MachineCannot with libbpf's own words when the kernel refuses.
    """

    def __init__(self, *, ports: int, switches: int, routes: int, pins: Path, source: Path = OBJECT) -> None:
        library = _libbpf()
        self._log: list[str] = []
        self._printer = _PRINT(self._note)  # must outlive every call into the library
        library.libbpf_set_print(self._printer)
        self._object = library.bpf_object__open_file(os.fsencode(source), None)
        if not self._object:
            raise Problem(str(source), "is not an eBPF object that libbpf can open", _REBUILD)
        sizes = dict.fromkeys(("ports", "state", "backlogs"), ports) | dict.fromkeys(("switches", "shared"), switches)
        sizes |= {"routes": routes, "turns": routes, "flowlets": switches * FLOWLETS}
        for name, entries in sizes.items():
            library.bpf_map__set_max_entries(self._map(name), entries)
        self._load()
        self.pins = {name: pins / name for name in PROGRAMS}
        self.ids = {name: self._pin(name, path) for name, path in self.pins.items()}
        self.switches: Map[ctypes.c_uint32, SwitchConfig] = self._open("switches", SwitchConfig)
        self.ports: Map[ctypes.c_uint32, PortConfig] = self._open("ports", PortConfig)
        self.state: Map[ctypes.c_uint32, PortState] = self._open("state", PortState, locked=True)
        self.routes: Map[RouteKey, Route] = self._open("routes", Route)
        self.shared: Map[ctypes.c_uint32, ctypes.c_uint64] = self._open("shared", ctypes.c_uint64)
        self._open("turns", ctypes.c_uint64)
        self._open("flowlets", Flowlet)
        self.backlogs = self._mapped("backlogs", ports, Backlogs)

    def close(self) -> None:
        """Free the object. Programs that tc holds and their maps live on until their links go."""
        if self._object:
            _libbpf().bpf_object__close(ctypes.c_void_p(self._object))
            self._object = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _load(self) -> None:
        failure = _libbpf().bpf_object__load(ctypes.c_void_p(self._object))
        if failure == 0:
            return
        said = "".join(self._log).strip().splitlines()
        self.close()
        raise MachineCannot(
            "eBPF",
            f"the kernel did not take the switch program ({os.strerror(-failure)}): " + " / ".join(said[-3:]),
            "needs Linux 5.13 or later with CONFIG_BPF_SYSCALL, and root; dlcp doctor shows what is missing",
        )

    def _open(self, name: str, value: type[Value], *, locked: bool = False) -> Map[Key, Value]:
        found = self._map(name)
        size = _libbpf().bpf_map__value_size(found)
        if size != ctypes.sizeof(value):
            raise Problem(
                str(OBJECT),
                f"map {name} holds {size} B a value, this program expects {ctypes.sizeof(value)} B",
                f"the object is of another version; {_REBUILD}",
            )
        return Map(_libbpf().bpf_map__fd(found), value, locked=locked)

    def _mapped(self, name: str, entries: int, value: type[Value]) -> mmap.mmap:
        """The values of an array map as memory that the program writes and nobody else may."""
        self._open(name, value)
        size = -(-entries * ctypes.sizeof(value) // mmap.PAGESIZE) * mmap.PAGESIZE
        return mmap.mmap(_libbpf().bpf_map__fd(self._map(name)), size, mmap.MAP_SHARED, mmap.PROT_READ)

    def _pin(self, name: str, path: Path) -> int:
        """Pins a program and returns its kernel id."""
        library = _libbpf()
        found = library.bpf_object__find_program_by_name(ctypes.c_void_p(self._object), name.encode())
        program = ctypes.c_void_p(found)
        failure = library.bpf_program__pin(program, os.fsencode(path))
        if failure:
            raise MachineCannot(str(path), f"cannot pin a program there: {os.strerror(-failure)}")
        information = (ctypes.c_uint32 * 2)()  # the head of struct bpf_prog_info: type, id
        size = ctypes.c_uint32(ctypes.sizeof(information))
        if library.bpf_obj_get_info_by_fd(
            library.bpf_program__fd(program), ctypes.byref(information), ctypes.byref(size)
        ):
            raise MachineCannot("eBPF", f"the kernel does not tell the id of {name}: {os.strerror(ctypes.get_errno())}")
        return int(information[1])

    def _map(self, name: str) -> ctypes.c_void_p:
        found = _libbpf().bpf_object__find_map_by_name(ctypes.c_void_p(self._object), name.encode())
        if not found:
            raise Problem(str(OBJECT), f"has no map {name}", _REBUILD)
        return ctypes.c_void_p(found)

    def _note(self, level: int, form: bytes, arguments: int) -> int:
        """libbpf's log line: format and va_list, which a C function takes as a pointer on x86-64 and aarch64."""
        if level == _PRINT_WARNING:
            text = ctypes.create_string_buffer(4096)
            ctypes.CDLL(None).vsnprintf(text, ctypes.c_size_t(len(text)), form, ctypes.c_void_p(arguments))
            self._log.append(text.value.decode(errors="replace"))
        return 0


@functools.cache
def _libbpf() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError as error:
        raise MachineCannot("libbpf.so.1", str(error), "run: apt-get install libbpf1") from error
    for function in ("open_file", "find_map_by_name", "find_program_by_name"):
        getattr(library, f"bpf_object__{function}").restype = ctypes.c_void_p
    return library
