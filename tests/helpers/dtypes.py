"""Elements of every dtype as numpy holds them; the reference for what the core computes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from virtual_time import Values

from dlcp.transport._native import ffi, lib

FLOAT32, FLOAT16, BFLOAT16 = lib.DLCP_FLOAT32, lib.DLCP_FLOAT16, lib.DLCP_BFLOAT16
DTYPES = [FLOAT32, FLOAT16, BFLOAT16]


def full_packet(dtype: int) -> int:
    """Elements of a full packet."""
    return int(lib.dlcp_full_packet(dtype))


def held(values: npt.NDArray[np.float32], dtype: int) -> Values:
    """float32 as a tensor of the dtype holds it, rounded to the nearest, ties to even."""
    if dtype == FLOAT32:
        return values.copy()
    if dtype == FLOAT16:
        return values.astype(np.float16)
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), bits >> 16 | 0x40, rounded).astype(np.uint16)


def floats(values: Values, dtype: int) -> npt.NDArray[np.float32]:
    """Back to float32, exactly."""
    if dtype == BFLOAT16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def added(a: Values, b: Values, dtype: int) -> Values:
    """a + b, rounded once."""
    with np.errstate(over="ignore", invalid="ignore"):
        return held(floats(a, dtype) + floats(b, dtype), dtype)


def split(values: Values, dtype: int) -> list[Values]:
    """By packet."""
    return np.split(values, range(full_packet(dtype), values.size, full_packet(dtype)))


def metrics(values: Values, dtype: int, metric: int) -> npt.NDArray[np.float32]:
    """Of each packet, what decides whether it is small or large."""
    return np.array(
        [
            lib.dlcp_measure_elements(dtype, metric, ffi.cast("void *", part.ctypes.data), part.size).metric
            for part in split(values, dtype)
        ],
        np.float32,
    )


def energies(values: Values, dtype: int) -> list[float]:
    """Of each packet, as its magnitude code tells it."""
    found = []
    for part, rms in zip(split(values, dtype), metrics(values, dtype, lib.DLCP_METRIC_L2), strict=True):
        found.append(part.size * lib.dlcp_code_energy(lib.dlcp_magnitude_code(rms)))
    return found
