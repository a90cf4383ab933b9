"""How an agent hands its files over: in parts, through the channel that commands it, for its folder is its own."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path
from typing import Any

PART_BYTES = 1 << 20
"""Bytes of one reply: enough that round trips do not count, and little enough that `status` and `clock` wait for no
more.
"""


def read_part(folder: Path, name: str, offset: int) -> dict[str, Any]:
    """A part of folder/name from `offset` on: data (base64, at most PART_BYTES), bytes (of the whole file).

    ValueError when the name is not one of a plain file right in the folder, OSError when there is none.
    """
    if name in ("", ".", "..") or os.path.basename(name) != name:
        raise ValueError(f"{name!r} is no name of a file in an agent's folder")
    opened = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{name!r} is no plain file")
        data = os.pread(opened, PART_BYTES, offset)
        return {"data": base64.b64encode(data).decode("ascii"), "bytes": status.st_size}
    finally:
        os.close(opened)
