"""Small whole numbers in as few bits as they need, without gaps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
MOST_BITS = 8


def packed_bytes(count: int, bits: int) -> int:
    """How many bytes so many numbers of so many bits take."""
    return -(-count * bits // 8)


def pack(numbers: Bytes, bits: int) -> Bytes:
    """Numbers below 2^bits (bits: 1 to 8), the first in the lowest bits."""
    if bits == MOST_BITS:
        return numbers.copy()
    if bits == 1:
        return np.packbits(numbers, bitorder="little")
    eights = np.zeros((-(-numbers.size // 8), 8), np.uint8)
    eights.reshape(-1)[: numbers.size] = numbers
    words = np.zeros(len(eights), "<u8")
    for place in range(8):
        words |= eights[:, place].astype("<u8") << np.uint64(bits * place)
    used = words.view(np.uint8).reshape(-1, 8)[:, :bits]
    return used.reshape(-1)[: packed_bytes(numbers.size, bits)].copy()


def unpack(packed: Bytes, count: int, bits: int) -> Bytes:
    """The first `count` of what pack was given."""
    if bits == MOST_BITS:
        return packed[:count].copy()
    if bits == 1:
        return np.unpackbits(packed, count=count, bitorder="little")
    used = np.zeros((-(-count // 8), bits), np.uint8)
    used.reshape(-1)[: packed.size] = packed
    eights = np.zeros((len(used), 8), np.uint8)
    eights[:, :bits] = used
    words = eights.view("<u8").reshape(-1)
    mask = np.uint64((1 << bits) - 1)
    numbers = np.empty((len(words), 8), np.uint8)
    for place in range(8):
        numbers[:, place] = (words >> np.uint64(bits * place)) & mask
    return numbers.reshape(-1)[:count]
