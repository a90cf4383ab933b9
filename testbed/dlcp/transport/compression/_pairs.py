"""A sparse vector on the wire: interleaved (float32 value, int32 index) words, or the dense vector where that is less.

Words travel as float32. An index's bits are those of a tiny float, so the magnitude of a packet is its values'; and a
hole of zeros, where a transport left one, adds 0 to element 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dlcp.transport.compression.base import Code, Compressor, K
from dlcp.transport.contract.endpoint import Floats, Values

Indices = npt.NDArray[np.intp]


def union_code(pairs: int, elements: int, fixed: bool) -> Code:
    """Return the code for the union of so many pairs of a vector, at most the vector itself. fixed: always as much."""
    return Code(min(2 * pairs, elements), "float32", variable=not fixed)


def put(values: Floats, indices: Indices) -> Values:
    """Pairs as words. There is at least one: an empty vector is 0 at element 0."""
    if not len(indices):
        return np.zeros(2, np.float32)
    words = np.empty((len(indices), 2), np.float32)
    words[:, 0] = values
    words.view(np.int32)[:, 1] = indices
    return words.reshape(-1)


def add_to(total: Floats, code: Values) -> None:
    """Add pairs to a dense vector; an index may come more than once (holes)."""
    words = code.reshape(-1, 2)
    np.add.at(total, words.view(np.int32)[:, 1], words[:, 0])


def sum_of(codes: list[Values], elements: int) -> Floats:
    """The dense sum of pairs, in rank order."""
    total = np.zeros(elements, np.float32)
    for code in codes:
        add_to(total, code)
    return total


def put_union(total: Floats, code: Code) -> Values:
    """A dense vector in the shape `code` of union_code: its non-zeros as pairs where they are less, else all of it."""
    indices = np.flatnonzero(total)
    if code.elements == total.size and (not code.variable or 2 * max(1, len(indices)) >= total.size):
        return total.copy()
    words = put(total[indices], indices)
    return words if code.variable else np.pad(words, (0, code.elements - words.size))


def get_union(answer: Values, elements: int) -> Floats:
    """The dense vector that put_union made a code of."""
    if answer.size == elements:
        return answer.copy()
    dense = np.zeros(elements, np.float32)
    add_to(dense, answer)
    return dense


class PairsCompressor(Compressor[K]):
    """A method whose workers push pairs, in one round, and pull the union of them."""

    def decode(self, iteration: int, answer: Values) -> Floats:
        return get_union(answer, self.share.elements)

    def merge(self, iteration: int, number: int, codes: list[Values]) -> Values:
        mean = sum_of(codes, self.share.elements) / np.float32(self.share.workers)
        return put_union(mean, self.exchanges[0].pull)
