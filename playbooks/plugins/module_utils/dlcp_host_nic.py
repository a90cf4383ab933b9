"""What ethtool sets on a host's NIC: rings, interrupt coalescing, offloads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.dlcp_host_part import Absent, Part, Refused, must, tool

_LARGEST = "max"
_RINGS = {"RX": "rx", "RX Mini": "rx-mini", "RX Jumbo": "rx-jumbo", "TX": "tx"}
"""As `ethtool -g` prints them → as `ethtool -G` takes them."""
_SHORT = {
    "rx": "rx-checksumming",
    "tx": "tx-checksumming",
    "sg": "scatter-gather",
    "tso": "tcp-segmentation-offload",
    "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
    "lro": "large-receive-offload",
    "rxhash": "receive-hashing",
}
"""ethtool(8)'s short names of features."""


class _Ethtool(Part):
    """settings: `key` {name: value}. The NIC's other values of the kind are saved too: drivers change them along."""

    key = ""
    ask = ""
    tell = ""

    def wanted(self, settings: Mapping[str, Any]) -> dict[str, str]:
        return {self._long(str(name)): _word(value) for name, value in (settings.get(self.key) or {}).items()}

    def read(self, names: Sequence[str]) -> dict[str, str | Absent]:
        shown = self._shown()
        if isinstance(shown, Absent):
            return dict.fromkeys(names, shown)
        missing = Absent(f"{self.interface} has none, says ethtool {self.ask}")
        return {name: shown.get(name, missing) for name in names}

    def write(self, values: Mapping[str, str]) -> None:
        words = [word for name, value in sorted(values.items()) for word in (name, value)]
        must(["ethtool", self.tell, self.interface, *words])

    def beside(self, names: Sequence[str]) -> list[str]:
        shown = self._shown()
        if isinstance(shown, Absent):
            return []
        return [name for name, value in shown.items() if name not in names and not isinstance(value, Absent)]

    def _shown(self) -> dict[str, str | Absent] | Absent:
        text = tool(["ethtool", self.ask, self.interface])
        return text if isinstance(text, Absent) else self._parsed(text)

    def _parsed(self, text: str) -> dict[str, str | Absent]:
        raise NotImplementedError

    def _long(self, name: str) -> str:
        return name


class Rings(_Ethtool):
    """settings: rings {rx: entries, or max}."""

    tag = "ring"
    key, ask, tell = "rings", "-g", "-G"

    def wanted(self, settings: Mapping[str, Any]) -> dict[str, str]:
        wanted = super().wanted(settings)
        if _LARGEST in wanted.values():
            text = tool(["ethtool", self.ask, self.interface])
            largest = {} if isinstance(text, Absent) else _rings(text.partition("Current hardware")[0])
            wanted = {name: largest.get(name, value) if value == _LARGEST else value for name, value in wanted.items()}
        return wanted

    def _parsed(self, text: str) -> dict[str, str | Absent]:
        return dict(_rings(text.partition("Current hardware")[2]))


class Coalescing(_Ethtool):
    """settings: coalescing {rx-usecs: 8, adaptive-rx: off}."""

    tag = "coalescing"
    key, ask, tell = "coalescing", "-c", "-C"

    def _parsed(self, text: str) -> dict[str, str | Absent]:
        found: dict[str, str | Absent] = {}
        adaptive = re.search(r"^Adaptive RX: (on|off)\s+TX: (on|off)", text, re.MULTILINE)
        if adaptive:
            found = {"adaptive-rx": adaptive.group(1), "adaptive-tx": adaptive.group(2)}
        for name, value in re.findall(r"^([a-z][a-z-]*\w):\s+(\d+)\s*$", text, re.MULTILINE):
            found[name] = value
        return found


class Offloads(_Ethtool):
    """settings: offloads {feature, by its long or short name: on or off}."""

    tag = "offload"
    key, ask, tell = "offloads", "-k", "-K"

    def _parsed(self, text: str) -> dict[str, str | Absent]:
        found: dict[str, str | Absent] = {}
        for name, value, fixed in re.findall(r"^\s*([\w-]+): (on|off)(.*)$", text, re.MULTILINE):
            reason = f"{self.interface}: the driver fixes it ({value})"
            found[name] = Absent(reason) if "[fixed]" in fixed else value
        return found

    def _long(self, name: str) -> str:
        return _SHORT.get(name, name)

    def beside(self, names: Sequence[str]) -> list[str]:
        """A feature that stands for several (tx-checksumming) is theirs: each of them is saved by its own name."""
        groups = {"tx-checksumming", "scatter-gather", "tcp-segmentation-offload"}
        return [name for name in super().beside(names) if name not in groups]


def _rings(text: str) -> dict[str, str]:
    found = {}
    for name, value in re.findall(r"^(RX|RX Mini|RX Jumbo|TX):\s+(\d+)", text, re.MULTILINE):
        found[_RINGS[name]] = value
    return found


def _word(value: Any) -> str:
    """YAML reads on and off as true and false."""
    if isinstance(value, bool):
        return "on" if value else "off"
    text = str(value)
    if not re.fullmatch(r"[\w-]+", text):
        raise Refused(f"{text!r} is no value for ethtool")
    return text
