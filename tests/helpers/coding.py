"""Compressors of several workers and their server, without a transport between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dlcp.transport.compression import compressor_class, names
from dlcp.transport.compression.base import Code, Compressor, Share
from dlcp.transport.contract.endpoint import Floats, Values
from dlcp.transport.contract.values import held_as

METHODS = tuple(names())


def known_knobs(method: str, **knobs: Any) -> dict[str, Any]:
    """Those of some settings that a compressor has."""
    return {name: value for name, value in knobs.items() if name in compressor_class(method).knobs_class.model_fields}


class Bench:
    """One tensor at all its ranks; exchange() carries codes and notes their bytes: pushed and pulled, by round."""

    def __init__(
        self,
        method: str,
        elements: int,
        workers: int = 1,
        *,
        momentum: float = 0.0,
        iterations: int = 100,
        fixed: bool = False,
        tensor: int = 7,
        seed: int = 3,
        lossy: Callable[[Values], Values] = lambda code: code,
        **knobs: Any,
    ) -> None:
        kind = compressor_class(method)
        settings = kind.knobs_class.model_validate(knobs)

        def one(worker: int) -> Compressor[Any]:
            return kind(settings, Share(tensor, elements, workers, worker, seed, iterations, momentum, fixed))

        self.workers = [one(worker) for worker in range(workers)]
        self.server = one(-1)
        self.pushed: list[int] = []
        self.pulled: list[int] = []
        self._lossy = lossy

    def exchange(self, iteration: int, gradients: list[Floats]) -> Floats:
        """What every worker decodes; asserts that all decode the same bits, and that codes keep to their shapes."""
        before = [gradient.copy() for gradient in gradients]
        codes = [worker.first(iteration, found) for worker, found in zip(self.workers, gradients, strict=True)]
        self.pushed, self.pulled = [], []
        answer = codes[0]
        for number, shape in enumerate(self.server.exchanges):
            if number:
                codes = [worker.next(iteration, number, answer) for worker in self.workers]
            for code in codes:
                fits(code, shape.push)
            self.pushed.append(max(code.nbytes for code in codes))
            answer = self.server.merge(iteration, number, [self._lossy(code) for code in codes])
            fits(answer, shape.pull)
            self.pulled.append(answer.nbytes)
        decoded = [worker.decode(iteration, answer) for worker in self.workers]
        for found in decoded[1:]:
            np.testing.assert_array_equal(found, decoded[0])
        for gradient, was in zip(gradients, before, strict=True):
            np.testing.assert_array_equal(gradient, was, "a gradient is not the compressor's to change")
        assert decoded[0].dtype == np.float32
        return decoded[0]


def fits(code: Values, shape: Code) -> None:
    """A code has the shape that was agreed with the transport."""
    assert code.dtype == held_as(shape.dtype)
    assert code.ndim == 1
    assert code.flags.c_contiguous
    if shape.variable:
        assert 1 <= code.size <= shape.elements
    else:
        assert code.size == shape.elements


def normal(elements: int, seed: int = 0, scale: float = 1e-3) -> Floats:
    """Values of N(0, scale²)."""
    return np.random.default_rng(seed).standard_normal(elements, np.float32) * np.float32(scale)


def cosine(a: Floats, b: Floats) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))
