"""A host's kernel: sysctls, what routes tell TCP, the interface's MTU."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.dlcp_host_part import Absent, Part, Refused, must, tool

_SYSCTLS = Path("/proc/sys")
_CLASSES = Path("/sys/class/net")
_TOLD = re.compile(r"\s+(rto_min|congctl) (?:(?<=rto_min )lock )?((?:lock )?\S+)")
"""`ip` shows every rto_min as locked; with congctl the word is somebody's choice."""
_STATE_OF_A_ROUTE = re.compile(r"\s+(?:linkdown|dead|offload|trap|rt_offload|rt_trap)\b")
UNTOLD = "the kernel's own"


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


class Routes(Part):
    """settings: rto_min_ms, congestion_control: what every IPv4 route of the interface tells TCP.

    A name is the route without these words. A route takes a congestion control that the sysctl of a network namespace
    refuses, and only the fabric's traffic has it.
    """

    tag = "route"

    def wanted(self, settings: Mapping[str, Any]) -> dict[str, str]:
        floor_ms, control = settings.get("rto_min_ms"), settings.get("congestion_control")
        if control and not re.fullmatch(r"[\w-]+", str(control)):
            raise Refused(f"{control!r} is no name of a congestion control")
        words = {"rto_min": floor_ms and _shown_ms(int(floor_ms)), "congctl": control and str(control)}
        told = {word: value for word, value in words.items() if value}
        if not told:
            return {}
        routes = self._routes()
        if isinstance(routes, Absent) or not routes:
            reason = routes.reason if isinstance(routes, Absent) else f"{self.interface} has no IPv4 route"
            raise Refused(f"{' and '.join(told)} need a route: {reason}")
        return dict.fromkeys(routes, _told(told))

    def read(self, names: Sequence[str]) -> dict[str, str | Absent]:
        routes = self._routes()
        if isinstance(routes, Absent):
            return dict.fromkeys(names, routes)
        return {name: routes.get(name, Absent("there is no such route any more")) for name in names}

    def write(self, values: Mapping[str, str]) -> None:
        for name, value in values.items():
            must(["ip", "route", "change", *name.split(), *([] if value == UNTOLD else value.split())])

    def _routes(self) -> dict[str, str] | Absent:
        shown = tool(["ip", "-4", "-o", "route", "show", "table", "main", "dev", self.interface])
        if isinstance(shown, Absent):
            return shown
        found = {}
        for line in shown.splitlines():
            rest = _STATE_OF_A_ROUTE.sub("", _TOLD.sub("", line)).split()
            found[" ".join([rest[0], "dev", self.interface, *rest[1:]])] = _told(dict(_TOLD.findall(line)))
        return found


def _shown_ms(floor_ms: int) -> str:
    """A time as `ip` takes it, and shows it again: in seconds from one second on."""
    return f"{floor_ms}ms" if floor_ms < 1000 else f"{floor_ms / 1000:g}s"


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


def _told(words: Mapping[str, str]) -> str:
    return " ".join(f"{word} {words[word]}" for word in sorted(words)) or UNTOLD
