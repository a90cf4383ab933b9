"""The interface of a training framework to agents, so that they need not know which one a training script uses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dlcp.frameworks.compute_pace import Pace
from dlcp.transport.aggregation.interfaces import GradientWorker
from dlcp.transport.aggregation.parameter_server import Iteration
from dlcp.transport.contract.endpoint import Floats
from dlcp.transport.contract.tensors import Tensor


class Training(Protocol):
    """A training job as one worker of several, each in a process of its own."""

    def run(self, start_s: float, on_iteration: Callable[[int], None]) -> list[Iteration]:
        """Train from the instant start_s on; return one row an iteration. TransportError when the transport fails."""

    def evaluate(self) -> list[tuple[int, float, float, float]]:
        """Return (iteration, instant, loss, accuracy) on the test set, of every snapshot."""


class AllWorkers(Protocol):
    """All workers of a job in one process, on one flat vector of parameters that an update of it changes for all."""

    def gradients(self, iteration: int, rows: Floats) -> None:
        """Pack every worker's gradient of one iteration into its rows: (workers, packets, values of a packet)."""

    def score(self) -> tuple[float, float]:
        """Return (loss, accuracy) on the whole test set."""


class Framework(ABC):
    """One framework. A job is what a training script's `job(options)` returns; besides what the framework needs, it has
    `initial_parameters()`: all parameters as one flat float32 vector, layer by layer."""

    @abstractmethod
    def use_one_thread(self) -> None:
        """Let arithmetic use one thread: agents share the machine's cores."""

    @abstractmethod
    def training(
        self,
        job: Any,
        worker: GradientWorker,
        tensors: list[Tensor],
        iterations: int,
        snapshot_after: set[int],
        pace: Pace | None,
    ) -> Training:
        """Bind a job to a worker. snapshot_after: the iterations after which parameters are kept for evaluate().
        pace: of a job that declares its compute; None: it takes as long as it takes."""

    @abstractmethod
    def all_workers(self, jobs: Sequence[Any], parameters: Floats, tensors: list[Tensor]) -> AllWorkers:
        """Bind all workers' jobs to one vector of parameters."""
