"""The update that a parameter server applies. Ours is SGD with momentum, learning rate warmed up and decayed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dlcp.transport.contract.endpoint import Floats


class Optimizer(Protocol):
    """What a server applies to each of its tensors, once an iteration."""

    @property
    def iterations(self) -> int | None:
        """How many there are; None: until the server is told to end."""

    def state(self, tensor: int, parameters: Floats) -> Any:
        """What is kept for a tensor from iteration to iteration. parameters: where they live, for good."""

    def step(self, iteration: int, parameters: Floats, state: Any, gradient: Floats) -> None:
        """Update the tensor's parameters and its state in place; gradient may be used up as scratch space."""


@dataclass(frozen=True)
class Sgd:
    """v ← momentum·v + g; p ← p − rate·v, all in float32.

    learning_rate: the peak. warmup_iterations: linear rise to it from 1/(n+1). decays: then a half cosine down to 0
    at `iterations`; a constant rate would hide what gradient loss does to accuracy under the noise between seeds.
    """

    learning_rate: float
    momentum: float
    iterations: int
    warmup_iterations: int = 0
    decays: bool = True

    def rate(self, iteration: int) -> float:
        """The learning rate of an iteration, counted from 0."""
        if iteration < self.warmup_iterations:
            return self.learning_rate * (iteration + 1) / (self.warmup_iterations + 1)
        if not self.decays:
            return self.learning_rate
        done = (iteration - self.warmup_iterations) / max(1, self.iterations - self.warmup_iterations)
        return self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * done))

    def state(self, tensor: int, parameters: Floats) -> Floats:
        """See Optimizer: the velocity."""
        return np.zeros_like(parameters)

    def step(self, iteration: int, parameters: Floats, state: Floats, gradient: Floats) -> None:
        """See Optimizer."""
        velocity = state
        if self.momentum:
            velocity *= np.float32(self.momentum)
            velocity += gradient
            np.multiply(velocity, np.float32(self.rate(iteration)), out=gradient)
        else:
            gradient *= np.float32(self.rate(iteration))
        parameters -= gradient
