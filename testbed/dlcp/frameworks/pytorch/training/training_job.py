"""A training script's job, run by the testbed's agents: gradients leave by layer in backward, forward waits by layer.

No optimizer runs at a worker: hooks on the parameters copy each gradient out as soon as autograd has it, hooks on the
layers wait for the newest parameters just before a layer computes. Parameters live in one flat float32 vector that
pulls overwrite in place; the model's own parameters are views of it.

Where the job declares its compute, each layer takes as long as declared, forward and backward: see Pace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from dlcp.frameworks.compute_pace import Pace
from dlcp.frameworks.pytorch.servers.flat_parameters import Piece, pieces
from dlcp.frameworks.pytorch.servers.gradient_pusher import Pusher
from dlcp.transport.aggregation.interfaces import GradientWorker
from dlcp.transport.aggregation.parameter_server import Iteration, parameters_crc32
from dlcp.transport.contract.endpoint import Floats
from dlcp.transport.contract.tensors import Tensor

EVALUATION_BATCH = 250


@dataclass(frozen=True)
class TrainingJob:
    """One worker's job, as a training script makes it.

    layers: the modules with parameters, input side first, as in the script's LAYERS; together they own every
    parameter of the model. batch: iteration → this worker's inputs and labels. test_set: inputs and labels.
    """

    model: torch.nn.Module
    layers: list[torch.nn.Module]
    batch: Callable[[int], tuple[torch.Tensor, torch.Tensor]]
    test_set: Callable[[], tuple[torch.Tensor, torch.Tensor]]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch.nn.functional.cross_entropy

    def initial_parameters(self) -> Floats:
        """All parameters as one flat vector, layer by layer."""
        parts = [p.detach().reshape(-1).numpy() for layer in self.layers for p in layer.parameters()]
        return np.concatenate(parts)

    def bind(self, parameters: Floats) -> Iterator[tuple[int, torch.nn.Parameter, int, int]]:
        """Make the model's parameters views of a flat vector, layer by layer: (layer, parameter, start, stop) of each
        once it is bound. ValueError at the end when the vector has another length."""
        start = 0
        for number, layer in enumerate(self.layers):
            for parameter in layer.parameters():
                stop = start + parameter.numel()
                if stop <= len(parameters):
                    parameter.data = torch.from_numpy(parameters[start:stop]).view_as(parameter)
                    yield number, parameter, start, stop
                start = stop
        if start != len(parameters):
            raise ValueError(f"the model has {start} parameters, its layers were agreed as {len(parameters)}")

    def score(self) -> tuple[float, float]:
        """(loss, accuracy) of the model as it is on the whole test set: per label, of which a sample may have many."""
        inputs, labels = self.test_set()
        loss, correct = 0.0, 0
        with torch.no_grad():
            for i in range(0, len(labels), EVALUATION_BATCH):
                wanted = labels[i : i + EVALUATION_BATCH]
                output = self.model(inputs[i : i + EVALUATION_BATCH])
                loss += float(self.loss(output, wanted)) * len(wanted)
                correct += int((output.argmax(1) == wanted).sum())
        return loss / len(labels), correct / labels.numel()


@dataclass(frozen=True)
class Snapshot:
    """Parameters after an iteration, and the instant when the last of them came."""

    iteration: int
    time_s: float
    parameters: Floats


class Trainer:
    """Trains a TrainingJob as one worker.

    snapshot_after: the iterations after which this worker keeps a copy of the parameters for evaluate(). pace: of a job
    that declares its compute; None: it takes as long as it takes.
    """

    def __init__(
        self,
        job: TrainingJob,
        worker: GradientWorker,
        tensors: list[Tensor],
        iterations: int,
        snapshot_after: set[int],
        pace: Pace | None = None,
    ) -> None:
        self._job = job
        self._worker = worker
        self._tensors = tensors
        self._iterations = iterations
        self._snapshot_after = snapshot_after
        self._snapshots: list[Snapshot] = []
        self._rows: list[Iteration] = []
        self._waited_s = 0.0
        self._iteration = 0
        self._pusher = Pusher(worker, tensors)
        self._pace = pace
        self._ready: list[list[tuple[list[Piece], Floats]]] = [[] for _ in job.layers]
        """By layer, gradients that wait until the layer's declared compute is over."""
        self._first_batch = job.batch(0)  # a data set that is missing is found before training starts
        self._bind()

    def run(self, start_s: float, on_iteration: Callable[[int], None]) -> list[Iteration]:
        """Train from the instant start_s on; returns one row an iteration. TransportError when the transport fails."""
        inputs, labels = self._first_batch
        time.sleep(max(0.0, start_s - time.monotonic()))
        if self._pace is not None:
            self._pace.wait(start_s)
        for iteration in range(self._iterations):
            self._iteration = iteration
            loss = self._job.loss(self._job.model(inputs), labels)
            self._close(iteration - 1)  # forward waited for every layer: what the iteration before made is there
            if self._pace is not None:
                inputs, labels = self._next_batch()  # what it takes is part of the last layer's compute
                self._pace.forward(len(self._job.layers) - 1)
            loss.backward()  # type: ignore[no-untyped-call]
            row = self._rows[-1]
            if self._pace is not None:
                row.compute_s = self._pace.iteration_s
            else:
                row.compute_s = time.monotonic() - row.start_s - self._waited_s
                inputs, labels = self._next_batch()
            on_iteration(iteration + 1)
        end_s = self._worker.finish()
        self._rows[-1].end_s = max(time.monotonic() if self._pace is None else self._pace.due_s, end_s)
        self._close(self._iterations - 1)
        return self._rows

    def evaluate(self) -> list[tuple[int, float, float, float]]:
        """(iteration, instant, loss, accuracy) of every snapshot on the whole test set."""
        found = []
        for snapshot in self._snapshots:
            self._worker.parameters[:] = snapshot.parameters
            found.append((snapshot.iteration, snapshot.time_s, *self._job.score()))
        return found

    def _next_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The next iteration's; after the last one anything."""
        following = self._iteration + 1
        return self._job.batch(following) if following < self._iterations else self._first_batch

    def _bind(self) -> None:
        """Make the model's parameters views of the flat vector, and hang the hooks."""
        needed: list[set[int]] = [set() for _ in self._job.layers]
        for number, parameter, start, stop in self._job.bind(self._worker.parameters):
            places = pieces(self._tensors, start, stop)
            hook = self._gradient_hook(places) if self._pace is None else self._paced_hook(places, number)
            parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
            needed[number].update(piece.tensor for piece in places)
        for number, layer in enumerate(self._job.layers):
            layer.register_forward_pre_hook(self._layer_hook(number, sorted(needed[number])))

    def _gradient_hook(self, places: list[Piece]) -> Callable[[torch.Tensor], None]:
        def copy_out(parameter: torch.Tensor) -> None:
            assert parameter.grad is not None
            gradient = parameter.grad.reshape(-1).numpy()
            self._waited_s += self._pusher.put(self._iteration, places, gradient)
            parameter.grad = None

        return copy_out

    def _paced_hook(self, places: list[Piece], number: int) -> Callable[[torch.Tensor], None]:
        """A layer's gradients leave together, when its declared compute is over."""
        assert self._pace is not None
        pace, ready = self._pace, self._ready[number]
        parameters = sum(1 for _ in self._job.layers[number].parameters())

        def copy_out(parameter: torch.Tensor) -> None:
            assert parameter.grad is not None
            ready.append((places, parameter.grad.reshape(-1).numpy()))
            parameter.grad = None
            if len(ready) < parameters:
                return
            pace.backward(number)
            for where, gradient in ready:
                pace.spend(self._pusher.put(self._iteration, where, gradient))
            ready.clear()

        return copy_out

    def _layer_hook(self, number: int, needed: list[int]) -> Callable[[torch.nn.Module, object], None]:
        def wait(module: torch.nn.Module, _: object) -> None:
            if not torch.is_grad_enabled():
                return  # an evaluation, after the training
            if self._pace is not None and number:
                self._pace.forward(number - 1)
            before_s = time.monotonic()
            came_s = self._worker.await_parameters(needed)
            now_s = time.monotonic()
            if self._pace is not None:
                now_s = self._pace.wait(came_s) if number else self._pace.begin(came_s)
            if number == 0:
                if self._rows:
                    self._rows[-1].end_s = now_s
                self._rows.append(Iteration(self._iteration, now_s))
                self._waited_s = 0.0
            else:
                self._waited_s += now_s - before_s

        return wait

    def _close(self, iteration: int) -> None:
        """All parameters that came of an iteration are there: fingerprint them, and keep them if wanted."""
        if iteration < 0:
            return
        self._rows[iteration].parameters_crc32 = parameters_crc32(self._worker.parameters)
        if iteration in self._snapshot_after:
            arrived_s = self._worker.await_parameters(range(len(self._tensors)))
            self._snapshots.append(Snapshot(iteration, arrived_s, self._worker.parameters.copy()))
