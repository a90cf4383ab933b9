"""A host's kernel: sysctls, the floor of TCP's retransmission timer on routes, the interface's MTU."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.dlcp_host_part import Absent, Part, Refused, must, tool

_SYSCTLS = Path("/proc/sys")
_CLASSES = Path("/sys/class/net")
_RTO_MIN = re.compile(r"\s+rto_min (?:lock )?(\S+)")
_STATE_OF_A_ROUTE = re.compile(r"\s+(?:linkdown|dead|offload|trap|rt_offload|rt_trap)\b")
NO_FLOOR = "the kernel's own"


class Sysctls(Part):
    """settings: sysctls {name: value}. A value is compared word by word, and put back as it was read."""

    tag = "sysctl"

    def wanted(self, settings: Mapping[str, Any]) -> dict[str, str]:
        return {str(name): str(value) for name, value in (settings.get("sysctls") or {}).items()}

    def read(self, names: Sequence[str]) -> dict[str, str | Absent]:
        return {name: self._one(name) for name in names}

    def write(self, values: Mapping[str, str]) -> None:
        for name, value in values.items():
            try:
                _path(name).write_text(value, encoding="ascii")
            except OSError as error:
                raise Refused(f"the kernel refuses {name} = {value}: {error.strerror}") from error

    def settled(self, name: str, value: str, found: str) -> str:
        return found if value.split() == found.split() else "\t".join(value.split())

    def _one(self, name: str) -> str | Absent:
        path = _path(name)
        try:
            found = path.read_text(encoding="utf-8").rstrip("\n")
        except FileNotFoundError:
            return Absent(f"this kernel has no sysctl {name} here")
        except OSError as error:
            return Absent(f"sysctl {name} cannot be read: {error.strerror}")
        return found if os.access(path, os.W_OK) else Absent(f"sysctl {name} can only be read here ({found})")


class RouteFloors(Part):
    """settings: rto_min_ms. Of every IPv4 route of the interface; a name is the route without the floor."""

    tag = "rto_min of route"

    def wanted(self, settings: Mapping[str, Any]) -> dict[str, str]:
        floor_ms = settings.get("rto_min_ms")
        if floor_ms is None:
            return {}
        routes = self._routes()
        if isinstance(routes, Absent) or not routes:
            reason = routes.reason if isinstance(routes, Absent) else f"{self.interface} has no IPv4 route"
            raise Refused(f"rto_min_ms needs a route: {reason}")
        return {name: f"{int(floor_ms)}ms" for name in routes}

    def read(self, names: Sequence[str]) -> dict[str, str | Absent]:
        routes = self._routes()
        if isinstance(routes, Absent):
            return dict.fromkeys(names, routes)
        return {name: routes.get(name, Absent("there is no such route any more")) for name in names}

    def write(self, values: Mapping[str, str]) -> None:
        for name, value in values.items():
            floor = [] if value == NO_FLOOR else ["rto_min", value]
            must(["ip", "route", "change", *name.split(), *floor])

    def _routes(self) -> dict[str, str] | Absent:
        shown = tool(["ip", "-4", "-o", "route", "show", "table", "main", "dev", self.interface])
        if isinstance(shown, Absent):
            return shown
        found = {}
        for line in shown.splitlines():
            floor = _RTO_MIN.search(line)
            rest = _STATE_OF_A_ROUTE.sub("", _RTO_MIN.sub("", line)).split()
            found[" ".join([rest[0], "dev", self.interface, *rest[1:]])] = floor.group(1) if floor else NO_FLOOR
        return found


class Mtu(Part):
    """settings: mtu, in bytes. The name is the interface's."""

    tag = "mtu of"

    def wanted(self, settings: Mapping[str, Any]) -> dict[str, str]:
        return {} if settings.get("mtu") is None else {self.interface: str(int(settings["mtu"]))}

    def read(self, names: Sequence[str]) -> dict[str, str | Absent]:
        return {name: self._one(name) for name in names}

    def write(self, values: Mapping[str, str]) -> None:
        for name, value in values.items():
            must(["ip", "link", "set", "dev", name, "mtu", value])

    def _one(self, name: str) -> str | Absent:
        try:
            return (_CLASSES / name / "mtu").read_text(encoding="ascii").strip()
        except OSError:
            return Absent(f"there is no interface {name}")


def _path(name: str) -> Path:
    """As sysctl(8) reads names: a dot in a device's name is written as a slash."""
    if not re.fullmatch(r"[A-Za-z0-9_./:@-]+", name) or ".." in name or name.startswith(("/", ".")):
        raise Refused(f"{name!r} is no name of a sysctl")
    return _SYSCTLS / name.translate(str.maketrans("./", "/."))
