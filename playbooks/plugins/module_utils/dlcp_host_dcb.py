"""What a host's NIC does with codepoints and priorities: DSCP → priority → traffic class, and PFC, by `dcb`.

Trust of DSCP has several faces: `mlnx_qos` (NVIDIA's own tool), or `dcb apptrust` (iproute2 6.3, Linux 6.3).
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.dlcp_host_part import Absent, Part, Refused, must, tool

_PRIORITIES = 8
_NONE = "none"


class _Dcb(Part):
    """settings: `key`. The name is the interface's."""

    key = ""

    def wanted(self, settings: Mapping[str, Any]) -> dict[str, str]:
        said = settings.get(self.key)
        return {} if said is None else {self.interface: self._text(said)}

    def read(self, names: Sequence[str]) -> dict[str, str | Absent]:
        return {name: self._found() for name in names}

    def _text(self, said: Any) -> str:
        raise NotImplementedError

    def _found(self) -> str | Absent:
        raise NotImplementedError

    def _shown(self, what: str, key: str) -> Any:
        text = tool(["dcb", "-j", what, "show", "dev", self.interface])
        if isinstance(text, Absent):
            return text
        found = json.loads(text or "{}").get(key)
        return Absent(f"dcb {what} says nothing of {key} for {self.interface}") if found is None else found


class DscpPriorities(_Dcb):
    """settings: dscp_prio {dscp: priority}: the whole table; others are taken off."""

    tag = "dscp-prio of"
    key = "dscp_prio"

    def _text(self, said: Any) -> str:
        return _pairs((int(dscp), int(priority)) for dscp, priority in said.items())

    def _found(self) -> str | Absent:
        shown = tool(["dcb", "-j", "app", "show", "dev", self.interface])
        if isinstance(shown, Absent):
            return shown
        return _pairs(tuple(pair) for pair in json.loads(shown or "{}").get("dscp_prio", []))

    def write(self, values: Mapping[str, str]) -> None:
        found = self._found()
        before = set() if isinstance(found, Absent) else set(_split(found))
        for name, value in values.items():
            after = set(_split(value))
            if before - after:
                must(["dcb", "app", "del", "dev", name, "dscp-prio", *sorted(before - after)])
            if after - before:
                must(["dcb", "app", "add", "dev", name, "dscp-prio", *sorted(after - before)])


class PriorityClasses(_Dcb):
    """settings: prio_tc {priority: traffic class}; priorities that are not named keep theirs."""

    tag = "prio-tc of"
    key = "prio_tc"

    def _text(self, said: Any) -> str:
        return _pairs((int(priority), int(klass)) for priority, klass in said.items())

    def _found(self) -> str | Absent:
        shown = self._shown("ets", "prio_tc")
        return shown if isinstance(shown, Absent) else _pairs(enumerate(shown))

    def settled(self, name: str, value: str, found: str) -> str:
        merged = dict(pair.split(":") for pair in (*_split(found), *_split(value)))
        return _pairs((int(priority), int(klass)) for priority, klass in merged.items())

    def write(self, values: Mapping[str, str]) -> None:
        for name, value in values.items():
            must(["dcb", "ets", "set", "dev", name, "prio-tc", *_split(value)])


class ClassOrder(_Dcb):
    """settings: tc_order: strict, or {traffic class: strict or ets}: how the NIC serves its traffic classes."""

    tag = "tc-tsa of"
    key = "tc_order"

    def _text(self, said: Any) -> str:
        order = dict.fromkeys(range(_PRIORITIES), said) if isinstance(said, str) else said
        return _pairs((int(klass), str(kind)) for klass, kind in order.items())

    def _found(self) -> str | Absent:
        shown = self._shown("ets", "tc_tsa")
        return shown if isinstance(shown, Absent) else _pairs(enumerate(shown))

    def settled(self, name: str, value: str, found: str) -> str:
        merged = dict(pair.split(":") for pair in (*_split(found), *_split(value)))
        return _pairs((int(klass), kind) for klass, kind in merged.items())

    def write(self, values: Mapping[str, str]) -> None:
        for name, value in values.items():
            must(["dcb", "ets", "set", "dev", name, "tc-tsa", *_split(value)])


class FlowControl(_Dcb):
    """settings: pfc [priorities that pause]; [] = none does."""

    tag = "pfc of"
    key = "pfc"

    def _text(self, said: Any) -> str:
        return " ".join(str(int(priority)) for priority in sorted(said)) or _NONE

    def _found(self) -> str | Absent:
        shown = self._shown("pfc", "prio_pfc")
        if isinstance(shown, Absent):
            return shown
        return " ".join(str(number) for number, on in enumerate(shown) if on) or _NONE

    def write(self, values: Mapping[str, str]) -> None:
        for name, value in values.items():
            on = [f"{priority}:on" for priority in _split(value)]
            must(["dcb", "pfc", "set", "dev", name, "prio-pfc", "all:off", *on])


class Trust(_Dcb):
    """settings: trust: dscp or pcp: which of a packet's marks the NIC believes."""

    tag = "trust of"
    key = "trust"

    def _text(self, said: Any) -> str:
        if not re.fullmatch(r"[a-z]+( [a-z]+)*", str(said)):
            raise Refused(f"{said!r} is nothing that a NIC could trust: dscp, pcp")
        return str(said)

    def _found(self) -> str | Absent:
        if shutil.which("mlnx_qos"):
            text = tool(["mlnx_qos", "-i", self.interface])
            if isinstance(text, Absent):
                return text
            state = re.search(r"^Priority trust state: (\w+)", text, re.MULTILINE)
            return state.group(1) if state else Absent(f"mlnx_qos says nothing of trust for {self.interface}")
        order = self._shown("apptrust", "order")
        return order if isinstance(order, Absent) else " ".join(order) or _NONE

    def write(self, values: Mapping[str, str]) -> None:
        for name, value in values.items():
            if shutil.which("mlnx_qos"):
                must(["mlnx_qos", "-i", name, "--trust", value])
            else:
                must(["dcb", "apptrust", "set", "dev", name, "order", *_split(value)])


def _pairs(pairs: Any) -> str:
    return " ".join("{}:{}".format(*pair) for pair in sorted(pairs)) or _NONE


def _split(text: str) -> list[str]:
    return [] if text == _NONE else text.split()
