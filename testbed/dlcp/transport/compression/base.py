"""What a gradient compressor is: codes that workers push, that a server merges, and that every worker decodes alike.

Framework-free and without a clock or a socket. Who moves the codes: dlcp.transport.aggregation.compressed_server.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import numpy as np
from pydantic import Field

from dlcp.model.base import Frozen
from dlcp.model.units import Fraction
from dlcp.transport.contract.endpoint import Dtype, Floats, Values
from dlcp.transport.contract.values import held_as


@dataclass(frozen=True)
class Code:
    """The shape of a code: so many elements of dtype, or, if it is variable, at least one and at most so many."""

    elements: int
    dtype: Dtype
    variable: bool = False

    @property
    def size_bytes(self) -> int:
        """On the wire, at most."""
        return self.elements * held_as(self.dtype).itemsize


@dataclass(frozen=True)
class Exchange:
    """One round: every worker pushes a code, and pulls what the server merged of all of them."""

    push: Code
    pull: Code


@dataclass(frozen=True)
class Share:
    """One tensor of a job at one rank.

    tensor: its number. elements: float32 values. workers: how many push. worker: which of them this rank is; -1 at a
    server. seed: the job's; iterations: how many it runs; momentum: of its optimizer. fixed: codes must not vary in
    length: their transport may lose packets of them, and a message of variable length must arrive.
    """

    tensor: int
    elements: int
    workers: int
    worker: int
    seed: int
    iterations: int
    momentum: float
    fixed: bool

    def shared_random(self, iteration: int) -> np.random.Generator:
        """The same at every rank."""
        return np.random.default_rng([self.seed, 11, self.tensor, iteration])

    def own_random(self, iteration: int) -> np.random.Generator:
        """Another one at every rank."""
        return np.random.default_rng([self.seed, 12, self.tensor, iteration, self.worker + 1])


class Knobs(Frozen):
    """The settings of a compressor, each with a default and a description; an experiment sets them as the scheme's."""


class SparseKnobs(Knobs):
    """A compressor that sends a share of the values."""

    ratio: Fraction = Field(default=0.01, gt=0, lt=0.5, description="share of a tensor's values that is sent")

    def kept(self, elements: int) -> int:
        """Return how many values of a tensor are sent: k."""
        return max(1, int(self.ratio * elements))


class MemoryKnobs(SparseKnobs):
    """A sparse compressor that may remember what it has not sent."""

    error_feedback: bool = Field(
        default=True, description="add what was not sent to the next gradient; off loses it for good"
    )


K = TypeVar("K", bound=Knobs)


class Compressor(ABC, Generic[K]):
    """One tensor's compressor at one rank: at a worker first, next and decode are called in turn, at a server merge.

    title, paper, mechanism: as in a scheme, for reports. knobs_class: the class of its settings.
    tolerates_loss: a code of which packets are lost, and replaced by zeros, still decodes to a gradient, so that a
    transport that loses packets may carry it.
    own_momentum: it keeps the momentum itself (before coding), or bears none; the optimizer then applies none.
    step_share: of the job's learning rate, which was found without compression, what suits what is decoded
    (Compression.step_share).
    """

    title: ClassVar[str]
    paper: ClassVar[str]
    mechanism: ClassVar[str]
    knobs_class: ClassVar[type[Knobs]] = Knobs
    tolerates_loss: ClassVar[bool] = False
    own_momentum: ClassVar[bool] = False
    step_share: ClassVar[float] = 1.0

    def __init__(self, knobs: K, share: Share) -> None:
        self.knobs = knobs
        self.share = share
        self.exchanges = self.plan(knobs, share)

    @classmethod
    @abstractmethod
    def plan(cls, knobs: K, share: Share) -> tuple[Exchange, ...]:
        """The shapes of what travels in an iteration, round by round."""

    @abstractmethod
    def first(self, iteration: int, gradient: Floats) -> Values:
        """What a worker pushes in round 0; a fresh array. The gradient is not changed, and not kept."""

    def next(self, iteration: int, number: int, answer: Values) -> Values:
        """What a worker pushes in round `number`, once it has pulled the answer of the round before."""
        raise NotImplementedError(f"{type(self).__name__} has one round")

    @abstractmethod
    def decode(self, iteration: int, answer: Values) -> Floats:
        """The workers' mean gradient from the last round's answer; a fresh array, the same bits at every worker."""

    @abstractmethod
    def merge(self, iteration: int, number: int, codes: list[Values]) -> Values:
        """What the server answers to round `number`'s codes, in rank order; a fresh array. A hole in a code, where the
        transport left one, is zeros."""


class Memory:
    """Error feedback: what a code left out of its gradient is added to the next one.

    Seide et al., 1-Bit SGD, Interspeech 2014; Stich et al., Sparsified SGD with Memory, NeurIPS 2018. Without it
    (`keeps` False) a gradient stands for itself.
    """

    def __init__(self, elements: int, keeps: bool) -> None:
        self.error: Floats = np.zeros(elements if keeps else 0, np.float32)
        self._keeps = keeps

    def add_to(self, gradient: Floats) -> Floats:
        """The gradient and what was left out before; a fresh array."""
        return gradient + self.error if self._keeps else gradient.copy()

    def keep(self, left_out: Floats) -> None:
        """Remember an array, which is taken over."""
        if self._keeps:
            self.error = left_out


def total_of(codes: list[Values]) -> Floats:
    """The float32 sum of codes in rank order, which does not depend on who came first."""
    total: Floats = codes[0].astype(np.float32)
    for code in codes[1:]:
        total += code
    return total
