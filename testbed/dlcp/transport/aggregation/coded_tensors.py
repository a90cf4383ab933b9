"""What travels of a job's tensors when they are compressed: the codes of every round, and the numbers they travel
under.

A tensor's code on a leg of a round has a size of its own, so to the transport it is a tensor of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dlcp.model.transport.settings import Compression, TransportSettings
from dlcp.transport.compression import compressor_class
from dlcp.transport.compression.base import Compressor, Exchange, Knobs, Share
from dlcp.transport.contract.endpoint import Leg
from dlcp.transport.contract.optimizer import Sgd
from dlcp.transport.contract.tensors import Tensor


@dataclass(frozen=True)
class CodedJob:
    """All tensors of a job, as every rank knows them. workers: how many; iterations: how many the job runs.

    ValueError when the settings name no compression.
    """

    settings: TransportSettings
    tensors: list[Tensor]
    workers: int
    iterations: int

    @property
    def compression(self) -> Compression:
        """How gradients are coded."""
        if self.settings.compression is None:
            raise ValueError("these settings compress nothing")
        return self.settings.compression

    def compressors(self, worker: int, seed: int, momentum: float) -> list[Compressor[Any]]:
        """One for each tensor, for one rank (worker: -1 at a server)."""
        kind, knobs = self._kind, self._knobs
        return [kind(knobs, self._share(number, worker, seed, momentum)) for number in range(len(self.tensors))]

    def update(self, optimizer: Sgd) -> Sgd:
        """What workers apply to what they decode, in place of what they would to a gradient."""
        kind, step_share = self._kind, self.compression.step_share
        share = kind.step_share if step_share is None else step_share
        momentum = 0.0 if kind.own_momentum else optimizer.momentum
        return replace(optimizer, momentum=momentum, learning_rate=share * optimizer.learning_rate)

    def exchanges(self, tensor: int) -> tuple[Exchange, ...]:
        """The rounds of a tensor."""
        return self._kind.plan(self._knobs, self._share(tensor))

    def number(self, tensor: int, round_: int, leg: Leg) -> int:
        """What the code of a tensor is called on a leg of a round."""
        return tensor + len(self.tensors) * (2 * round_ + leg)

    def place(self, number: int) -> tuple[int, int]:
        """The tensor and the round of a code."""
        return number % len(self.tensors), number // len(self.tensors) // 2

    @property
    def _kind(self) -> type[Compressor[Any]]:
        return compressor_class(self.compression.method)

    @property
    def _knobs(self) -> Knobs:
        return self._kind.knobs_class.model_validate(self.compression.knobs)

    def _share(self, tensor: int, worker: int = -1, seed: int = 0, momentum: float = 0.0) -> Share:
        return Share(
            tensor=tensor,
            elements=self.tensors[tensor].elements,
            workers=self.workers,
            worker=worker,
            seed=seed,
            iterations=self.iterations,
            momentum=momentum,
            fixed=self.settings.kind != "tcp",
        )
