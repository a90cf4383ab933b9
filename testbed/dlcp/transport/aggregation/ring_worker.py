"""Training round a ring: the ring leaves the same bits at every rank, so all parameters stay identical."""

from __future__ import annotations

from typing import Literal

from dlcp.transport.aggregation.all_reduce_worker import AllReduceWorker
from dlcp.transport.aggregation.ring import AllReduced, RingAllReduce
from dlcp.transport.contract.endpoint import Completion, Floats
from dlcp.transport.contract.mailbox import Mailbox
from dlcp.transport.contract.optimizer import Optimizer
from dlcp.transport.contract.tensors import Tensor
from dlcp.transport.contract.waiting import STALL_TIMEOUT_S


class RingWorker(AllReduceWorker):
    """One worker of a ring.

    rank, size: its place in the ring; the mailbox's endpoint knows its neighbours. parameters: the whole flat vector,
    updated in place. holes: see RingAllReduce.
    The tensors' chunks are agreed with the endpoint: tensor * size + chunk.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        tensors: list[Tensor],
        rank: int,
        size: int,
        parameters: Floats,
        optimizer: Optimizer,
        holes: Literal["zero", "rescale", "last"],
        *,
        stall_timeout_s: float = STALL_TIMEOUT_S,
    ) -> None:
        if holes == "last":
            raise ValueError("a ring sums on the way: it has no worker's last gradient to put into a hole")
        super().__init__(tensors, parameters, optimizer, stall_timeout_s, mailbox.clock)
        self._ring = RingAllReduce(mailbox, rank, size, bound=None, holes=holes, average=True, note_completions=True)
        for number, tensor in enumerate(tensors):
            self._ring.add(number, tensor.elements)
        self._thread.start()

    @property
    def completions(self) -> list[Completion]:
        """Of every hop at this rank so far."""
        return self._ring.completions

    def _start(self, tensor: int, iteration: int, gradient: Floats) -> float:
        self._ring.start(tensor, iteration, gradient)
        return 0.0

    def _poll(self, timeout_s: float) -> list[AllReduced]:
        return self._ring.wait(timeout_s)

    def _mean(self, done: AllReduced) -> Floats:
        found = self._tensors[done.tensor]
        return self.gradient[found.start : found.stop]

    def _missing(self) -> list[str]:
        return self._ring.missing()
