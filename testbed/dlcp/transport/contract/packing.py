"""A flat vector's tensors as the packets that carry them: rows of equal width, the last of each tensor padded."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from dlcp.transport.contract.endpoint import Floats
from dlcp.transport.contract.tensors import ELEMENT_BYTES, PACKET_ELEMENTS, Tensor
from dlcp.transport.contract.values import packets


class Packing:
    """Where each tensor's packets lie among the rows of all tensors, input side first.

    rows: packets of all tensors. first_row: (tensors,) where each begins. count: (tensors,) how many it has.
    row_bytes: (rows,) payload of each packet. last_element: (rows,) the place in the flat vector of its last one.
    """

    def __init__(self, tensors: list[Tensor]) -> None:
        self._tensors = tensors
        counts = [packets(tensor.elements) for tensor in tensors]
        self.rows = sum(counts)
        self.count: npt.NDArray[np.int64] = np.array(counts, np.int64)
        self.first_row: npt.NDArray[np.int64] = np.array([0, *accumulate(counts)][:-1], np.int64)
        self.row_bytes: npt.NDArray[np.int64] = np.full(self.rows, PACKET_ELEMENTS * ELEMENT_BYTES, np.int64)
        self.last_element: npt.NDArray[np.int64] = np.empty(self.rows, np.int64)
        for tensor, first, count in zip(tensors, self.first_row, counts, strict=True):
            last_elements = tensor.elements - (count - 1) * PACKET_ELEMENTS
            self.row_bytes[first + count - 1] = last_elements * ELEMENT_BYTES
            ends = tensor.start + PACKET_ELEMENTS * np.arange(1, count + 1)
            self.last_element[first : first + count] = np.minimum(ends, tensor.stop) - 1

    def empty(self, ranks: int) -> Floats:
        """Room for every rank's packets, (ranks, rows, PACKET_ELEMENTS), all zero; padding must stay so."""
        return np.zeros((ranks, self.rows, PACKET_ELEMENTS), np.float32)

    def place(self, tensor: int, offset: int) -> int:
        """Where an element of a tensor lies in the flattened rows of one rank."""
        return int(self.first_row[tensor]) * PACKET_ELEMENTS + offset

    def unpack(self, rows: Floats, into: Floats) -> None:
        """Rows (flattened or not) → the flat vector."""
        flat = rows.reshape(-1)
        for number, tensor in enumerate(self._tensors):
            at = self.place(number, 0)
            into[tensor.start : tensor.stop] = flat[at : at + tensor.elements]

    def by_tensor(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sums over each tensor's packets: (…, rows) → (…, tensors)."""
        sums: npt.NDArray[Any] = np.add.reduceat(values, self.first_row, axis=-1)
        return sums
