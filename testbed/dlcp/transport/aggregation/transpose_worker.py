"""Training by transpose all-reduce: without losses in the results all parameters stay identical bit for bit."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from dlcp.model.transport.stages import StageSettings
from dlcp.transport.aggregation.all_reduce_worker import AllReduceWorker
from dlcp.transport.aggregation.hadamard import Rotation
from dlcp.transport.aggregation.optireduce_timeouts import StageTimes
from dlcp.transport.aggregation.ring import AllReduced
from dlcp.transport.aggregation.transpose import TransposeAllReduce
from dlcp.transport.contract.endpoint import Completion, Floats
from dlcp.transport.contract.mailbox import Mailbox
from dlcp.transport.contract.optimizer import Optimizer
from dlcp.transport.contract.tensors import Tensor
from dlcp.transport.contract.waiting import STALL_TIMEOUT_S


class TransposeWorker(AllReduceWorker):
    """One worker among `size`; the mailbox's endpoint knows all the others. stage_times: of its stages,
    where the settings bound them.

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
        settings: StageSettings,
        holes: Literal["zero", "rescale", "last"] = "zero",
        *,
        stall_timeout_s: float = STALL_TIMEOUT_S,
    ) -> None:
        super().__init__(tensors, parameters, optimizer, stall_timeout_s, mailbox.clock)
        self.stage_times = None if settings.time_bounds is None else StageTimes(settings.time_bounds)
        self._transpose = TransposeAllReduce(
            mailbox,
            rank,
            size,
            holes=holes,
            at_once=settings.at_once,
            times=self.stage_times,
        )
        self._codes: dict[int, tuple[Rotation, Floats]] = {}
        if settings.hadamard:  # a tensor's number is a seed that all ranks know
            self._codes = {
                number: (Rotation(tensor.elements, number), np.zeros(tensor.elements, np.float32))
                for number, tensor in enumerate(tensors)
            }
        for number, tensor in enumerate(tensors):
            self._transpose.add(number, tensor.elements)
        self._thread.start()

    @property
    def completions(self) -> list[Completion]:
        """Of every message at this rank so far."""
        return self._transpose.completions

    def extra(self) -> dict[str, Any]:
        """See Rank: the times of its stages, where they are bounded."""
        return {} if self.stage_times is None else {"stage_times": self.stage_times.told()}

    def _start(self, tensor: int, iteration: int, gradient: Floats) -> float:
        if tensor not in self._codes:
            self._transpose.start(tensor, iteration, gradient)
            return 0.0
        began_s = self._clock.thread_s()
        rotation, code = self._codes[tensor]
        rotation.encode(gradient, code)
        took_s = self._coded(iteration, began_s)
        self._transpose.start(tensor, iteration, code)
        return took_s

    def _poll(self, timeout_s: float) -> list[AllReduced]:
        before = len(self.completions)
        found = self._transpose.wait(timeout_s)
        if len(self.completions) > before:
            with self._changed:
                self._changed.notify_all()  # whoever waits for a slot: what was sent from it may be over
        return found

    def _mean(self, done: AllReduced) -> Floats:
        mean = self._transpose.result(done.tensor)
        if done.tensor in self._codes:
            began_s = self._clock.thread_s()
            self._codes[done.tensor][0].decode(mean)
            self._coded(done.iteration, began_s)
        return mean

    def _is_free(self, tensor: int) -> bool:
        return self._transpose.is_free(tensor)

    def _missing(self) -> list[str]:
        return self._transpose.missing()
