"""The randomised Hadamard transform (OptiReduce, NSDI 2025): what is lost of a tensor is spread over all of it.

The code of a vector has the same length and energy, and every value of it stands for all values of the vector. A hole
in the code is noise of small amplitude in the vector, not a stretch of zeros. A vector whose length is no power of two
is transformed twice, in its first and in its last 2^k values, which overlap, so that nothing is padded.
"""

from __future__ import annotations

import numpy as np

from dlcp.transport.contract.endpoint import Floats


class Rotation:
    """An orthogonal map of vectors of `elements` values, the same wherever the seed is."""

    def __init__(self, elements: int, seed: int) -> None:
        if elements < 1:
            raise ValueError(f"there is nothing to transform in {elements} values")
        self._block = 1 << (elements.bit_length() - 1)
        draw = np.random.default_rng([seed, elements])
        self._first, self._last = (_signs(draw, elements), _signs(draw, self._block))

    def encode(self, values: Floats, into: Floats) -> None:
        """The code of `values` (elements,), written into another array of that shape."""
        np.multiply(values, self._first, out=into)
        transform(into[: self._block])
        if self._block < len(into):
            tail = into[-self._block :]
            tail *= self._last
            transform(tail)

    def decode(self, code: Floats) -> None:
        """Turn a code (elements,) back into what it stands for, in place."""
        if self._block < len(code):
            tail = code[-self._block :]
            transform(tail)
            tail *= self._last
        transform(code[: self._block])
        code *= self._first


def transform(values: Floats) -> None:
    """The fast Walsh-Hadamard transform of 2^k values in place, scaled so that it is its own inverse."""
    size = len(values)
    if size & (size - 1):
        raise ValueError(f"{size} values are no power of two")
    columns = 1 << (size.bit_length() - 1) // 2
    rows = values.reshape(-1, columns)
    _butterflies(rows)
    across = np.ascontiguousarray(rows.T)  # so that all steps work on long stretches of memory
    _butterflies(across)
    np.multiply(across.T, np.float32(size**-0.5), out=rows)


def _butterflies(rows: Floats) -> None:
    """Sums and differences along the first axis, of which there are 2^k."""
    count, width = rows.shape
    step = 1
    while step < count:
        pairs = rows.reshape(-1, 2, step * width)
        upper, lower = pairs[:, 0], pairs[:, 1]
        total = upper + lower
        np.subtract(upper, lower, out=lower)
        upper[...] = total
        step *= 2


def _signs(draw: np.random.Generator, count: int) -> Floats:
    return draw.choice(np.array([-1.0, 1.0], np.float32), count)
