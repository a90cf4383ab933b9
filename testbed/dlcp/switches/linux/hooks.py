"""Our programs where tc runs them, and what else runs there."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from dlcp.errors import MachineCannot, Problem
from dlcp.switches.bpf.programs import libbpf
from dlcp.switches.linux.commands import json_lists, run

PREFERENCE = 3356
"""Of our filters among those at a hook."""
_HANDLE = 1

INGRESS, EGRESS, OUT = "box_ingress", "box_egress", "box_out"
"""The programs: where frames come in at a port, where they are to leave by it, where they leave its queues."""

Hook = Literal["ingress", "egress"]
_POINTS: dict[Hook, int] = {"ingress": 1, "egress": 2}  # enum bpf_tc_attach_point
_TCX_POINTS: dict[Hook, int] = {"ingress": 46, "egress": 47}  # enum bpf_attach_type (linux/bpf.h)


@dataclass(frozen=True)
class Filter:
    """What tc runs at a hook. program, tag: of an eBPF program."""

    preference: int
    kind: str
    name: str
    program: int
    tag: str

    @property
    def is_ours(self) -> bool:
        """Whether we have put it there, of whatever version."""
        return self.kind == "bpf" and self.preference == PREFERENCE and self.name in (INGRESS, EGRESS, OUT)


def filters(places: Sequence[tuple[str, Hook]]) -> list[list[Filter]]:
    """What runs at some hooks of devices, which must exist."""
    told = json_lists(["tc", "-json", "-batch", "-"], [f"filter show dev {device} {hook}" for device, hook in places])
    return [
        [
            Filter(
                preference=one["pref"],
                kind=one["kind"],
                name=str(one["options"].get("prog", {}).get("name", one["options"].get("bpf_name", ""))),
                program=one["options"].get("prog", {}).get("id", 0),
                tag=one["options"].get("prog", {}).get("tag", ""),
            )
            for one in filters_there
            if "options" in one
        ]
        for filters_there in told
    ]


def tcx_programs(index: int, hook: Hook) -> int:
    """How many programs a device has at a hook by tcx, which tc does not show: they run first, and may end a frame's
    way. 0 where the kernel has no tcx (before Linux 6.6)."""
    count = ctypes.c_uint32(0)
    failure = libbpf().bpf_prog_query(index, _TCX_POINTS[hook], 0, None, None, ctypes.byref(count))
    return 0 if failure else count.value


def has_clsact(device: str) -> bool:
    """Whether the hooks are there. Raises Problem where the older `ingress` qdisc stands in their place."""
    kinds = [one["kind"] for one in json_lists(["tc", "-json", "-batch", "-"], [f"qdisc show dev {device}"])[0]]
    if "ingress" in kinds:
        what = "has an ingress qdisc, which leaves no room for clsact"
        raise Problem(device, what, f"whoever put it there must take it off: tc qdisc del dev {device} ingress")
    return "clsact" in kinds


def attach(device: str, index: int, hook: Hook, program: int) -> None:
    """Run a program, by its descriptor, at a hook of a device that has clsact."""
    options = _Options(sz=ctypes.sizeof(_Options), prog_fd=program, handle=_HANDLE, priority=PREFERENCE)
    failure = _call("bpf_tc_attach", index, hook, options)
    if failure == -errno.EEXIST:
        what = f"preference {PREFERENCE} is taken at its {hook}: a filter of somebody else, or of an apply at once"
        raise Problem(device, what, f"look at it: tc filter show dev {device} {hook}")
    if failure:
        raise MachineCannot(device, f"its {hook} takes no program: {os.strerror(-failure)}")


def detach(device: str, index: int, hook: Hook) -> None:
    """Take our filter off; nothing when there is none."""
    failure = _call(
        "bpf_tc_detach", index, hook, _Options(sz=ctypes.sizeof(_Options), handle=_HANDLE, priority=PREFERENCE)
    )
    if failure and failure not in (-errno.ENOENT, -errno.EINVAL, -errno.ENODEV):
        raise MachineCannot(device, f"our program does not come off its {hook}: {os.strerror(-failure)}")


def add_clsact(device: str) -> None:
    """Make the hooks."""
    run(["tc", "qdisc", "add", "dev", device, "clsact"])


def delete_clsact(device: str) -> None:
    """Take the hooks off, and all that runs there."""
    run(["tc", "qdisc", "del", "dev", device, "clsact"])


class _Hook(ctypes.Structure):
    """struct bpf_tc_hook (bpf/libbpf.h)"""

    _fields_: ClassVar = [
        ("sz", ctypes.c_size_t),
        ("ifindex", ctypes.c_int),
        ("attach_point", ctypes.c_uint32),
        ("parent", ctypes.c_uint32),
    ]


class _Options(ctypes.Structure):
    """struct bpf_tc_opts (bpf/libbpf.h)"""

    _fields_: ClassVar = [
        ("sz", ctypes.c_size_t),
        ("prog_fd", ctypes.c_int),
        ("flags", ctypes.c_uint32),
        ("prog_id", ctypes.c_uint32),
        ("handle", ctypes.c_uint32),
        ("priority", ctypes.c_uint32),
    ]


def _call(function: str, index: int, hook: Hook, options: _Options) -> int:
    library = libbpf()
    library.libbpf_set_print(None)  # it would say on stderr what is told here
    place = _Hook(sz=ctypes.sizeof(_Hook), ifindex=index, attach_point=_POINTS[hook])
    return int(getattr(library, function)(ctypes.byref(place), ctypes.byref(options)))
