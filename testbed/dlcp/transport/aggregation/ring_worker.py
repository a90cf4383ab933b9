"""Training round a ring: the ring leaves the same bits at every rank, so all parameters stay identical."""

from __future__ import annotations

from dlcp.model.workload import TransportSettings
from dlcp.transport.aggregation.all_reduce_worker import AllReduceWorker
from dlcp.transport.aggregation.ring import AllReduced, RingAllReduce
from dlcp.transport.contract.bounds import Bounds
from dlcp.transport.contract.clock import HOST_CLOCK, Clock
from dlcp.transport.contract.endpoint import Bound, Completion, Endpoint, Floats
from dlcp.transport.contract.optimizer import Optimizer
from dlcp.transport.contract.tensors import Tensor
from dlcp.transport.contract.waiting import STALL_TIMEOUT_S


class RingWorker(AllReduceWorker):
    """One worker of a ring.

    rank, size: its place in the ring; the endpoint knows its neighbours. parameters: the whole flat vector, updated in
    place. bounds: by iteration; without them the settings' own.
    The tensors' chunks are agreed with the endpoint: tensor * size + chunk.
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
        *,
        bounds: Bounds | None = None,
        stall_timeout_s: float = STALL_TIMEOUT_S,
        clock: Clock = HOST_CLOCK,
    ) -> None:
        if settings.holes == "last":
            raise ValueError("a ring sums on the way: it has no worker's last gradient to put into a hole")
        super().__init__(tensors, parameters, optimizer, stall_timeout_s, clock)
        self._bounds = bounds
        self._ring = RingAllReduce(
            endpoint,
            rank,
            size,
            bound=Bound(settings.loss_bound, settings.energy_bound),
            holes=settings.holes,
            average=True,
            note_completions=True,
            clock=clock,
        )
        for number, tensor in enumerate(tensors):
            self._ring.add(number, tensor.elements)
        self._thread.start()

    @property
    def completions(self) -> list[Completion]:
        """Of every hop at this rank so far."""
        return self._ring.completions

    def _start(self, tensor: int, iteration: int, gradient: Floats) -> float:
        bound = self._bounds.push(iteration) if self._bounds else None
        self._ring.start(tensor, iteration, gradient, bound=bound)
        return 0.0

    def _poll(self, timeout_s: float) -> list[AllReduced]:
        return self._ring.wait(timeout_s)

    def _mean(self, done: AllReduced) -> Floats:
        found = self._tensors[done.tensor]
        return self.gradient[found.start : found.stop]

    def _missing(self) -> list[str]:
        return self._ring.missing()
