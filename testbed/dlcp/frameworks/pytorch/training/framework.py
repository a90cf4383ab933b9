"""PyTorch as agents see it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dlcp.frameworks.base import Framework
from dlcp.frameworks.compute_pace import Pace
from dlcp.frameworks.pytorch.training.inprocess_workers import Together
from dlcp.frameworks.pytorch.training.training_job import Trainer, TrainingJob
from dlcp.transport.aggregation.interfaces import GradientWorker
from dlcp.transport.contract.endpoint import Floats
from dlcp.transport.contract.tensors import Tensor


class PyTorch(Framework):
    """See Framework; a job is a TrainingJob."""

    def use_one_thread(self) -> None:
        torch.set_num_threads(1)  # torch's threads of several workers would fight over the cores

    def training(
        self,
        job: TrainingJob,
        worker: GradientWorker,
        tensors: list[Tensor],
        iterations: int,
        snapshot_after: set[int],
        pace: Pace | None,
    ) -> Trainer:
        return Trainer(job, worker, tensors, iterations, snapshot_after, pace)

    def all_workers(self, jobs: Sequence[TrainingJob], parameters: Floats, tensors: list[Tensor]) -> Together:
        return Together(jobs, parameters, tensors)
