"""Batches of a training job: what each worker sees of a data set that is held as two tensors."""

from __future__ import annotations

from collections.abc import Callable

import torch

from dlcp.datasets.batches import Turn, order

Batch = tuple[torch.Tensor, torch.Tensor]


def drawn(inputs: torch.Tensor, labels: torch.Tensor, turn: Turn) -> Callable[[int], Batch]:
    """`batch` of a TrainingJob: iteration → a worker's share, by `datasets.batches.order`. turn: the script's options;
    of samples without classes, so that only the shuffle is meant."""

    def draw(iteration: int) -> Batch:
        found = order(turn.seed, turn.worker, turn.workers, turn.batch, len(labels), iteration)
        chosen = torch.from_numpy(found)
        return inputs[chosen], labels[chosen]

    return draw


def spread(inputs: torch.Tensor, labels: torch.Tensor, count: int) -> Batch:
    """So many samples, evenly spread over all."""
    step = len(labels) // count
    return inputs[::step][:count], labels[::step][:count]
