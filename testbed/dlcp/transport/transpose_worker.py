"""Training by transpose all-reduce: without losses in the results all parameters stay identical bit for bit."""

from __future__ import annotations

from dlcp.model.workload import TransportSettings
from dlcp.transport.all_reduce_worker import AllReduceWorker, chunks_must_arrive
from dlcp.transport.bounds import Bounds
from dlcp.transport.endpoint import Completion, Endpoint, Floats
from dlcp.transport.optimizer import Optimizer
from dlcp.transport.ring import AllReduced
from dlcp.transport.tagging import Tensor
from dlcp.transport.transpose import TransposeAllReduce
from dlcp.transport.waiting import STALL_TIMEOUT_S


class TransposeWorker(AllReduceWorker):
    """One worker among `size`; the endpoint knows all the others. bounds: by iteration.

    Declares the tensors; all ranks do so before any pushes.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        tensors: list[Tensor],
        rank: int,
        size: int,
        parameters: Floats,
        optimizer: Optimizer,
        settings: TransportSettings,
        bounds: Bounds,
        *,
        stall_timeout_s: float = STALL_TIMEOUT_S,
    ) -> None:
        super().__init__(tensors, parameters, optimizer, stall_timeout_s)
        self._transpose = TransposeAllReduce(endpoint, rank, size, bounds, holes=settings.holes)
        for number, tensor in enumerate(tensors):
            self._transpose.declare(
                number, tensor.elements, queue=tensor.queue,
                droppable=tensor.droppable,
                must_arrive=chunks_must_arrive(tensor, size, settings),
            )  # fmt: skip
        self._thread.start()

    @property
    def completions(self) -> list[Completion]:
        """Of every message at this rank so far."""
        return self._transpose.completions

    def _start(self, tensor: int, iteration: int, gradient: Floats) -> float:
        self._transpose.start(tensor, iteration, gradient)
        return 0.0

    def _poll(self, timeout_s: float) -> list[AllReduced]:
        before = len(self.completions)
        found = self._transpose.wait(timeout_s)
        if len(self.completions) > before:
            with self._changed:
                self._changed.notify_all()  # whoever waits for a slot: what was sent from it may be over
        return found

    def _mean(self, tensor: int) -> Floats:
        return self._transpose.result(tensor)

    def _is_free(self, tensor: int) -> bool:
        return self._transpose.is_free(tensor)

    def _missing(self) -> list[str]:
        return self._transpose.missing()
