"""Batches of a training job: what each worker sees of a data set that is held as two tensors."""

from __future__ import annotations

from collections.abc import Callable

import torch

from dlcp.datasets.batches import order

Batch = tuple[torch.Tensor, torch.Tensor]


def drawn(inputs: torch.Tensor, labels: torch.Tensor, *, seed: int, worker: int, workers: int, batch: int
          ) -> Callable[[int], Batch]:  # fmt: skip
    """`batch` of a TrainingJob: iteration → a worker's share, by `datasets.batches.order`."""

    def draw(iteration: int) -> Batch:
        chosen = torch.from_numpy(order(seed, worker, workers, batch, len(labels), iteration))
        return inputs[chosen], labels[chosen]

    return draw


def spread(inputs: torch.Tensor, labels: torch.Tensor, count: int) -> Batch:
    """So many samples, evenly spread over all."""
    step = len(labels) // count
    return inputs[::step][:count], labels[::step][:count]
