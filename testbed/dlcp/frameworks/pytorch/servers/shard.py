"""A rank's share of the parameter servers: a thread that applies a torch optimizer to the tensors that it owns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from dlcp.frameworks.pytorch.failure.peer_failure import Alarm, WatchedEndpoint
from dlcp.frameworks.pytorch.servers.flat_parameters import Entry, pieces
from dlcp.transport.aggregation.parameter_server import Server
from dlcp.transport.contract.endpoint import Completion, Floats, TransportError
from dlcp.transport.contract.mailbox import Mailbox
from dlcp.transport.contract.tensors import Tensor

MakeOptimizer = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]
Hyperparameters = list[dict[str, Any]]
"""Of every parameter group of the user's optimizer: all but its parameters."""
_STEP_S = 0.01


def hyperparameters(optimizer: torch.optim.Optimizer) -> Hyperparameters:
    """As they are at the moment."""
    return [
        {
            name: value.clone() if isinstance(value, torch.Tensor) else value
            for name, value in group.items()
            if name != "params"
        }
        for group in optimizer.param_groups
    ]


@dataclass
class Part:
    """One tensor at its server: pieces of parameters as torch parameters that share its memory, and their optimizer.

    places: of each piece in the tensor. groups: which of the user's groups each of the optimizer's is.
    """

    parameters: list[torch.nn.Parameter]
    places: list[slice]
    optimizer: torch.optim.Optimizer
    groups: list[int]


class TorchUpdate:
    """Any torch optimizer as a server's: see dlcp.transport.contract.optimizer.Optimizer.

    make: the user's. template: what it made of the whole model, for its groups. of_iteration: the hyperparameters that
    an iteration is to use. parts: by tensor, as they come into being.
    """

    iterations = None

    def __init__(
        self,
        make: MakeOptimizer,
        template: torch.optim.Optimizer,
        tensors: list[Tensor],
        entries: list[Entry],
        of_iteration: Callable[[int], Hyperparameters],
    ) -> None:
        self.parts: dict[int, Part] = {}
        self._make = make
        self._template = template
        self._tensors = tensors
        self._entries = entries
        self._of_iteration = of_iteration

    def state(self, tensor: int, parameters: Floats) -> Part:
        """See Optimizer. A parameter that lies in the tensor as a whole keeps its shape; a part of one is 1-D."""
        group_of = {p: g for g, group in enumerate(self._template.param_groups) for p in group["params"]}
        made: list[torch.nn.Parameter] = []
        places: list[slice] = []
        by_group: dict[int, list[torch.nn.Parameter]] = {}
        for entry in self._entries:
            for piece in pieces(self._tensors, entry.start, entry.stop):
                if piece.tensor != tensor:
                    continue
                place = slice(piece.offset, piece.offset + piece.stop - piece.start)
                values = torch.from_numpy(parameters[place])
                is_whole = piece.stop - piece.start == entry.parameter.numel()
                shaped = torch.nn.Parameter(values.view(entry.parameter.shape) if is_whole else values)
                made.append(shaped)
                places.append(place)
                by_group.setdefault(group_of[entry.parameter], []).append(shaped)
        optimizer = self._make(made)
        known = hyperparameters(self._template)
        optimizer.param_groups[:] = [{**known[group], "params": ours} for group, ours in by_group.items()]
        self.parts[tensor] = Part(made, places, optimizer, list(by_group))
        return self.parts[tensor]

    def step(self, iteration: int, parameters: Floats, state: Part, gradient: Floats) -> None:
        """See Optimizer."""
        wanted = self._of_iteration(iteration)
        for group, number in zip(state.optimizer.param_groups, state.groups, strict=True):
            group.update(wanted[number])
        for parameter, place in zip(state.parameters, state.places, strict=True):
            parameter.grad = torch.from_numpy(gradient[place]).view(parameter.shape)
        state.optimizer.step()
        for parameter in state.parameters:
            parameter.grad = None


class Shard:
    """One server, in a thread of its own. note: told of every completion. error: why it ended, if not in order."""

    def __init__(
        self,
        endpoint: WatchedEndpoint,
        alarm: Alarm,
        tensors: list[Tensor],
        index: int,
        workers: list[int],
        values: Floats,
        update: TorchUpdate,
        note: Callable[[list[Completion]], None],
        holes: Literal["zero", "rescale"],
    ) -> None:
        self.error: str | None = None
        self.update = update
        self.own = [number for number, tensor in enumerate(tensors) if tensor.server == index]
        self._tensors = tensors
        self._endpoint = endpoint
        self._alarm = alarm
        self._note = note
        self._ending = threading.Event()
        self._values: Floats = np.empty_like(values)  # only what it owns is ever touched
        self.load(values)
        self._server = Server(Mailbox(endpoint), tensors, index, workers, self._values, update, holes=holes)
        self._server.expect_first()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"dlcp-server-{index}")
        self._thread.start()

    def load(self, values: Floats) -> None:
        """Overwrite the parameters that it owns; only while nothing is under way."""
        for number in self.own:
            place = slice(self._tensors[number].start, self._tensors[number].stop)
            self._values[place] = values[place]

    def wait_until_served(self, iterations: int, timeout_s: float) -> bool:
        """Until every worker has what so many iterations made of its tensors; False when time ran out or it failed."""
        deadline_s = time.monotonic() + timeout_s
        while not self._server.has_served(iterations):
            if self.error is not None or time.monotonic() > deadline_s:
                return False
            time.sleep(_STEP_S)
        return True

    def close(self) -> None:
        """End the thread, then the endpoint. Safe to call twice."""
        self._ending.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._endpoint.close()

    def _run(self) -> None:
        try:
            self._server.serve(self._is_ending)
        except Exception as error:  # becomes the error of every rank
            self.error = str(error) if isinstance(error, TransportError) else f"{type(error).__name__}: {error}"
            self._alarm.sound(f"its parameter server ended: {self.error}")

    def _is_ending(self) -> bool:
        self._note(self._server.completions)
        self._server.completions.clear()
        return self._ending.is_set()
