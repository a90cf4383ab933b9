"""Ways in which a file of a result may be damaged, as by a full disk, a lost block or a bad copy."""

from __future__ import annotations

from collections.abc import Callable

Damage = Callable[[bytes], bytes]

FOOTER_BYTES = 2000
"""Left alone at the end of a Parquet file by damage to rows: its footer, so that schema and sizes still read."""


def cut_in_half(content: bytes) -> bytes:
    """Return the first half."""
    return content[: len(content) // 2]


def zero_the_rows(content: bytes) -> bytes:
    """Return the same length with the first half zero, but for the first 100 bytes."""
    half = len(content) // 2
    return content[:100] + bytes(half - 100) + content[half:]


def change_every_37th_byte(content: bytes) -> bytes:
    """Return the same length with some bytes of the rows changed, the footer left as it was."""
    changed = bytearray(content)
    for position in range(60, len(content) - FOOTER_BYTES, 37):
        changed[position] ^= 0x5A
    return bytes(changed)
