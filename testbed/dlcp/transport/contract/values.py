"""Arithmetic on the elements of a tensor, in its dtype; bfloat16, which numpy lacks, is held as uint16."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dlcp.model.frames import PAYLOAD_BYTES
from dlcp.transport.contract.endpoint import Counts, Dtype, Floats, MessageKey, Placement, Values

_HELD_AS: dict[Dtype, npt.DTypeLike] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": np.uint16,
    "uint8": np.uint8,
}
_QUIET = np.uint32(0x40)
"""The bit that keeps a NaN a NaN when its lower half is cut off."""


def held_as(dtype: Dtype) -> np.dtype[Any]:
    """The numpy dtype that holds a tensor's elements. KeyError for a dtype that nothing here carries."""
    return np.dtype(_HELD_AS[dtype])


def element_bytes(dtype: Dtype) -> int:
    """Bytes of one element."""
    return held_as(dtype).itemsize


def packet_elements(dtype: Dtype) -> int:
    """Elements that a full packet carries."""
    return PAYLOAD_BYTES // element_bytes(dtype)


def packets(elements: int, dtype: Dtype = "float32") -> int:
    """How many packets carry so many elements."""
    return -(-elements // packet_elements(dtype))


def packet_energy(values: Values, dtype: Dtype) -> npt.NDArray[np.float64]:
    """Return Σ x² of each packet's elements, (packets,); zeros for bytes, which have none."""
    count, width = packets(values.size, dtype), packet_elements(dtype)
    if dtype == "uint8":
        return np.zeros(count)
    rows = np.zeros((count, width), np.float32)
    rows.reshape(-1)[: values.size] = _from_bfloat16(values) if dtype == "bfloat16" else values
    return np.asarray(np.einsum("pe,pe->p", rows, rows), np.float64)


def check_placement(key: MessageKey, dtype: Dtype, placement: Placement) -> None:
    """Raise ValueError where what arrives cannot be placed so: uint8 is not added."""
    if dtype == "uint8" and placement is Placement.ADD:
        raise ValueError(f"tensor {key.tensor}: uint8 are bytes, not numbers: they cannot be added")


def add_into(held: Values, arrived: Values, dtype: Dtype) -> None:
    """held += arrived, rounded to the dtype."""
    if dtype == "bfloat16":
        held[:] = _to_bfloat16(_from_bfloat16(held) + _from_bfloat16(arrived))
    else:
        held += arrived


def divide(held: Values, divisor: float, dtype: Dtype) -> None:
    """held /= divisor, computed in float32 and rounded to the dtype once."""
    wide = np.float32(divisor)
    if dtype == "float32":
        held /= wide
    elif dtype == "float16":
        held[:] = held.astype(np.float32) / wide
    else:
        held[:] = _to_bfloat16(_from_bfloat16(held) / wide)


def rescale(held: Values, contributors: Counts, size: int, dtype: Dtype) -> None:
    """Each packet's elements of held × size / contributors; packets that sum up all ranks, or none, are not touched.

    contributors: (packets,).
    """
    width = packet_elements(dtype)
    for packet in np.flatnonzero((contributors != size) & (contributors != 0)):
        divide(held[packet * width : (packet + 1) * width], contributors[packet] / size, dtype)


def _from_bfloat16(values: Values) -> Floats:
    return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _to_bfloat16(values: Floats) -> Values:
    """Rounded to the nearest, ties to even, as hardware does."""
    bits = values.view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)
    return np.where(np.isnan(values), (bits >> np.uint32(16)) | _QUIET, rounded).astype(np.uint16)
