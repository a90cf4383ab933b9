"""All workers of a job in one process: each has its replica of the model, and all share the same parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import torch

from dlcp.frameworks.pytorch.servers.flat_parameters import pieces
from dlcp.frameworks.pytorch.training.training_job import TrainingJob
from dlcp.transport.contract.endpoint import Floats
from dlcp.transport.contract.packing import Packing
from dlcp.transport.contract.tensors import Tensor

_Places = list[tuple[torch.nn.Parameter, list[tuple[slice, slice]]]]
"""A parameter, and of each of its pieces: where in the parameter, where in a worker's packets."""


class Together:
    """Workers' replicas, bound to one flat vector of parameters, so that an update of it is every worker's."""

    def __init__(self, jobs: Sequence[TrainingJob], parameters: Floats, tensors: list[Tensor]) -> None:
        packing = Packing(tensors)
        self._jobs = [replace(job, test_set=cache(job.test_set)) for job in jobs]  # it is scored many times
        self._places = [_places(job, parameters, tensors, packing) for job in jobs]

    def gradients(self, iteration: int, rows: Floats) -> None:
        """Every worker's gradient of one iteration, packed into its rows: (workers, packets, values of a packet)."""
        for job, places, own in zip(self._jobs, self._places, rows, strict=True):
            inputs, labels = job.batch(iteration)
            job.loss(job.model(inputs), labels).backward()  # type: ignore[no-untyped-call]
            _take(places, own.reshape(-1))

    def score(self) -> tuple[float, float]:
        """(loss, accuracy) on the whole test set, as the first worker's replica has it."""
        return self._jobs[0].score()


def _places(job: TrainingJob, parameters: Floats, tensors: list[Tensor], packing: Packing) -> _Places:
    found: _Places = []
    for _, parameter, start, stop in job.bind(parameters):
        own = []
        for piece in pieces(tensors, start, stop):
            at = packing.place(piece.tensor, piece.offset)
            own.append((slice(piece.start, piece.stop), slice(at, at + piece.stop - piece.start)))
        found.append((parameter, own))
    return found


def _take(places: _Places, packed: Floats) -> None:
    for parameter, own in places:
        assert parameter.grad is not None, "every parameter takes part in the loss"
        gradient = parameter.grad.reshape(-1).numpy()
        for source, target in own:
            packed[target] = gradient[source]
        parameter.grad = None
