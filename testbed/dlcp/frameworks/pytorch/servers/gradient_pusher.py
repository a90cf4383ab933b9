"""Gradients on their way out: each parameter's is copied to where its tensors travel from, and whole tensors leave."""

from __future__ import annotations

import time

from dlcp.frameworks.pytorch.servers.flat_parameters import Piece
from dlcp.transport.aggregation.interfaces import GradientWorker
from dlcp.transport.contract.endpoint import Floats
from dlcp.transport.contract.tensors import Tensor


class Pusher:
    """Fills the slots of a worker's tensors, piece by piece in any order, and pushes each tensor once it is whole."""

    def __init__(self, worker: GradientWorker, tensors: list[Tensor]) -> None:
        self._worker = worker
        self._elements = [tensor.elements for tensor in tensors]
        self._missing = list(self._elements)

    def put(self, iteration: int, places: list[Piece], gradient: Floats | None) -> float:
        """Take a parameter's flat gradient; None: zeros. Returns the seconds that slots had to be waited for, and that
        coding took.

        Waits for the push before of the same tensors. TransportError when a rank is gone.
        """
        waited_s = 0.0
        for piece in places:
            before_s = time.monotonic()
            slot = self._worker.gradient_slot(piece.tensor)
            waited_s += time.monotonic() - before_s
            place = slice(piece.offset, piece.offset + piece.stop - piece.start)
            slot[place] = 0.0 if gradient is None else gradient[piece.start : piece.stop]
            self._missing[piece.tensor] -= piece.stop - piece.start
            if self._missing[piece.tensor] == 0:
                self._missing[piece.tensor] = self._elements[piece.tensor]
                waited_s += self._worker.push(iteration, piece.tensor)
        return waited_s
