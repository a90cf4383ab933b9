"""Network devices asked and told by ioctl: microseconds, where ethtool and ip are processes of milliseconds."""

from __future__ import annotations

import array
import fcntl
import re
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from dlcp.errors import MachineCannot, Problem
from dlcp.substrates.netns import Namespace

# linux/sockios.h, linux/if.h
_SIOCGIFFLAGS = 0x8913
_SIOCETHTOOL = 0x8946
_IFF_UP, _IFF_RUNNING = 0x1, 0x40

# linux/ethtool.h
_GET_STRINGS, _GET_STRING_COUNT, _GET_FEATURES, _SET_FEATURES = 0x1B, 0x37, 0x3A, 0x3B
_FEATURE_NAMES = 4
_NAME_BYTES = 32

_OFFLOADS = re.compile("tx-tcp.*-?segmentation|tx-generic-segmentation|tx-udp-segmentation|rx-gro")
"""The kernel's features (several of TCP's) with which what crosses a link is not what a wire carries."""


@dataclass(frozen=True)
class _Features:
    """blocks: of 32 features, that this kernel has. bits: of those of _OFFLOADS that it knows."""

    blocks: int
    bits: Mapping[str, int]


_known: list[_Features] = []


class Devices:
    """The devices of a namespace; a context manager."""

    def __init__(self, namespace: Namespace) -> None:
        self._name = namespace.name
        with namespace.entered():
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def __enter__(self) -> Devices:
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
        features = self._features(device)
        words = [0] * (2 * features.blocks)
        for bit in features.bits.values():
            words[2 * (bit // 32)] |= 1 << bit % 32  # valid; requested stays 0
        self._call(device, struct.pack(f"II{len(words)}I", _SET_FEATURES, features.blocks, *words))
        if left := self.offloads(device):
            raise MachineCannot(self._name, f"{device} does not let {', '.join(left)} be switched off")

    def offloads(self, device: str) -> list[str]:
        """Which of these are on, by the kernel's names."""
        features = self._features(device)
        answer = self._call(device, struct.pack("II", _GET_FEATURES, features.blocks) + bytes(16 * features.blocks))
        words = struct.unpack_from(f"{4 * features.blocks}I", answer, 8)  # available, requested, active, never changed
        return [name for name, bit in features.bits.items() if words[4 * (bit // 32) + 2] >> bit % 32 & 1]

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
