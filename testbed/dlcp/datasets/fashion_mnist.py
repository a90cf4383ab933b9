"""Fashion-MNIST: 60,000 and 10,000 images of 28×28 grey pixels, in ten classes.

Debian's package dataset-fashion-mnist, or the four .gz files of the original in $DLCP_DATA.
"""

from __future__ import annotations

import gzip
import os
import struct
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlcp.errors import MachineCannot

FOLDER = Path("/usr/share/datasets/fashion-mnist")
"""Where the package puts its files; $DLCP_DATA names another folder."""
FILES = {
    "train-images-idx3-ubyte.gz": 60_000 * 784,
    "train-labels-idx1-ubyte.gz": 60_000,
    "t10k-images-idx3-ubyte.gz": 10_000 * 784,
    "t10k-labels-idx1-ubyte.gz": 10_000,
}
"""File → values in it."""
INSTALL = "apt-get install --no-install-recommends dataset-fashion-mnist"
PIXEL_MEAN, PIXEL_DEVIATION = 0.2860, 0.3530
"""Mean and standard deviation of the training images' pixels, scaled to 0 to 1."""


def folder() -> Path:
    """Where the files are looked for."""
    return Path(os.environ.get("DLCP_DATA", FOLDER))


@cache
def images(part: str) -> npt.NDArray[np.uint8]:
    """All images of "train" or "t10k", N×28×28. MachineCannot when they are missing or broken."""
    return _read(f"{part}-images-idx3-ubyte.gz", header_bytes=16).reshape(-1, 28, 28)


@cache
def labels(part: str) -> npt.NDArray[np.int64]:
    """Their classes, 0 to 9. MachineCannot when they are missing or broken."""
    return _read(f"{part}-labels-idx1-ubyte.gz", header_bytes=8).astype(np.int64)


def normalised(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Pixels with mean 0 and deviation 1 over the training images."""
    scaled: npt.NDArray[np.float32] = pixels.astype(np.float32) / np.float32(255.0)
    return (scaled - np.float32(PIXEL_MEAN)) / np.float32(PIXEL_DEVIATION)


def _read(name: str, header_bytes: int) -> npt.NDArray[np.uint8]:
    """The values of an IDX file."""
    path = folder() / name
    hint = f"{INSTALL}, or set DLCP_DATA to a directory with Fashion-MNIST's four .gz files"
    try:
        with gzip.open(path, "rb") as file:
            raw = file.read()
    except (OSError, EOFError) as error:
        raise MachineCannot(str(path), f"cannot read the Fashion-MNIST images: {error}", hint) from None
    count = FILES[name]
    magic = struct.unpack(">I", raw[:4])[0] if len(raw) >= header_bytes else 0
    if magic != 0x800 + (header_bytes - 4) // 4 or len(raw) != header_bytes + count:
        raise MachineCannot(
            str(path), f"it holds {len(raw)} bytes, not the {header_bytes + count} of the original", hint
        )
    return np.frombuffer(raw, np.uint8, offset=header_bytes)
