"""Network devices read and set by ioctl: microseconds, where ethtool and ip are processes of milliseconds."""

from __future__ import annotations

import array
import fcntl
import re
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from dlcp.errors import MachineCannot, Problem

# linux/sockios.h, linux/if.h
_SIOCGIFFLAGS = 0x8913
_SIOCETHTOOL = 0x8946
_IFF_UP, _IFF_RUNNING = 0x1, 0x40

# linux/ethtool.h
_GET_SETTINGS, _GET_DRIVER = 0x1, 0x3
_UNKNOWN_SPEEDS = (0, 0xFFFF, 0xFFFFFFFF)
_GET_STRINGS, _GET_STRING_COUNT, _GET_FEATURES, _SET_FEATURES = 0x1B, 0x37, 0x3A, 0x3B
_FEATURE_NAMES = 4
_NAME_BYTES = 32

_OFFLOADS = re.compile("tx-tcp.*-?segmentation|tx-generic-segmentation|tx-udp-segmentation|rx-(gro|gro-hw|lro)")
"""The kernel's features (several of TCP's) with which what crosses a link is not what a wire carries."""


@dataclass(frozen=True)
class Feature:
    """wanted: as somebody asked for. active: as it is; it may wait for what it needs, or be fixed."""

    wanted: bool
    active: bool


@dataclass(frozen=True)
class _Features:
    """blocks: of 32 features, that this kernel has. bits: of those of _OFFLOADS that it knows."""

    blocks: int
    bits: Mapping[str, int]


_known: list[_Features] = []


class Devices:
    """The devices of the network namespace that the calling thread is in as this is made; a context manager.

    name: whose they are, for messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def is_up(self, device: str) -> bool:
        """True when it is up and its link carries."""
        request = struct.pack("16sH22x", device.encode(), 0)
        flags = struct.unpack("16sH22x", fcntl.ioctl(self._socket, _SIOCGIFFLAGS, request))[1]
        return bool(flags & _IFF_UP and flags & _IFF_RUNNING)

    def disable_offloads(self, device: str) -> None:
        """Switch segmentation and receive offloads off. Raises MachineCannot when one stays on."""
        self._request(device, dict.fromkeys(self._features(device).bits, False))
        if left := self.offloads(device):
            raise MachineCannot(self._name, f"{device} does not let {', '.join(left)} be switched off")

    def offloads(self, device: str) -> list[str]:
        """Return which of these are on, by the kernel's names."""
        return [name for name, feature in self.features(device).items() if feature.active]

    def features(self, device: str) -> dict[str, Feature]:
        """Return the state of these offloads, by the kernel's names."""
        known = self._features(device)
        answer = self._call(device, struct.pack("II", _GET_FEATURES, known.blocks) + bytes(16 * known.blocks))
        words = struct.unpack_from(f"{4 * known.blocks}I", answer, 8)  # available, requested, active, never changed

        def at(bit: int, word: int) -> bool:
            return bool(words[4 * (bit // 32) + word] >> bit % 32 & 1)

        return {name: Feature(wanted=at(bit, 1), active=at(bit, 2)) for name, bit in known.bits.items()}

    def restore(self, device: str, wanted: Mapping[str, bool]) -> None:
        """Ask again for offloads as they were asked for once (Feature.wanted). What the kernel makes of it follows."""
        self._request(device, wanted)

    def driver(self, device: str) -> str:
        """The name of a device's driver; "" where the kernel does not say."""
        try:
            answer = self._call(device, struct.pack("I192x", _GET_DRIVER))
        except Problem:
            return ""
        return answer[4:36].split(b"\0")[0].decode(errors="replace")

    def speed_bps(self, device: str) -> float | None:
        """The rate at which a link runs; None where it is not known (no link, or a device without one)."""
        try:
            answer = self._call(device, struct.pack("I40x", _GET_SETTINGS))
        except Problem:
            return None
        megabits = struct.unpack_from("H", answer, 12)[0] | struct.unpack_from("H", answer, 28)[0] << 16
        return None if megabits in _UNKNOWN_SPEEDS else megabits * 1e6

    def _request(self, device: str, wanted: Mapping[str, bool]) -> None:
        known = self._features(device)
        words = [0] * (2 * known.blocks)
        for name, on in wanted.items():
            bit = known.bits.get(name)
            if bit is not None:
                words[2 * (bit // 32)] |= 1 << bit % 32  # valid
                words[2 * (bit // 32) + 1] |= int(on) << bit % 32  # requested
        self._call(device, struct.pack(f"II{len(words)}I", _SET_FEATURES, known.blocks, *words))

    def _features(self, device: str) -> _Features:
        """The same for every device of this kernel."""
        if _known:
            return _known[0]
        answer = self._call(device, struct.pack("IIQI4x", _GET_STRING_COUNT, 0, 1 << _FEATURE_NAMES, 0))
        (count,) = struct.unpack_from("I", answer, 16)
        query = struct.pack("III", _GET_STRINGS, _FEATURE_NAMES, count) + bytes(_NAME_BYTES * count)
        answer = self._call(device, query)
        names = [answer[12 + _NAME_BYTES * i :][:_NAME_BYTES].split(b"\0")[0].decode() for i in range(count)]
        bits = {name: bit for bit, name in enumerate(names) if _OFFLOADS.fullmatch(name)}
        _known.append(_Features(-(-count // 32), bits))
        return _known[0]

    def _call(self, device: str, command: bytes) -> bytes:
        data = array.array("B", command)
        request = struct.pack("16sP8x", device.encode(), data.buffer_info()[0])
        try:
            fcntl.ioctl(self._socket, _SIOCETHTOOL, request)
        except OSError as error:
            raise Problem(self._name, f"ethtool's call {command[0]:#x} on {device} failed: {error.strerror}") from error
        return data.tobytes()
